"""Batch norms that no convolution takes up, such as those after a concatenation."""

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes.simplify import constants, operator_of, rewritten, static_shape


def scale_and_shift(module: tvm.IRModule) -> tvm.IRModule:
    """A batch norm of known numbers is one multiplication and one addition.

    TVM's takes a division for each element, too, and reads four numbers of each channel. They are
    computed in float64, and rounded once: gamma / sqrt(variance + epsilon), and beta less the
    mean of as many.
    """
    return rewritten(module, _Scaling(module))


@mutator
class _Scaling(PyExprMutator):  # type: ignore[misc]
    def visit_tuple_getitem_(self, item: Any) -> Any:
        item = self.visit_expr_post_order(item)
        norm = item.tuple_value
        norm = self.lookup_binding(norm) if isinstance(norm, relax.Var) else norm
        if item.index != 0 or operator_of(norm) != "relax.nn.batch_norm":
            return item
        data, *numbers = norm.args
        shape = static_shape(data)
        if shape is None or not constants(*numbers):
            return item
        axis = int(norm.attrs.axis) % len(shape)
        channels = [extent if at == axis else 1 for at, extent in enumerate(shape)]
        scale, shift = (
            relax.const(numbers.reshape(channels).astype(str(data.ty.dtype)))
            for numbers in _scale_and_shift(norm)
        )
        return relax.op.add(self.builder_.emit(relax.op.multiply(data, scale)), shift)


def _scale_and_shift(norm: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    gamma, beta, mean, variance = (
        given.value.numpy().astype(np.float64) for given in norm.args[1:]
    )
    scale = 1 / np.sqrt(variance + float(norm.attrs.epsilon))
    scale = scale * gamma if norm.attrs.scale else scale
    return scale, (beta if norm.attrs.center else 0) - mean * scale
