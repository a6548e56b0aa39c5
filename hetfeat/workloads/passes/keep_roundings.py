"""Products that are rounded before they are added to, in quantised networks, on every CPU.

LLVM makes one instruction of a product and a sum where a CPU has it, which rounds once instead of
twice: another CPU then computes other numbers. LLVM's `arithmetic.fence`, which is no instruction,
keeps both apart.
"""

from collections import defaultdict
from typing import Any

import tvm
from tvm import relax, te
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes.integers import bindings, stores_integers
from hetfeat.workloads.passes.simplify import operator_of, rebind, rewritten

ELEMENTWISE = 0
"""TVM's pattern of an operator that computes each element from one."""
APART = {"relax.maximum", "relax.minimum", "relax.round"}
"""Operators after which nothing is left to be made one with a product."""


def keep_roundings(module: tvm.IRModule) -> tvm.IRModule:
    """Fences the products of float32 elements of a network that has tensors of 8 bits.

    Args:
        module: Module in its final layout, for a target of LLVM.
    """
    if tvm.target.Target.current().kind.name != "llvm" or not stores_integers(module):
        return module
    return rewritten(module, _Fencer(module, _users(module)))


def _users(module: tvm.IRModule) -> dict[Any, set[str]]:
    """Names of the operators that read each variable."""
    users: dict[Any, set[str]] = defaultdict(set)
    for binding in bindings(module):
        for argument in getattr(binding.value, "args", ()):
            if isinstance(argument, relax.Var):
                users[argument].add(operator_of(binding.value))
    return users


@mutator
class _Fencer(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, users: dict[Any, set[str]]) -> None:
        super().__init__(module)
        self._users = users

    def visit_var_binding_(self, binding: Any) -> None:
        call, users = binding.value, self._users[binding.var]
        product = operator_of(call) == "relax.multiply" and str(call.ty.dtype) == "float32"
        if not product or users <= APART:
            super().visit_var_binding_(binding)
            return
        emitted = self.builder_.emit(self.visit_expr(call))
        fenced = self.builder_.call_te(
            rounded,
            emitted,
            primfunc_name_hint="rounded",
            primfunc_attrs={"op_pattern": ELEMENTWISE},
        )
        rebind(self, binding, fenced)


def rounded(data: te.Tensor) -> te.Tensor:
    """The elements, each rounded to float32 where it was computed."""
    return te.compute(data.shape, lambda *at: fence(data(*at)), name="rounded")


def fence(value: Any) -> Any:
    """A float32 as it was computed, which nothing around it is made one with."""
    return tvm.tirx.call_llvm_pure_intrin("float32", "llvm.arithmetic.fence", value)
