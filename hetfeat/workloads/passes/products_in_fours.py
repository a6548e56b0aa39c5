"""Products of quantised tensors as CPUs take them that add four products of each sum at once.

VNNI multiplies uint8 by int8, Arm's `sdot` int8 by int8, and its `usdot` what VNNI does. A sum of
`x * w` is one of `(x + 128) * w`, less 128 times the sum of the weights: so a tensor of the other
type gets the bits that the CPU takes. Channels that are no whole groups of four, as those of
images, get some of zeros.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target.codegen import target_has_features

from hetfeat.workloads.passes.simplify import operator_of, rewritten
from hetfeat.workloads.passes.widen_integers import has_vnni, is_of_constants

DEEP = 4
SHIFTS = {"int8": 128, "uint8": -128}
"""What is added to a tensor of a type to have the same steps in the other."""
OTHER = {"int8": "uint8", "uint8": "int8"}


def multiply_in_fours(module: tvm.IRModule) -> tvm.IRModule:
    """Prepares products with constant weights, where the target adds four of them at once.

    Args:
        module: Module in its final layout.
    """
    types = multiplied_in_fours(tvm.target.Target.current())
    return rewritten(module, _Preparer(module, types)) if types else module


def multiplied_in_fours(target: tvm.target.Target) -> frozenset[str]:
    """Types of tensors of which a target adds four products with weights of int8 at once."""
    if target.kind.name != "llvm":
        return frozenset()
    of_arm = {"dotprod": "int8", "i8mm": "uint8"}
    found = {dtype for name, dtype in of_arm.items() if target_has_features(name, target)}
    return frozenset(found | ({"uint8"} if has_vnni(target) else set()))


@mutator
class _Preparer(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, types: frozenset[str]) -> None:
        super().__init__(module)
        self._types = types

    def visit_function_(self, function: Any) -> Any:
        self._shifted_to: dict[Any, Any] = {}
        return super().visit_function_(function)

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = operator_of(call)
        if name not in ("relax.nn.conv2d", "relax.matmul"):
            return call
        data, weights = call.args
        dtype = str(data.ty.dtype)
        is_constant = isinstance(weights, tvm.ir.GenericConst)
        if not is_constant or str(weights.ty.dtype) != "int8" or dtype not in SHIFTS:
            return call
        shift, factor = 0 if dtype in self._types else SHIFTS[dtype], weights.value.numpy()
        if name == "relax.matmul":
            return self._product(data, factor, shift) if shift else call
        short = -factor.shape[2] % DEEP if factor.shape[2] > 1 else 0
        is_ours = is_of_constants(call) and int(call.attrs.groups) == 1
        if not is_ours or not (shift or short):
            return call
        return self._convolution(call.attrs, data, factor, shift, short)

    def _product(self, data: Any, matrix: npt.NDArray[np.int8], shift: int) -> Any:
        sums = relax.op.matmul(self._shifted(data, shift), relax.const(matrix), out_dtype="int32")
        return self._less(sums, shift, matrix.astype(np.int64).sum(-2, keepdims=True))

    def _convolution(
        self, attributes: Any, data: Any, filters: npt.NDArray[np.int8], shift: int, short: int
    ) -> Any:
        """A convolution of a tensor shifted by as much, its channels so many more.

        What is around an image is what it was, and what is in the new channels does not matter.
        """
        above, left, below, right = map(int, attributes.padding)
        around = [0, 0, above, below, left, right, 0, short]
        if shift:
            data = self._shifted(data, shift)
        if any(around):
            data = self.builder_.emit(relax.op.nn.pad(data, around, pad_value=shift))
        whole = np.pad(filters, ((0, 0), (0, 0), (0, short), (0, 0)))
        options = {name: getattr(attributes, name) for name in ("strides", "dilation")}
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_dtype": "int32"}
        sums = relax.op.nn.conv2d(data, relax.const(whole), **options, **layouts)
        if not shift:
            return sums
        of_weights = filters.astype(np.int64).sum((0, 1, 2)).reshape(1, 1, 1, -1)
        return self._less(sums, shift, of_weights)

    def _less(self, sums: Any, shift: int, of_weights: npt.NDArray[np.int64]) -> Any:
        """Sums of shifted tensors as those of the tensors themselves."""
        missing = (-shift * of_weights).astype(np.int32)
        return relax.op.add(self.builder_.emit(sums), relax.const(missing))

    def _shifted(self, data: Any, shift: int) -> Any:
        """A tensor in the other type, computed once."""
        if data not in self._shifted_to:
            wide = self.builder_.emit(relax.op.astype(data, "int16"))
            moved = relax.op.add(wide, relax.const(np.asarray(shift, np.int16)))
            other = OTHER[str(data.ty.dtype)]
            shifted = relax.op.astype(self.builder_.emit(moved), other)
            self._shifted_to[data] = self.builder_.emit(shifted)
        return self._shifted_to[data]
