"""A quantised network computed by numpy in exact integers: what every CPU must give, bit for bit.

It reads a network as it was imported, before anything is rewritten. A dequantised tensor stays
integers and a scale for as long as it can. A product of two such tensors is summed in integers and
rounded once, when it is quantised again. What is computed in float32 is computed element by
element, each step rounded for itself.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hetfeat.workloads import integer_rules as rules
from hetfeat.workloads.integer_operators import BOUNDS, MOVES, OPERATORS, quantize_anew
from hetfeat.workloads.integer_tensors import Array, InexactError, Scaled, as_real


def run_integers(module: Any, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a quantised network for numpy arrays.

    Args:
        module: Module from `workloads.relax.import_network`.
        inputs: Inputs in the order of its parameters.

    Raises:
        InexactError: It has an operator whose result in float32 is not of one kind only.
    """
    main = module["main"]
    evaluator = Evaluator(dict(zip(main.params, inputs, strict=True)))
    for block in main.body.blocks:
        for binding in block.bindings:
            evaluator.bind(binding.var, binding.value)
    result = evaluator.value(main.body.body)
    parts = result if isinstance(result, tuple) else (result,)
    return [as_real(part) for part in parts]


class Evaluator:
    """What variables are bound to, and which of them are constants.

    Args:
        inputs: Values of a function's parameters.
    """

    def __init__(self, inputs: dict[Any, Any]) -> None:
        self._values = inputs
        self._varying = set(inputs)

    def bind(self, variable: Any, expression: Any) -> None:
        """Evaluates an expression and keeps the value as that of a variable."""
        value = self.value(expression)
        if not self.is_constant(expression):
            self.vary(variable)
        elif isinstance(value, Scaled):
            value = replace(value, constant=True)
        self._values[variable] = value

    def vary(self, variable: Any) -> None:
        """Says that a variable is no constant."""
        self._varying.add(variable)

    def is_constant(self, expression: Any) -> bool:
        """Whether an expression has one value, whatever the inputs are."""
        from tvm.relax.analysis import free_vars

        return not any(variable in self._varying for variable in free_vars(expression))

    def value(self, expression: Any) -> Any:
        """The value of an expression: an array, a `Scaled`, a number, or a tuple of such."""
        from tvm import relax

        if isinstance(expression, relax.Var):
            return self._values[expression]
        if isinstance(expression, relax.Tuple):
            return tuple(map(self.value, expression.fields))
        if isinstance(expression, relax.TupleGetItem):
            return self.value(expression.tuple_value)[int(expression.index)]
        if isinstance(expression, relax.ShapeExpr):
            return [int(extent) for extent in expression.values]
        if isinstance(expression, relax.Call):
            return self._call(expression)
        value = expression.value
        return value.numpy() if hasattr(value, "numpy") else value

    def _call(self, call: Any) -> Any:
        name, arguments = operation(call)
        if name not in OPERATORS:
            raise InexactError(name or "a function")
        values = [self.value(argument) for argument in arguments]
        fixed = [self.is_constant(argument) for argument in arguments]
        if name == "dequantize" and not all(fixed[1:]):
            raise InexactError(name)
        if name == "quantize" and not all(fixed[1:]):
            return quantize_anew(call, *values)
        if name == "add":
            for at in (0, 1):
                if fixed[1 - at] and (sums := _biased(values[at], values[1 - at])) is not None:
                    return sums
        if (name in MOVES and _varies_along(values[0])) or (name in BOUNDS and not any(fixed)):
            values = [as_real(value) for value in values]
        result = OPERATORS[name](call, *values)
        if name == "dequantize" and not fixed[0] and _varies_along(result):
            return result.real()
        return result


def operation(call: Any) -> tuple[str, list[Any]]:
    """The operator of a call, by Relax's name without its first part, and its arguments.

    ONNX's Clip is imported as functions, which TVM names after what they compute.
    """
    name = str(getattr(call.op, "name", "")).removeprefix("relax.")
    if name == "call_tir":
        function = str(call.args[0].name_hint).rstrip("0123456789")
        fields = list(getattr(call.args[1], "fields", ()))
        if function in BOUNDS and len(fields) == 2:
            return function, fields
    return name, list(call.args)


def _varies_along(value: Any) -> bool:
    """Whether a tensor that is no constant has several scales."""
    return isinstance(value, Scaled) and not value.constant and value.scale.size > 1


def _biased(value: Any, bias: Any) -> Scaled | None:
    """A sum of products with a constant in it, where that is one of integers."""
    if not isinstance(value, Scaled) or not value.product or value.is_cut:
        return None
    if isinstance(bias, Scaled):
        bias = bias.integers * bias.scale
    shape = np.shape(value.integers)
    if np.broadcast_shapes(np.shape(bias), shape) != shape:
        return None
    steps = rules.bias_steps(np.asarray(bias, np.float64), value.scale)
    limit = value.limit + np.abs(steps).max(initial=0)
    if not rules.fits_int32(limit):
        return None
    integers = value.integers + steps.astype(np.int64)
    return replace(value, integers=integers, limit=int(limit))
