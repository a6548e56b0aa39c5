"""Quantised tensors between two kernels' work, with fewer instructions and the same bits.

`quantize` divides by a scale, rounds, adds a zero point and takes 8 bits; `dequantize` undoes all
but the rounding. Within one kernel the rounding is all that is left of both. Dividing becomes two
products where that gives every quotient, and rounding the sum with a number so large that a
float32 beside it has no fraction.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, topi
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target.codegen import target_has_features

from hetfeat.workloads import integer_rules as rules
from hetfeat.workloads.passes import BROADCAST
from hetfeat.workloads.passes.integers import bindings
from hetfeat.workloads.passes.keep_roundings import fence
from hetfeat.workloads.passes.simplify import constants, operator_of, rebind, rewritten
from hetfeat.workloads.passes.widen_integers import WIDE

MANTISSA = 24
"""Bits of a float32's fraction."""
NO_FRACTION = 1.5 * 2.0 ** (MANTISSA - 1)
"""The sum with it rounds a number of up to 2^22, halves to even."""
BITS = int(np.float32(NO_FRACTION).view(np.int32))
STORED = {*rules.QUANTISED, WIDE}
"""Types of quantised tensors."""
PRODUCTS = {"relax.nn.conv2d", "relax.matmul"}
BOUNDED = {"relax.maximum", "relax.minimum", "relax.round"}


