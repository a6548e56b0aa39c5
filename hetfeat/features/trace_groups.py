"""Traces that differ in what was sampled alone, read once for all of them.

The programs of a sketch share their instructions up to the post-processing; texts tell, before
anything is parsed. What follows, and traces of another layout, are read one by one.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

_POSTPROC = ',["EnterPostproc"'
_PLAIN = (int, float)


@dataclass(frozen=True)
class TraceGroup:
    """Traces of the same instructions before post-processing.

    Attributes:
        rows: Positions of the traces, int64 [n].
        instructions: Instructions up to the post-processing.
        chosen: What was sampled at an instruction, by its number: an array over the traces, or for
            tiles a list of such.
        rest: Instructions from the post-processing on as JSON, of each trace; empty for none.
    """

    rows: npt.NDArray[np.int64]
    instructions: list[Any]
    chosen: dict[int, Any]
    rest: list[str]


def grouped(traces: Sequence[str], least: int = 4) -> tuple[list[TraceGroup], list[int]]:
    """Traces in groups, and the positions of those to be read one by one.

    Args:
        traces: Traces as JSON.
        least: Least traces of a group; 4 by default: fewer are read sooner one by one.
    """
    alike: defaultdict[str, list[int]] = defaultdict(list)
    parts: list[tuple[str, str]] = []
    alone: list[int] = []
    for row, trace in enumerate(traces):
        end = len(trace) - 3 if trace.endswith("[]]") else trace.rfind("[[")
        head, decisions = trace[1 : max(end - 1, 1)], trace[end:-1]
        if trace[:1] != "[" or trace[-1:] != "]" or trace[end - 1 : end] != ",":
            alone.append(row)
            parts.append(("", ""))
            continue
        cut = head.find(_POSTPROC)
        alike[head if cut < 0 else f"{head[:cut]}]"].append(row)
        parts.append((decisions, "" if cut < 0 else f"[{head[cut + 1 :]}"))
    groups: list[TraceGroup] = []
    for text, rows in alike.items():
        made = _groups(text, rows, parts) if len(rows) >= least else None
        if made is None:
            alone += rows
        else:
            groups += made
    return groups, alone


def _groups(text: str, rows: list[int], parts: list[tuple[str, str]]) -> list[TraceGroup] | None:
    """Groups of the same places of what was sampled; None for traces of another layout."""
    try:
        instructions = orjson.loads(text)
        decisions = orjson.loads(f"[{','.join(parts[row][0] for row in rows)}]")
        if type(instructions) is not list or len(decisions) != len(rows):
            return None
        places: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        for position, found in enumerate(decisions):
            places[tuple((i, len(v) if type(v) is list else -1) for i, v in found)].append(position)
    except (ValueError, TypeError):
        return None
    groups = []
    for shape, positions in places.items():
        if any(type(place) is not int for place, _ in shape):
            return None
        columns: dict[int, Any] = {}
        for k, (place, length) in enumerate(shape):
            values = [decisions[position][k][1] for position in positions]
            flat = values if length < 0 else [v for value in values for v in value]
            if any(type(v) not in _PLAIN for v in flat):
                return None
            if length < 0:
                columns[place] = np.array(values)
            else:
                columns[place] = list(np.array(values, np.float64).reshape(-1, length).T)
        own = np.array([rows[position] for position in positions], np.int64)
        rest = [parts[row][1] for row in own.tolist()]
        groups.append(TraceGroup(own, instructions, columns, rest))
    return groups
