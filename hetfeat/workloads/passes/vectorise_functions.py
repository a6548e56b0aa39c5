"""Activations as arithmetic and `exp` or `erf`, of which TOPI has polynomials.

LLVM calls the C library's `erf` and `exp` for one value after another. As a chain of single steps
an activation also becomes part of the kernel before it, which TVM's own lowering of it does not.
"""

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from hetfeat.workloads.passes.exact_kernels import spell_exactly
from hetfeat.workloads.passes.integers import stores_integers
from hetfeat.workloads.passes.simplify import operator_of, rewritten


def vectorise_functions(module: tvm.IRModule) -> tvm.IRModule:
    """Replaces gelu, sigmoid, silu, softmax, exp, erf and tanh of a module in its final layout.

    Those of a quantised network are computed alike on every CPU.
    """
    if tvm.target.Target.current().kind.name == "llvm" and stores_integers(module):
        return spell_exactly(module)
    spelt_out = rewritten(module, _Speller(module))
    return relax.transform.FastMathTransform()(spelt_out)


@mutator
class _Speller(PyExprMutator):  # type: ignore[misc]
    """Keyed on the operator of a call; other types than float32 are left as they are."""

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        spell = SPELT.get(operator_of(call))
        return spell(call.args[0]) if spell and str(call.ty.dtype) == "float32" else call


def _gelu(x: Any) -> Any:
    half = _number(0.5)
    share = relax.op.erf(relax.op.multiply(x, _number(math.sqrt(0.5))))
    return relax.op.multiply(x, relax.op.add(half, relax.op.multiply(share, half)))


def _sigmoid(x: Any) -> Any:
    grown = relax.op.exp(relax.op.multiply(x, _number(-1.0)))
    return relax.op.divide(_number(1.0), relax.op.add(grown, _number(1.0)))


def _silu(x: Any) -> Any:
    return relax.op.multiply(x, _sigmoid(x))


SPELT = {"relax.nn.gelu": _gelu, "relax.sigmoid": _sigmoid, "relax.nn.silu": _silu}


def _number(value: float) -> Any:
    return relax.const(np.float32(value))
