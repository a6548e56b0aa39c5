"""The steps of a trace, or of all traces of a group at once: what was sampled is filled in.

A number of a group is an array with one of each program, or one number for all.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

_POSTPROC = "EnterPostproc"
_LOOKUPS = {
    *("GetBlock", "GetSBlock", "GetLoops", "GetChildBlocks", "GetConsumers", "GetProducers"),
    *("GetOutputBlocks", "EnterPostproc"),
}
_TILES = {"SamplePerfectTile", "SamplePartitionedTile"}
ON_LOOPS = {"Bind", "Parallel", "Vectorize", "Unroll"}

Step = tuple[str, str, Sequence[Any]]
"""Primitive, word among its attributes if there is one, numbers, or one of each program."""


class ValuesOfOne(dict[str, Any]):
    """What variables stand for in one program of a group, as others are set beside them."""

    def __init__(self, values: Mapping[str, Any], position: int) -> None:
        super().__init__()
        self._values, self._position = values, position

    def get(self, name: Any, default: Any = None) -> Any:
        """See `dict.get`."""
        if name in self:
            return self[name]
        value = self._values.get(name, default)
        return float(value[self._position]) if isinstance(value, np.ndarray) else value


class Reading:
    """The instructions that change the program, with what was sampled filled in.

    Args:
        instructions: Instructions of a trace, or of a group of traces.
        chosen: What was sampled by number of the instruction: numbers, or arrays over the group.
        values: What was sampled, and the extents of loops that are known, by variable; none at
            first.
    """

    def __init__(
        self,
        instructions: list[Any],
        chosen: Mapping[int, Any],
        values: dict[str, Any] | None = None,
    ) -> None:
        self._left = enumerate(instructions)
        self._chosen = chosen
        self.values: dict[str, Any] = {} if values is None else values

    def before(self, until_postproc: bool = True) -> Iterator[Step]:
        """Steps up to the post-processing, or all that are left."""
        values, chosen = self.values, self._chosen
        for index, (kind, inputs, attributes, outputs) in self._left:
            if kind == _POSTPROC and until_postproc:
                return
            if kind in _LOOKUPS:
                continue
            if kind in _TILES:
                values.update(zip(outputs, map(_float, chosen.get(index, ())), strict=False))
            elif kind == "SampleCategorical":
                if index in chosen:
                    values[outputs[0]] = _picked(attributes[0], chosen[index])
            elif kind == "Split":
                factors = [_number(value, values) for value in inputs[1:]]
                factors = _inferred(values.get(inputs[0], 0.0), factors)
                values.update(zip(outputs, factors, strict=False))
                yield kind, "", factors
            elif kind == "Fuse":
                extent = math.prod(values.get(loop, 0.0) for loop in inputs)
                values[outputs[0]] = extent
                yield kind, "", [float(len(inputs)), extent]
            elif kind == "Reorder":
                places = {loop: place for place, loop in enumerate(sorted(inputs, key=_order))}
                yield kind, "", [float(places[loop]) for loop in inputs]
            elif kind in ON_LOOPS:
                yield kind, _word(attributes[:1]), [values.get(inputs[0], 0.0)]
            elif kind == "SampleComputeLocation":
                yield kind, "", [_float(chosen.get(index, -1))]
            else:
                about = inputs[1:] if kind == "Annotate" else inputs  # whatever it is put on
                yield (
                    kind,
                    _word(attributes),
                    [_number(x, values) for x in (*about, *attributes) if _counts(x)],
                )

    def after(self) -> Iterator[Step]:
        """Steps from the post-processing on."""
        return self.before(until_postproc=False)


def _float(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else float(value)


def _picked(candidates: list[Any], chosen: Any) -> Any:
    """The value that was sampled."""
    if isinstance(chosen, np.ndarray):
        return np.array(candidates, np.float64)[_whole(chosen)]
    return float(candidates[chosen])


def _whole(places: Any) -> Any:
    if (places % 1).any():
        raise TypeError("a place that is no whole number")
    return places.astype(np.int64)


def _inferred(extent: Any, factors: list[Any]) -> list[Any]:
    """Factors of a split, of which the first 0 is what the others leave of a known extent."""
    if not any(isinstance(value, np.ndarray) for value in (extent, *factors)):
        if extent and 0 in factors:
            known = math.prod(factor for factor in factors if factor)
            factors[factors.index(0)] = -(-extent // known)
        return factors
    all_of = np.broadcast_arrays(extent, *factors)
    extents, table = all_of[0], np.array(all_of[1:], np.float64)
    unknown = (table == 0).any(axis=0) & (extents != 0)
    if unknown.any():
        known = np.where(table == 0, 1, table).prod(axis=0)
        first = (table == 0).argmax(axis=0)[unknown]
        table[first, np.flatnonzero(unknown)] = -(-extents[unknown] // known[unknown])
    return list(table)


def _word(attributes: list[Any]) -> str:
    """The first text; empty where there is none."""
    for word in attributes:  # sooner than `next` of a generator, for each step
        if type(word) is str:
            return word
    return ""


def _number(value: Any, values: dict[str, float]) -> float:
    """A number or what a variable stands for; 0 where that is not known."""
    return values.get(value, 0.0) if type(value) is str else float(value)


def _counts(value: Any) -> bool:
    """Whether it is a number, a loop or what was sampled, and not a block or a word."""
    return type(value) in (int, float) or (
        type(value) is str and value[:1] in ("l", "v") and value[1:].isdecimal()
    )


def _order(loop: str) -> int:
    return int(loop[1:])
