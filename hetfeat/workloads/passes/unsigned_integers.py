"""Quantised tensors of int8 as uint8, for CPUs with VNNI: `vpdpbusd` multiplies uint8 by int8.

A sum of `x * w` is one of `(x + 128) * w`, less 128 times the sum of the weights.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes.simplify import operator_of, rewritten
from hetfeat.workloads.passes.widen_integers import is_of_constants, multiplies_unsigned

SHIFT = 128


def make_unsigned(module: tvm.IRModule) -> tvm.IRModule:
    """Shifts what is multiplied by constant weights.

    Args:
        module: Module in its final layout.
    """
    if not multiplies_unsigned(tvm.target.Target.current()):
        return module
    return rewritten(module, _Shifter(module))


@mutator
class _Shifter(PyExprMutator):  # type: ignore[misc]
    def visit_function_(self, function: Any) -> Any:
        self._shifted: dict[Any, Any] = {}
        return super().visit_function_(function)

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = operator_of(call)
        if name not in ("relax.nn.conv2d", "relax.matmul"):
            return call
        data, weights = call.args
        constant = isinstance(weights, tvm.ir.GenericConst)
        if not constant or {str(of.ty.dtype) for of in (data, weights)} != {"int8"}:
            return call
        if name == "relax.matmul":
            return self._product(data, weights)
        if is_of_constants(call) and int(call.attrs.groups) == 1:
            return self._convolution(call.attrs, data, weights)
        return call

    def _product(self, data: Any, weights: Any) -> Any:
        sums = relax.op.matmul(self._unsigned(data), weights, out_dtype="int32")
        matrix = weights.value.numpy()
        return self._less(sums, matrix.astype(np.int64).sum(-2, keepdims=True))

    def _convolution(self, attributes: Any, data: Any, weights: Any) -> Any:
        shifted = self._unsigned(data)
        above, left, below, right = map(int, attributes.padding)
        if any((above, left, below, right)):
            around = [0, 0, above, below, left, right, 0, 0]
            shifted = self.builder_.emit(relax.op.nn.pad(shifted, around, pad_value=SHIFT))
        options = {name: getattr(attributes, name) for name in ("strides", "dilation")}
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_dtype": "int32"}
        sums = relax.op.nn.conv2d(shifted, weights, **options, **layouts)
        filters = weights.value.numpy()
        return self._less(sums, filters.astype(np.int64).sum((0, 1, 2)).reshape(1, 1, 1, -1))

    def _less(self, sums: Any, of_weights: npt.NDArray[np.int64]) -> Any:
        """Sums of shifted tensors as those of the tensors themselves."""
        missing = (-SHIFT * of_weights).astype(np.int32)
        return relax.op.add(self.builder_.emit(sums), relax.const(missing))

    def _unsigned(self, data: Any) -> Any:
        """A tensor plus 128, computed once."""
        if data not in self._shifted:
            wide = self.builder_.emit(relax.op.astype(data, "int16"))
            raised = relax.op.add(wide, relax.const(np.asarray(SHIFT, np.int16)))
            shifted = relax.op.astype(self.builder_.emit(raised), "uint8")
            self._shifted[data] = self.builder_.emit(shifted)
        return self._shifted[data]
