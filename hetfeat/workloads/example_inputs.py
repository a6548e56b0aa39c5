"""Example inputs that exercise a network, made here for all that runs or compares one.

What integers an input may hold is asked of the framework that the network comes from, which
refuses an index beyond its table, wherever the table is and however the index gets there.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetfeat.workloads.network import Array, Network

TRIED_BITS = (1, 2, 4, 8, 16, 20)
"""Numbers of bits to try; an input that takes integers of the most is no index: few tables have a
million rows."""
NARROW_BITS = 16
"""Most bits of integers that, where they are no indices, are pixels or sound, of all values."""


@dataclass(frozen=True)
class Values:
    """What one input may hold.

    Attributes:
        low: Least integer, default 0.
        high: One more than the largest integer; default None for numbers of a normal distribution.
        mask: Whether it holds ones, with zeros at the end of rows in all draws but the first;
            default False.
    """

    low: int = 0
    high: int | None = None
    mask: bool = False

    def __str__(self) -> str:
        """As a manifest says it."""
        if self.mask:
            return "ones, with zeros at the end of rows"
        return "normal" if self.high is None else f"{self.low} to {self.high - 1}"


NORMAL, MASK = Values(), Values(0, 2, mask=True)


def exercised(network: Network, seed: int) -> Network:
    """A network of a file with its integers and masks drawn, which were placeholders.

    One that its framework does not run stays as it is: importing it tells why.
    """
    if all(_is_normal(name, value) for name, value in named_inputs(network)):
        return network
    if (values := values_of(network)) is None:
        return network
    made = _drawn(network.arrays(), values, seed, whole=True)
    inputs = [
        old if of == NORMAL else new
        for old, new, of in zip(network.inputs, made, values, strict=True)
    ]
    return dataclasses.replace(network, inputs=tuple(inputs))


def draws(
    network: Network, values: Sequence[Values], seed: int, count: int
) -> Iterator[list[Array]]:
    """The network's own inputs, then as many random ones of `values_of`."""
    yield network.arrays()
    for number in range(count):
        yield _drawn(network.arrays(), values, seed + 1 + number, whole=False)


