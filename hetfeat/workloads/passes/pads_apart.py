"""Pads after the last elements alone, as those of TensorFlow with stride 2: kernels of their own.

TVM tells operators by the indices that they read. Where nothing is put before the first elements,
each has the index that it had, so the pad is taken for an operator element by element and fused
with the kernel before it. Of that, MetaSchedule then writes what the kernel computes, and nothing
around it.
"""

from typing import Any

import tvm
from tvm import topi
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes import INJECTIVE
from hetfeat.workloads.passes.simplify import operator_of, rewritten


def keep_pads_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Says of such pads that they move elements.

    Args:
        module: Module in its final layout.
    """
    return rewritten(module, _Apart(module))


@mutator
class _Apart(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if operator_of(call) != "relax.nn.pad" or str(call.attrs.pad_mode) != "constant":
            return call
        sides = [int(side) for side in call.attrs.pad_width]
        if any(sides[::2]):
            return call
        (data,), value = call.args, float(call.attrs.pad_value)
        return self.builder_.call_te(
            topi.nn.pad,
            data,
            sides[::2],
            sides[1::2],
            value if str(data.ty.dtype).startswith("float") else int(value),
            primfunc_name_hint="pad",
            primfunc_attrs={"op_pattern": INJECTIVE},
        )
