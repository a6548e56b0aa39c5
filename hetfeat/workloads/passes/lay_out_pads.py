"""Pads of quantised tensors in the layout of the convolutions that follow.

A quantised zero is any number, so that a pad stands before its convolution. TVM's ConvertLayout
does not go through it, and permutes on both sides.
"""

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes.integers import stores_integers
from hetfeat.workloads.passes.simplify import operator_of, rewritten


def lay_out_pads(module: tvm.IRModule) -> tvm.IRModule:
    """Permutes before a pad what was permuted after it; two permutations that cancel are none.

    Args:
        module: Module that ConvertLayout made.
    """
    if not stores_integers(module):
        return module
    moved = rewritten(module, _PadMover(module))
    return relax.transform.DeadCodeElimination()(moved)


@mutator
class _PadMover(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if operator_of(call) != "relax.permute_dims" or call.attrs.axes is None:
            return call
        pad = self._made_by(call.args[0], "relax.nn.pad")
        if pad is None:
            return call
        axes = [int(axis) for axis in call.attrs.axes]
        sides = [int(side) for side in pad.attrs.pad_width]
        around = [side for axis in axes for side in sides[2 * axis : 2 * axis + 2]]
        value = self._permuted(pad.args[0], axes)
        return relax.op.nn.pad(value, around, pad.attrs.pad_mode, float(pad.attrs.pad_value))

    def _permuted(self, value: Any, axes: list[int]) -> Any:
        before = self._made_by(value, "relax.permute_dims")
        if before is not None and before.attrs.axes is not None:
            whole = [int(before.attrs.axes[axis]) for axis in axes]
            if whole == sorted(whole):
                return before.args[0]
        return self.builder_.emit(relax.op.permute_dims(value, axes))

    def _made_by(self, value: Any, name: str) -> Any:
        """The call to an operator that a variable is bound to, or None."""
        bound = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        return bound if operator_of(bound) == name else None