def quicken_steps(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrites quantising and dequantising in a network that has quantised tensors.

    Args:
        module: Module in its final layout, for a target of LLVM.
    """
    target = tvm.target.Target.current()
    types = {str(getattr(one.var.ty, "dtype", "")) for one in bindings(module)}
    if target.kind.name != "llvm" or types.isdisjoint(STORED):
        return module
    made = rewritten(module, _Quickener(module, _has_fma(target)))
    return relax.transform.DeadCodeElimination()(made)


def _has_fma(target: tvm.target.Target) -> bool:
    is_arm = str(target.attrs.get("mtriple", "")).startswith("aarch64")
    return is_arm or bool(target_has_features("fma", target))


class _Bindings:
    """Who makes and who reads each variable.

    Args:
        module: Module whose bindings are asked for.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        self._made: dict[Any, tuple[int, Any]] = {}
        self._readers: dict[Any, list[tuple[Any, Any]]] = {}
        for place, binding in enumerate(bindings(module)):
            self._made[binding.var] = place, binding.value
            self._add_reader(binding)
        for _, function in module.functions_items():
            if isinstance(function, relax.Function):
                self._readers.setdefault(function.body.body, []).append((None, None))

    def _add_reader(self, binding: Any) -> None:
        def visit(value: Any) -> None:
            if isinstance(value, relax.Var):
                self._readers.setdefault(value, []).append((binding.var, binding.value))

        relax.analysis.post_order_visit(binding.value, visit)

    def call(self, value: Any, name: str) -> Any:
        """The call to an operator that makes a variable, or None."""
        made = self._made[value][1] if value in self._made else None
        return made if operator_of(made) == name else None

    def readers(self, value: Any) -> list[tuple[Any, Any]]:
        """Variables and calls that a variable is an argument of; of both None for a return."""
        return self._readers.get(value, [])

    def product(self, value: Any) -> int | None:
        """The place of the product that a variable is made of, element by element, if any."""
        while value in self._made:
            place, call = self._made[value]
            if operator_of(call) in PRODUCTS:
                return place
            if not isinstance(call, relax.Call) or len(_variables(call)) != 1:
                return None
            (value,) = _variables(call)
        return None

    def is_given(self, value: Any) -> bool:
        """Whether a variable is an input of float32, or made of one by operators with constants."""
        while value in self._made and str(getattr(value.ty, "dtype", "")) == "float32":
            found = _variables(self._made[value][1])
            if len(found) != 1:
                return False
            (value,) = found
        return value not in self._made

    def other_term(self, value: Any) -> Any:
        """What a variable is joined with at last, after operators of one argument; or None."""
        while len(self.readers(value)) == 1:
            ((made, call),) = self.readers(value)
            found = _variables(call)
            if len(found) == 2:
                return next((one for one in found if not one.same_as(value)), None)
            if len(found) != 1 or operator_of(call) in PRODUCTS:
                return None
            value = made
        return None


def _variables(call: Any) -> list[Any]:
    """Variables among the arguments of a call, of a kernel or of an operator."""
    found: list[Any] = []
    for argument in getattr(call, "args", ()):
        found += argument.fields if isinstance(argument, relax.Tuple) else [argument]
    return [one for one in found if isinstance(one, relax.Var)]


@mutator
class _Quickener(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, has_fma: bool) -> None:
        super().__init__(module)
        self._graph, self._has_fma = _Bindings(module), has_fma

    def visit_var_binding_(self, binding: Any) -> None:
        made = self._quick(binding)
        if made is None:
            super().visit_var_binding_(binding)
            return
        rebind(self, binding, made)

    def _quick(self, binding: Any) -> Any:
        """What computes the same as a call, or None."""
        call, name = binding.value, operator_of(binding.value)
        if name == "relax.divide":
            return self._quotient(binding)
        if name == "relax.astype" and str(call.ty.dtype) == "int32":
            steps = self._rounded(call.args[0])
            return None if steps is None else self._elementwise(whole_number, steps)
        is_float = name and str(call.ty.dtype) == "float32"
        if name == "relax.astype" and is_float:
            return self._dequantized(call.args[0], None)
        if name == "relax.add" and is_float:
            inner = self._graph.call(call.args[0], "relax.astype")
            return None if inner is None else self._dequantized(inner.args[0], call.args[1])
        return None

    def _elementwise(self, compute: Any, *values: Any) -> Any:
        values = tuple(self.visit_expr(value) for value in values)
        return self.builder_.call_te(compute, *values, primfunc_name_hint=compute.__name__)

    def _quotient(self, binding: Any) -> Any:
        """By two products, of what is finite, and is then rounded: tiny quotients may differ."""
        value, scale = binding.value.args
        readers = {operator_of(call) for _, call in self._graph.readers(binding.var)}
        if not self._has_fma or not constants(scale) or not readers <= BOUNDED:
            return None
        if self._graph.is_given(value):  # infinity would become no number
            return None
        numbers = scale.value.numpy()
        parts = [reciprocal(number) for number in numbers.reshape(-1)]
        if any(part is None for part in parts):
            return None
        high, low = (
            relax.const(np.asarray(part, np.float32).reshape(numbers.shape))
            for part in zip(*(part for part in parts if part), strict=True)
        )
        return self._elementwise(divided, value, high, low)

    def _rounded(self, value: Any) -> Any:
        """The steps within bounds that a variable is the rounding of, or None."""
        call = self._graph.call(value, "relax.round")
        if call is None or len(self._graph.readers(value)) != 1:
            return None
        (steps,) = call.args
        return None if self._graph.call(steps, "relax.minimum") is None else steps

    def _dequantized(self, value: Any, offset: Any) -> Any:
        """A tensor of 8 bits in float32, its offset added, as its kernel or another's has it."""
        dtype = str(getattr(value.ty, "dtype", ""))
        if dtype not in STORED or len(self._graph.readers(value)) != 1:
            return None
        narrow = self._graph.call(value, "relax.astype")
        if narrow is None:
            return None
        whole, zero = narrow.args[0], None
        if (added := self._graph.call(whole, "relax.add")) is not None:
            whole, zero = added.args
        rounded = self._graph.call(whole, "relax.astype")
        steps = None if rounded is None else self._rounded(rounded.args[0])
        if steps is None:
            return None
        if self._is_joined_later(value):
            if offset is not None:
                return None
            cast = self.visit_expr(value)
            return self.builder_.call_te(
                topi.cast,
                cast,
                "float32",
                primfunc_name_hint="handed_on",
                primfunc_attrs={"op_pattern": BROADCAST},
            )
        return self._elementwise(whole_steps, steps) if _cancel(zero, offset) else None

    def _is_joined_later(self, value: Any) -> bool:
        """Whether a tensor of 8 bits is added to another product, whose kernel adds them."""
        other, own = self._graph.other_term(value), self._graph.product(value)
        beside = None if other is None else self._graph.product(other)
        return own is not None and beside is not None and beside < own


def _cancel(zero: Any, offset: Any) -> bool:
    """Whether a zero point and what is added after it are each other's negatives, or neither is."""
    if zero is None or offset is None:
        return zero is None and offset is None
    if not constants(zero, offset):
        return False
    return bool(np.array_equal(zero.value.numpy().astype(np.float32), -offset.value.numpy()))


def whole_number(data: te.Tensor) -> te.Tensor:
    """The integers that elements of up to 2^22 are rounded to."""
    large, bits = te.const(NO_FRACTION, "float32"), te.const(BITS, "int32")
    return te.compute(
        data.shape,
        lambda *at: tvm.tirx.reinterpret("int32", data(*at) + large) - bits,
        name="whole_number",
    )


def whole_steps(data: te.Tensor) -> te.Tensor:
    """Elements of up to 2^22 rounded, none of them -0."""
    large = te.const(NO_FRACTION, "float32")
    return te.compute(data.shape, lambda *at: fence(data(*at) + large) - large, name="whole_steps")


def divided(data: te.Tensor, high: te.Tensor, low: te.Tensor) -> te.Tensor:
    """Elements over a number of whose reciprocal both parts are given."""

    def quotient(*at: Any) -> Any:
        place = [at[n] if int(extent) > 1 else 0 for n, extent in enumerate(high.shape)]
        first = data(*at) * low(*place)
        return tvm.tirx.call_llvm_pure_intrin("float32", "llvm.fma", data(*at), high(*place), first)

    return te.compute(data.shape, quotient, name="divided")


def reciprocal(number: np.float32) -> tuple[np.float32, np.float32] | None:
    """Two float32 whose products with any float32 `x` give `x / number`, correctly rounded.

    The quotient is `fma(x, high, x * low)`. It is tried for each `x` of which `x / number` lies so
    near to the middle between two float32 that it may be rounded to the wrong one; there are few.
    (N. Brisebarre, J.-M. Muller, S. K. Raina, Accelerating correctly rounded floating-point
    division when the divisor is known in advance, 2004.)

    Args:
        number: What is divided by, finite and above 0.

    Returns:
        Both parts, or None where some quotient would be wrong.
    """
    exact = Fraction(float(number))
    high = _nearest(1 / exact)
    low = np.float32(float(_nearest(1 / exact - high)))
    hard = [(x, _nearest(x / exact)) for x in _near_middles(exact)]
    for near in (low, np.nextafter(low, np.float32(1)), np.nextafter(low, np.float32(-1))):
        part = Fraction(float(near))
        if all(_nearest(x * high + _nearest(x * part)) == quotient for x, quotient in hard):
            return np.float32(float(high)), near
    return None


def _near_middles(number: Fraction, most: int = 8) -> Iterator[Fraction]:
    """Whole float32 of 24 bits whose quotient is next to the middle of two float32.

    `2^k x = middle * mantissa + rest` with a rest of up to `most`, which two roundings in the 48th
    bit need at least to be wrong.
    """
    mantissa, _ = _scaled(number)
    odd = mantissa & -mantissa
    divisor = mantissa // odd
    if divisor == 1:
        return
    for rest in range(-most, most + 1):
        if rest == 0 or rest % odd:
            continue
        for power in (MANTISSA, MANTISSA + 1):
            inverse = pow(1 << power, -1, divisor)
            first = rest * inverse % divisor
            start = first + -((first - (1 << (MANTISSA - 1))) // divisor) * divisor
            for x in range(start, 1 << MANTISSA, divisor):
                yield Fraction(x)


def _scaled(number: Fraction) -> tuple[int, int]:
    """A float32 as a whole number of 24 bits and the power of two that it is multiplied by."""
    power = number.numerator.bit_length() - number.denominator.bit_length() - MANTISSA
    while abs(number) >= Fraction(2) ** (power + MANTISSA):
        power += 1
    return int(number / Fraction(2) ** power), power


def _nearest(number: Fraction) -> Fraction:
    """The float32 nearest to a number, of two the even one; of any exponent."""
    if number == 0:
        return number
    _, power = _scaled(number)
    return round(number / Fraction(2) ** power) * Fraction(2) ** power
