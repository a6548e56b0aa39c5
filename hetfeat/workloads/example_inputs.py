"""Example inputs that exercise a network, made here for all that runs or compares one.

What integers an input may hold is asked of the framework that the network comes from, which
refuses an index beyond its table, wherever the table is and however the index gets there.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetfeat.workloads.network import Network

if TYPE_CHECKING:
    import torch

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
    made = _drawn(network.inputs, values, seed, whole=True)
    inputs = [
        old if of == NORMAL else new
        for old, new, of in zip(network.inputs, made, values, strict=True)
    ]
    return dataclasses.replace(network, inputs=tuple(inputs))


def draws(
    network: Network, values: Sequence[Values], seed: int, count: int
) -> Iterator[list["torch.Tensor"]]:
    """The network's own inputs, then as many random ones of `values_of`."""
    yield list(network.inputs)
    for number in range(count):
        yield _drawn(network.inputs, values, seed + 1 + number, whole=False)


def values_of(network: Network) -> list[Values] | None:
    """What each input may hold; None where the framework runs the network on no inputs."""
    import torch

    base = list(network.inputs)
    if (shapes := _shapes(network, base)) is None:
        base = [v if v.is_floating_point() else torch.zeros_like(v) for v in base]
        if (shapes := _shapes(network, base)) is None:
            return None

    def takes(integers: Mapping[int, int]) -> bool:
        """Whether the network runs, to outputs of the same shapes, on such integers."""
        tried = [
            torch.full_like(value, integers[place]) if place in integers else value
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


def computed(network: Network, inputs: Sequence["torch.Tensor"]) -> list[Any]:
    """The outputs that the framework computes, numpy arrays."""
    return [output.numpy() for output in _outputs(network, inputs)]


def _outputs(network: Network, inputs: Sequence["torch.Tensor"]) -> Iterator["torch.Tensor"]:
    import torch

    from hetfeat.workloads.outputs import flat

    with torch.inference_mode():
        return flat(network.module(*inputs))


def _shapes(network: Network, inputs: Sequence["torch.Tensor"]) -> list[Any] | None:
    """Shapes of all outputs; None where the framework refuses the inputs."""
    try:
        return [output.shape for output in _outputs(network, inputs)]
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


def _bits(value: "torch.Tensor") -> int:
    """Of the largest integer of a type."""
    import torch

    return int(torch.iinfo(value.dtype).max).bit_length()


def _unbounded(value: "torch.Tensor") -> Values:
    """For integers that are no indices: all of a narrow type, those of an example, or a mask."""
    import torch

    of_type = torch.iinfo(value.dtype)
    if of_type.bits <= NARROW_BITS:
        return Values(of_type.min, of_type.max + 1)
    low, high = (int(value.min()), int(value.max())) if value.numel() else (0, 0)
    return Values(low, high + 1) if low < high and (low, high) != (0, 1) else MASK


def _longest_row(network: Network) -> int:
    """Of the masks, or of the integers where there are none: positions in it are below that."""
    integers = [(n, value) for n, value in named_inputs(network) if not _is_normal(n, value)]
    masks = [value for n, value in integers if _is_mask(n, value)]
    rows = masks or [value for _, value in integers]
    return max([2, *(value.shape[-1] for value in rows if value.ndim)])


def _drawn(
    inputs: Sequence["torch.Tensor"], values: Sequence[Values], seed: int, whole: bool
) -> list["torch.Tensor"]:
    """Random inputs; `whole` masks are ones throughout."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    made = []
    for like, of in zip(inputs, values, strict=True):
        if of.mask and whole:
            made.append(torch.ones_like(like))
        elif of.mask:
            made.append(_cut_short(like, generator))
        elif of.high is None:
            made.append(torch.randn(like.shape, generator=generator, dtype=like.dtype))
        else:
            drawn = torch.randint(of.low, of.high, like.shape, generator=generator)
            made.append(drawn.to(like.dtype))
    return made


def _cut_short(like: "torch.Tensor", generator: Any) -> "torch.Tensor":
    """Rows of a one or more, then zeros; a row of one element is either."""
    import torch

    length = like.shape[-1] if like.ndim else 1
    rows = (*like.shape[:-1], 1) if like.ndim else ()
    least, most = (0, 2) if length == 1 else (1, length)
    ones = torch.randint(least, most, rows, generator=generator)
    return (torch.arange(length).reshape(length if like.ndim else ()) < ones).to(like.dtype)


def _is_normal(name: str, value: "torch.Tensor") -> bool:
    return value.is_floating_point() and not _is_mask(name, value)


def _is_mask(name: str, value: "torch.Tensor") -> bool:
    return str(value.dtype) == "torch.bool" or "mask" in name.lower()


def named_inputs(network: Network) -> Iterator[tuple[str, "torch.Tensor"]]:
    """The inputs and what they are called, nothing where that is not known."""
    names: Sequence[str] = ()
    if network.onnx is not None:
        graph = network.onnx.graph
        weights = {value.name for value in graph.initializer}
        names = [value.name for value in graph.input if value.name not in weights]
    elif network.kind == "torch":
        names = list(inspect.signature(network.module.forward).parameters)
    names = [*names, *[""] * len(network.inputs)]
    yield from zip(names, network.inputs, strict=False)
