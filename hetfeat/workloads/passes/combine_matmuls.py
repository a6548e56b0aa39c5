"""Matrix products of one input become one: the queries, keys and values of an attention.

TVM's CombineParallelMatmul takes weights that are variables, not bound constants, and finds none.
"""

from collections import defaultdict
from itertools import accumulate
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes.simplify import operator_of


def combine_siblings(module: tvm.IRModule) -> tvm.IRModule:
    """Computes products of one input with constant matrices as one, of which each is a slice.

    Args:
        module: A normalised module with bound parameters, without common subexpressions.
    """
    combiner = _Combiner(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            combiner.builder_.update_func(variable, combiner.combine(function))
    return combiner.builder_.get()


@mutator
class _Combiner(PyExprMutator):  # type: ignore[misc]
    """Emits the whole of a group where the first of its products was."""

    def combine(self, function: Any) -> Any:
        groups = defaultdict(list)
        for block in function.body.blocks:
            for binding in block.bindings:
                if _is_product(binding.value):
                    source, weight = binding.value.args
                    types = str(binding.var.ty.dtype), str(weight.ty.dtype)
                    groups[source, types].append(binding)
        self._places = {
            member.var: (group, at)
            for group in groups.values()
            if len(group) > 1
            for at, member in enumerate(group)
        }
        self._whole: dict[Any, Any] = {}
        return self.visit_expr(function)

    def visit_var_binding_(self, binding: Any) -> None:
        if binding.var not in self._places:
            super().visit_var_binding_(binding)
            return
        group, at = self._places[binding.var]
        weights = [member.value.args[1].value.numpy() for member in group]
        if at == 0:
            source = self.visit_expr(binding.value.args[0])
            joined = relax.const(np.concatenate(weights, axis=1))
            whole = relax.op.matmul(source, joined, out_dtype=str(binding.var.ty.dtype))
            self._whole[group[0].var] = self.builder_.emit(whole)
        ends = list(accumulate(weight.shape[1] for weight in weights))
        begin = ends[at] - weights[at].shape[1]
        part = relax.op.strided_slice(self._whole[group[0].var], [-1], [begin], [ends[at]])
        self.set_var_remap(binding.var, self.builder_.emit(part))


def _is_product(value: Any) -> bool:
    """Whether it is a product with a constant matrix."""
    if operator_of(value) != "relax.matmul":
        return False
    weight = value.args[1]
    return isinstance(weight, tvm.ir.GenericConst) and len(weight.ty.shape) == 2
