"""Workload keys of the auto-scheduler as tasks: operator, shapes and FLOPs where they tell."""

import hashlib
import math
import re
from collections.abc import Callable
from typing import Any

import orjson

from hetfeat.records import Task

UNKNOWN = "unknown"
"""Operator of a task whose key is the hash of a computation; its FLOPs are given as 0."""

Shapes = tuple[tuple[int, ...], ...]
_Named = tuple[str, Shapes, float]
_LIMIT = 2**40


def task_of(key: str, dtype: str) -> Task:
    """The task of a workload key.

    Args:
        key: JSON of a list: a function's name or a computation's hash, then its arguments.
        dtype: Element type, used where the key does not name one.

    Raises:
        ValueError: The key is no such list.
    """
    try:
        found = orjson.loads(key)
    except orjson.JSONDecodeError as error:
        raise ValueError("a workload key that is not JSON") from error
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        raise ValueError("a workload key without a name")
    name, *arguments = found
    for argument in list(arguments):
        if isinstance(argument, str) and re.fullmatch(r"(float|u?int|bfloat)\d+", argument):
            dtype = argument
            arguments.remove(argument)
    operator, shapes, flops = _named(name, arguments) or (UNKNOWN, _shapes(arguments), 0.0)
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return Task(digest, operator, shapes, dtype, flops)


def _named(name: str, arguments: list[Any]) -> _Named | None:
    """Operator, shapes and FLOPs of a function that is known with these arguments."""
    if name not in _LAYERS or not all(0 <= n < _LIMIT for n in _numbers(arguments)):
        return None
    try:
        found = _LAYERS[name](*arguments)
    except (TypeError, ValueError, IndexError, ZeroDivisionError, KeyError):
        return None
    return found if all(n > 0 for shape in found[1] for n in shape) else None


def _shapes(arguments: list[Any]) -> Shapes:
    """Lists of numbers as they are; loose numbers, as old versions wrote them, as one shape."""
    lists = [tuple(_numbers([a])) for a in arguments if isinstance(a, list)]
    loose = tuple(a for a in arguments if type(a) is int)
    return (*lists, *([loose] if loose else []))


def _numbers(values: list[Any]) -> list[int]:
    flat: list[int] = []
    for value in values:
        if isinstance(value, list):
            flat += [v for v in value if type(v) is int]
        elif type(value) is int:
            flat.append(value)
    return flat


def _matmul(*extents: int) -> _Named:
    *batch, m, k, n = extents
    flops = 2.0 * math.prod(extents)
    return "matmul", ((*batch, m, k), (*batch, k, n), (*batch, m, n)), flops


def _conv2d(n: int, ci: int, h: int, w: int, co: int, *rest: Any) -> _Named:
    kh, kw, stride, pad = rest
    if isinstance(stride, list):  # TVM's tutorial: N, H, W, CO, CI, KH, KW, strides, paddings
        h, w, co, ci = ci, h, w, co
        stride, pad = stride[0], pad[0]
    out = (n, co, _out(h, kh, stride, pad), _out(w, kw, stride, pad))
    return "conv2d", ((n, ci, h, w), (co, ci, kh, kw), out), 2.0 * math.prod(out) * ci * kh * kw


def _depthwise(n: int, c: int, h: int, w: int, kh: int, kw: int, stride: int, pad: Any) -> _Named:
    out = (n, c, _out(h, kh, stride, pad), _out(w, kw, stride, pad))
    return "group_conv2d", ((n, c, h, w), (c, 1, kh, kw), out), 2.0 * math.prod(out) * kh * kw


def _pool(
    kind: str, n: int, c: int, h: int, w: int, kh: int, kw: int, stride: int, pad: Any
) -> _Named:
    out = (n, c, _out(h, kh, stride, pad), _out(w, kw, stride, pad))
    operator = {"max": "max_pool2d", "avg": "avg_pool2d"}[kind]
    return operator, ((n, c, h, w), out), float(math.prod(out) * kh * kw)


def _reduction(shape: list[int], axes: int | list[int], keep: bool) -> _Named:
    reduced = {axis % len(shape) for axis in ([axes] if isinstance(axes, int) else axes)}
    out = [1 if axis in reduced else n for axis, n in enumerate(shape)]
    kept = [n for axis, n in enumerate(out) if keep or axis not in reduced]
    return "reduction", (tuple(shape), tuple(kept)), float(math.prod(shape))


def _relu(*shape: int) -> _Named:
    return "elementwise", (shape, shape), float(math.prod(shape))


def _known_by_shapes(operator: str) -> Callable[..., _Named]:
    """A function whose key leaves strides and padding out, and with them the FLOPs."""
    return lambda *arguments: (operator, _shapes(list(arguments)), 0.0)


def _out(size: int, kernel: int, stride: int, pad: str | int) -> int:
    if pad == "SAME":
        return -(-size // stride)
    return (size + 2 * (0 if pad == "VALID" else int(pad)) - kernel) // stride + 1


_LAYERS: dict[str, Callable[..., _Named]] = {
    "matmul_layer": _matmul,
    "batch_matmul_layer": _matmul,
    "matmul": _matmul,
    "ansor_mm": _matmul,
    "matmul_add": _matmul,
    "conv2d_layer": _conv2d,
    "depthwise_conv2d_layer": _depthwise,
    "pool_layer": _pool,
    "reduction_layer": _reduction,
    "relu_layer": _relu,
    "ansor_relu": _relu,
    "conv2d_ansor": _known_by_shapes("conv2d"),
    "ansor_depthwise": _known_by_shapes("group_conv2d"),
    "ansor_pool2d": _known_by_shapes("avg_pool2d"),
}
