"""Quantised tensors in 16 bits, for CPUs that multiply no narrower ones without saturating.

Of x86 these are all without VNNI: `vpmaddwd` takes integers of 16 bits. Each would be widened again
for each of the products that it is part of. The kernel that computes them does it once.
"""

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.analysis import free_vars
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target.codegen import target_has_features

from hetfeat.workloads.integer_rules import QUANTISED
from hetfeat.workloads.passes.integers import stores_integers
from hetfeat.workloads.passes.simplify import operator_of, rebind, rewritten

WIDE = "int16"
PRODUCTS = {"relax.nn.conv2d", "relax.matmul"}
OF_ANY_TYPE = PRODUCTS | {
    "relax.astype",
    "relax.concat",
    "relax.nn.max_pool2d",
    "relax.nn.pad",
    "relax.permute_dims",
    "relax.reshape",
    "relax.strided_slice",
}
"""Operators that compute the same of wider integers; others get what they had."""


def widen_integers(module: tvm.IRModule) -> tvm.IRModule:
    """Makes 16 bits of the tensors of 8 that a network computes, weights apart.

    Args:
        module: Module in its final layout.
    """
    if not multiplies_wide(tvm.target.Target.current()) or not stores_integers(module):
        return module
    return relax.transform.DeadCodeElimination()(rewritten(module, _Widener(module)))


def multiplies_wide(target: tvm.target.Target) -> bool:
    """Whether a target is an x86 without VNNI."""
    is_x86 = target.kind.name == "llvm" and target_has_features("sse2", target)
    return is_x86 and not has_vnni(target)


def has_vnni(target: tvm.target.Target) -> bool:
    """Whether a target has VNNI, of 512 bits or of 256."""
    names = ("avx512vnni", "avxvnni")
    return target.kind.name == "llvm" and any(target_has_features(name, target) for name in names)


def is_of_constants(convolution: Any) -> bool:
    """Whether a convolution is one of integers with constant weights, in the final layout."""
    attributes, weights = convolution.attrs, convolution.args[1]
    layouts = str(attributes.data_layout), str(attributes.kernel_layout)
    is_laid_out = layouts == ("NHWC", "HWIO") and isinstance(weights, tvm.ir.GenericConst)
    return is_laid_out and str(convolution.ty.dtype) == "int32"


@mutator
class _Widener(PyExprMutator):  # type: ignore[misc]
    def visit_function_(self, function: Any) -> Any:
        self._returned = set(free_vars(function.body.body))
        return super().visit_function_(function)

    def visit_var_binding_(self, binding: Any) -> None:
        value, name = binding.value, operator_of(binding.value)
        if not isinstance(value, relax.Call | relax.Tuple):
            super().visit_var_binding_(binding)
            return
        inside = binding.var not in self._returned
        if isinstance(value, relax.Tuple):
            made = self._argument(value, keep=True)
        elif name == "relax.astype" and inside and str(value.ty.dtype) in QUANTISED:
            made = self._cast(self.visit_expr(value.args[0]), WIDE)
        else:
            keep = not (inside and name in OF_ANY_TYPE)
            arguments = [self._argument(argument, keep) for argument in value.args]
            if name in PRODUCTS and str(arguments[0].ty.dtype) in QUANTISED:
                arguments[0] = self._cast(arguments[0], WIDE)
            if name == "relax.nn.conv2d" and is_of_constants(value):
                made = self._convolved(value.attrs, *arguments)
            else:
                made = relax.Call(value.op, arguments, value.attrs, value.ty_args)
        rebind(self, binding, made)

    def _convolved(self, attributes: Any, data: Any, weights: Any) -> Any:
        """A convolution that pads by itself, with zeros, and multiplies in pairs.

        What was padded with a zero point becomes what it is less that. An odd number of channels
        gets one of zeros.
        """
        filters, emit, zero = weights.value.numpy(), self.builder_.emit, 0
        padding = list(attributes.padding)
        pad: Any = self.lookup_binding(data) if isinstance(data, relax.Var) else None
        if operator_of(pad) == "relax.nn.pad" and not any(map(int, padding)):
            sides = [int(side) for side in pad.attrs.pad_width]
            if not any(sides[:2] + sides[-2:]):
                zero = int(pad.attrs.pad_value)
                padding = [sides[2], sides[4], sides[3], sides[5]]
                data = pad.args[0]
        if zero:
            data = emit(relax.op.subtract(data, relax.const(np.asarray([zero], WIDE))))
        if int(attributes.groups) == 1 < filters.shape[2] and filters.shape[2] % 2:
            data = emit(relax.op.nn.pad(data, [0, 0, 0, 0, 0, 0, 0, 1]))
            weights = relax.const(np.pad(filters, ((0, 0), (0, 0), (0, 1), (0, 0))))
        options = {name: getattr(attributes, name) for name in ("strides", "dilation", "groups")}
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_dtype": "int32"}
        sums = relax.op.nn.conv2d(data, weights, padding=padding, **options, **layouts)
        if not zero:
            return sums
        missing = (zero * filters.astype(np.int64).sum((0, 1, 2))).astype(np.int32)
        return relax.op.add(emit(sums), relax.const(missing.reshape(1, 1, 1, -1)))

    def _argument(self, given: Any, keep: bool) -> Any:
        """An argument as it is now, or in the type that it had."""
        if isinstance(given, relax.Tuple):
            return relax.Tuple([self._argument(field, keep) for field in given.fields])
        made, dtype = self.visit_expr(given), str(getattr(given.ty, "dtype", ""))
        return self._cast(made, dtype) if keep and dtype in QUANTISED else made

    def _cast(self, value: Any, dtype: str) -> Any:
        same = str(value.ty.dtype) == dtype
        return value if same else self.builder_.emit(relax.op.astype(value, dtype))
