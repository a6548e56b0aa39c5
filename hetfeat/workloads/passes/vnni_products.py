"""Products of quantised tensors as VNNI takes them: uint8 by int8, four of each sum at once.

A sum of `x * w` is one of `(x + 128) * w`, less 128 times the sum of the weights: so tensors of
int8 become uint8. Channels that are no whole groups of four, as those of images, get some of zeros.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes.simplify import operator_of, rewritten
from hetfeat.workloads.passes.widen_integers import has_vnni, is_of_constants

SHIFT, DEEP = 128, 4


def for_vnni(module: tvm.IRModule) -> tvm.IRModule:
    """Prepares products with constant weights, where the target has VNNI.

    Args:
        module: Module in its final layout.
    """
    return rewritten(module, _Preparer(module)) if has_vnni(tvm.target.Target.current()) else module


@mutator
class _Preparer(PyExprMutator):  # type: ignore[misc]
    def visit_function_(self, function: Any) -> Any:
        self._unsigned: dict[Any, Any] = {}
        return super().visit_function_(function)

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = operator_of(call)
        if name not in ("relax.nn.conv2d", "relax.matmul"):
            return call
        data, weights = call.args
        dtypes = str(data.ty.dtype), str(weights.ty.dtype)
        if not isinstance(weights, tvm.ir.GenericConst) or dtypes[1] != "int8":
            return call
        is_signed, factor = dtypes[0] == "int8", weights.value.numpy()
        if name == "relax.matmul":
            return self._product(data, factor) if is_signed else call
        short = -factor.shape[2] % DEEP if factor.shape[2] > 1 else 0
        is_ours = is_of_constants(call) and int(call.attrs.groups) == 1
        if not is_ours or not (is_signed or (short and dtypes[0] == "uint8")):
            return call
        return self._convolution(call.attrs, data, factor, is_signed, short)

    def _product(self, data: Any, matrix: npt.NDArray[np.int8]) -> Any:
        sums = relax.op.matmul(self._shifted(data), relax.const(matrix), out_dtype="int32")
        return self._less(sums, matrix.astype(np.int64).sum(-2, keepdims=True))

    def _convolution(
        self, attributes: Any, data: Any, filters: npt.NDArray[np.int8], is_signed: bool, short: int
    ) -> Any:
        """A convolution of uint8, its channels so many more.

        What is around an image is what it was, and what is in the new channels does not matter.
        """
        above, left, below, right = map(int, attributes.padding)
        around = [0, 0, above, below, left, right, 0, short]
        if is_signed:
            data = self._shifted(data)
        if any(around):
            value = SHIFT if is_signed else 0
            data = self.builder_.emit(relax.op.nn.pad(data, around, pad_value=value))
        whole = np.pad(filters, ((0, 0), (0, 0), (0, short), (0, 0)))
        options = {name: getattr(attributes, name) for name in ("strides", "dilation")}
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_dtype": "int32"}
        sums = relax.op.nn.conv2d(data, relax.const(whole), **options, **layouts)
        if not is_signed:
            return sums
        return self._less(sums, filters.astype(np.int64).sum((0, 1, 2)).reshape(1, 1, 1, -1))

    def _less(self, sums: Any, of_weights: npt.NDArray[np.int64]) -> Any:
        """Sums of shifted tensors as those of the tensors themselves."""
        missing = (-SHIFT * of_weights).astype(np.int32)
        return relax.op.add(self.builder_.emit(sums), relax.const(missing))

    def _shifted(self, data: Any) -> Any:
        """A tensor of int8 plus 128, computed once."""
        if data not in self._unsigned:
            wide = self.builder_.emit(relax.op.astype(data, "int16"))
            raised = relax.op.add(wide, relax.const(np.asarray(SHIFT, np.int16)))
            shifted = relax.op.astype(self.builder_.emit(raised), "uint8")
            self._unsigned[data] = self.builder_.emit(shifted)
        return self._unsigned[data]