def values_of(network: Network) -> list[Values] | None:
    """What each input may hold; None where the framework runs the network on no inputs."""
    base = network.arrays()
    if (shapes := _shapes(network, base)) is None:
        base = [v if np.issubdtype(v.dtype, np.floating) else np.zeros_like(v) for v in base]
        if (shapes := _shapes(network, base)) is None:
            return None

    def takes(integers: Mapping[int, int]) -> bool:
        """Whether the network runs, to outputs of the same shapes, on such integers."""
        tried = [
            np.full_like(value, integers[place]) if place in integers else value
            for place, value in enumerate(base)
        ]
        return _shapes(network, tried) == shapes

    values, below = [], {}
    for place, (name, value) in enumerate(named_inputs(network)):
        if _is_normal(name, value):
            values.append(NORMAL)
        elif _is_mask(name, value):
            values.append(MASK)
        elif bound := _bound(lambda most, at=place: takes({at: most}), _bits(value)):  # type: ignore[misc]
            below[place] = bound
            values.append(Values(0, bound))
        elif "position" in name.lower():
            values.append(Values(0, _longest_row(network)))
        else:
            values.append(_unbounded(value))
    # Indices that are added before they are looked up may be too large together.
    while max(below.values(), default=1) > 1 and not takes({p: n - 1 for p, n in below.items()}):
        below = {place: max(1, bound // 2) for place, bound in below.items()}
    return [Values(0, below[p]) if p in below else of for p, of in enumerate(values)]


def computed(network: Network, inputs: Sequence[Array]) -> list[Array]:
    """The outputs that the framework computes."""
    if network.kind != "torch":
        return list(network.module(*inputs))
    import torch

    from hetfeat.workloads.torch_outputs import flat

    with torch.inference_mode():
        outputs = network.module(*map(torch.from_numpy, inputs))
        return [output.numpy() for output in flat(outputs)]


def _shapes(network: Network, inputs: Sequence[Array]) -> list[Any] | None:
    """Shapes of all outputs; None where the framework refuses the inputs."""
    try:
        return [output.shape for output in computed(network, inputs)]
    except Exception:  # the framework's own
        return None


def _bound(takes: Callable[[int], bool], bits: int) -> int | None:
    """The largest power of two below which integers are taken; None if larger ones are, too.

    Larger ones are tried after smaller ones: they may be sizes, and memory runs out.
    """
    taken = 0
    for tried in (*(n for n in TRIED_BITS if n < bits), min(bits, TRIED_BITS[-1])):
        if takes(2**tried - 1):
            taken = tried
            continue
        refused = tried
        while refused - taken > 1:
            middle = (taken + refused) // 2
            taken, refused = (middle, refused) if takes(2**middle - 1) else (taken, middle)
        return int(2**taken)
    return None


def _bits(value: Array) -> int:
    """Of the largest integer of a type."""
    return int(np.iinfo(value.dtype).max).bit_length()


def _unbounded(value: Array) -> Values:
    """For integers that are no indices: all of a narrow type, those of an example, or a mask."""
    of_type = np.iinfo(value.dtype)
    if of_type.bits <= NARROW_BITS:
        return Values(of_type.min, of_type.max + 1)
    low, high = (int(value.min()), int(value.max())) if value.size else (0, 0)
    return Values(low, high + 1) if low < high and (low, high) != (0, 1) else MASK


def _longest_row(network: Network) -> int:
    """Of the masks, or of the integers where there are none: positions in it are below that."""
    integers = [(n, value) for n, value in named_inputs(network) if not _is_normal(n, value)]
    masks = [value for n, value in integers if _is_mask(n, value)]
    rows = masks or [value for _, value in integers]
    return max([2, *(int(value.shape[-1]) for value in rows if value.ndim)])


def _drawn(
    inputs: Sequence[Array], values: Sequence[Values], seed: int, whole: bool
) -> list[Array]:
    """Random inputs; `whole` masks are ones throughout."""
    rng = np.random.default_rng(seed)
    made: list[Array] = []
    for like, of in zip(inputs, values, strict=True):
        if of.mask and whole:
            made.append(np.ones_like(like))
        elif of.mask:
            made.append(_cut_short(like, rng))
        elif of.high is None:
            made.append(np.asarray(rng.standard_normal(like.shape), like.dtype))
        else:
            made.append(rng.integers(of.low, of.high, like.shape, like.dtype))
    return made


def _cut_short(like: Array, rng: np.random.Generator) -> Array:
    """Rows of a one or more, then zeros; a row of one element is either."""
    length = like.shape[-1] if like.ndim else 1
    rows = (*like.shape[:-1], 1) if like.ndim else ()
    least, most = (0, 2) if length == 1 else (1, length)
    ones = rng.integers(least, most, rows)
    places = np.arange(length).reshape(length if like.ndim else ())
    return np.asarray(places < ones, like.dtype)


def _is_normal(name: str, value: Array) -> bool:
    return np.issubdtype(value.dtype, np.floating) and not _is_mask(name, value)


def _is_mask(name: str, value: Array) -> bool:
    return value.dtype == bool or "mask" in name.lower()


def named_inputs(network: Network) -> Iterator[tuple[str, Array]]:
    """The inputs and what they are called, nothing where that is not known."""
    names: Sequence[str] = ()
    if network.onnx is not None:
        graph = network.onnx.graph
        weights = {value.name for value in graph.initializer}
        names = [value.name for value in graph.input if value.name not in weights]
    elif network.kind == "torch":
        names = list(inspect.signature(network.module.forward).parameters)
    names = [*names, *[""] * len(network.inputs)]
    yield from zip(names, network.arrays(), strict=False)
