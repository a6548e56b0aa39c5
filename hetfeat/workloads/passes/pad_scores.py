"""Attention over a number of tokens that fills no vectors: 197, the tokens of a ViT.

Of 197 scores, a prime, neither the product that makes them nor their softmax is computed in whole
vectors. So the keys are padded to 208, what is added to the scores makes the further ones count for
nothing, and the product of the shares takes as many rows of the values, which are zeros.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes.exact_kernels import softmax
from hetfeat.workloads.passes.integers import bindings, stores_integers
from hetfeat.workloads.passes.simplify import operator_of, rebind, rewritten, static_shape

ELEMENTWISE = {
    f"relax.{name}"
    for name in ("add", "astype", "divide", "maximum", "minimum", "multiply", "round", "subtract")
}
"""Operators that may stand between a product and a softmax."""
RESHAPE = "relax.reshape"
MASKED = np.float32(-1e30)
"""What is added to a score that counts for nothing; finite, so that no NaN comes of it."""


def pad_scores(module: tvm.IRModule, spare: float = 0.1, lanes: int = 16) -> tvm.IRModule:
    """Pads the scores of each attention whose number of tokens fills no vectors.

    The other numbers stay what they were, to the bit: zeros are added to sums.

    Args:
        module: Module in its final layout, whose softmaxes are still operators.
        spare: Largest share of scores that may be added; 0.1 by default.
        lanes: Elements of a vector; 16 by default, whatever the target: its tasks are alike.
    """
    if tvm.target.Target.current().kind.name != "llvm":
        return module
    found: _Found = {}
    for attention in _attentions(module):
        tokens = attention.tokens
        padded = -(-tokens // lanes) * lanes
        if tokens < padded <= (1 + spare) * tokens:
            found |= dict.fromkeys(attention.chain, (attention, padded))
    return rewritten(module, _Padder(module, found, stores_integers(module))) if found else module


@dataclass(frozen=True)
class _Attention:
    """The variables from the scores to the product of their shares and the values, that included.

    Each but the last is read by the next one alone.
    """

    chain: tuple[Any, ...]
    tokens: int


_Found = dict[Any, tuple[_Attention, int]]
"""For each variable of a chain its attention, and the scores that a row is to have."""


def _attentions(module: tvm.IRModule) -> list[_Attention]:
    made = {binding.var: binding.value for binding in bindings(module)}
    users: dict[Any, list[Any]] = defaultdict(list)
    for variable, value in made.items():
        for read in relax.analysis.all_vars(value):
            users[read].append(variable)

    def is_passed_on(variable: Any) -> bool:
        """Whether one operator alone reads it, and it is no output of the network."""
        return isinstance(variable, relax.DataflowVar) and len(set(users[variable])) == 1

    def before(variable: Any) -> list[Any]:
        """The chain from a product to this variable, or none."""
        call = made.get(variable)
        if call is None or not is_passed_on(variable):
            return []
        if _is_product(call):
            return [variable]
        chain = before(call.args[0]) if _keeps_columns(call) else []
        return [*chain, variable] if chain else []

    def after(variable: Any) -> list[Any]:
        """The chain of what follows this variable to a product that it is the left factor of."""
        if not is_passed_on(variable):
            return []
        (user,) = set(users[variable])
        call = made[user]
        if not operator_of(call) or not call.args[0].same_as(variable):
            return []
        if _is_product(call):
            return [] if call.args[1].same_as(variable) else [user]
        chain = after(user) if _keeps_columns(call) else []
        return [user, *chain] if chain else []

    found = []
    for variable, call in made.items():
        shape = static_shape(variable)
        if operator_of(call) != "relax.nn.softmax" or not shape:
            continue
        if str(variable.ty.dtype) != "float32":
            continue
        if int(call.attrs.axis) % len(shape) != len(shape) - 1 or call.args[0] not in made:
            continue
        scores, shares = before(call.args[0]), after(variable)
        if scores and shares:
            found.append(_Attention((*scores, variable, *shares), shape[-1]))
    return found


def _is_product(call: Any) -> bool:
    """Whether it multiplies matrices."""
    return operator_of(call) == "relax.matmul" and all(
        len(static_shape(factor) or ()) >= 2 for factor in call.args
    )


def _keeps_columns(call: Any) -> bool:
    """Whether it computes with its first argument element by element, and others that are smaller.

    Not where it may divide by what a pad puts there. A reshape may change all but the columns.
    """
    if operator_of(call) not in ELEMENTWISE:
        return operator_of(call) == RESHAPE and _columns(call.args[0]) == _columns(call)
    first, *others = call.args
    scores = static_shape(first)
    smaller = all(static_shape(other) != scores for other in others)
    known = all(isinstance(other, tvm.ir.GenericConst) for other in others)
    keeps = scores is not None and static_shape(call) == scores and smaller
    return keeps and (known or operator_of(call) != "relax.divide")


def _columns(value: Any) -> int | None:
    shape = static_shape(value)
    return shape[-1] if shape else None


@mutator
class _Padder(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, found: _Found, exact: bool) -> None:
        super().__init__(module)
        self._found, self._exact = found, exact

    def visit_var_binding_(self, binding: Any) -> None:
        if binding.var not in self._found:
            super().visit_var_binding_(binding)
            return
        attention, padded = self._found[binding.var]
        call = binding.value
        arguments = [self.visit_expr(argument) for argument in call.args]
        is_first = binding.var.same_as(attention.chain[0])
        made = self._made(call, arguments, is_first, attention.tokens, padded)
        rebind(self, binding, made)

    def _made(
        self, call: Any, arguments: list[Any], is_first: bool, tokens: int, padded: int
    ) -> Any:
        name, more = operator_of(call), padded - tokens
        if name == "relax.matmul":
            left, right = arguments
            axis = len(static_shape(right) or ()) - (1 if is_first else 2)
            arguments = [left, self._longer(right, axis, more)]
        elif name == "relax.nn.softmax":
            (scores,) = arguments
            mask = np.where(np.arange(padded) < tokens, np.float32(0), MASKED)
            masked = self.builder_.emit(relax.op.add(scores, relax.const(mask)))
            if self._exact:
                return self.builder_.call_te(softmax, masked, -1, tokens)
            arguments = [masked]
        elif name == RESHAPE:
            *rows, _ = static_shape(call) or ()
            return relax.op.reshape(arguments[0], [*rows, padded])
        else:
            arguments = [self._alike(argument, tokens, more) for argument in arguments]
        return relax.Call(call.op, arguments, call.attrs, call.ty_args)

    def _alike(self, value: Any, tokens: int, more: int) -> Any:
        """What is computed with the scores, as long as they: of other arguments, such as scales."""
        shape = static_shape(value)
        return self._longer(value, len(shape) - 1, more) if shape and shape[-1] == tokens else value

    def _longer(self, value: Any, axis: int, more: int) -> Any:
        """With as many more zeros, or ones of a constant: it may be what is divided by."""
        width = [(0, more if at == axis else 0) for at in range(len(static_shape(value) or ()))]
        if isinstance(value, tvm.ir.GenericConst):
            return relax.const(np.pad(value.value.numpy(), width, constant_values=1))
        sides = [side for sides in width for side in sides]
        return self.builder_.emit(relax.op.nn.pad(value, sides))
