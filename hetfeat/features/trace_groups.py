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
_NO_NUMBERS = str.maketrans("", "", "0123456789-. ")
_NO_BRACKETS = str.maketrans("", "", "[] ")


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
    alike: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    parts: list[tuple[str, str]] = []
    for row, trace in enumerate(traces):
        end = len(trace) - 3 if trace.endswith("[]]") else trace.rfind("[[")
        head, decisions, rest = trace[1 : max(end - 1, 1)], trace[end:-1], ""
        if (cut := head.find(_POSTPROC)) >= 0:
            head, rest = f"{head[:cut]}]", f"[{head[cut + 1 :]}"
        is_plain = trace[:1] == "[" and trace[-1:] == "]" and trace[end - 1 : end] == ","
        alike[head if is_plain else "", decisions.translate(_NO_NUMBERS)].append(row)
        parts.append((decisions, rest))
    groups: list[TraceGroup] = []
    alone: list[int] = []
    for (text, _), rows in alike.items():
        made = _group(text, rows, parts) if len(rows) >= least and text else None
        if made is None:
            alone += rows
        else:
            groups.append(made)
    return groups, alone


def _group(text: str, rows: list[int], parts: list[tuple[str, str]]) -> TraceGroup | None:
    """A group of what was sampled at the same places; None for traces of another layout."""
    try:
        instructions, first = orjson.loads(text), orjson.loads(parts[rows[0]][0])
        chosen = _columns(first, [parts[row][0] for row in rows])
    except (ValueError, TypeError):
        return None
    if type(instructions) is not list or chosen is None:
        return None
    return TraceGroup(np.array(rows), instructions, chosen, [parts[row][1] for row in rows])


def _columns(first: list[Any], decisions: list[str]) -> dict[int, Any] | None:
    """What was sampled by place, of decisions that differ in their numbers alone."""
    if not first:
        return {}
    numbers = ",".join(decisions).translate(_NO_BRACKETS)
    table = np.array(orjson.loads(f"[{numbers}]"), np.float64).reshape(len(decisions), -1)
    if np.isnan(table).any():  # of null
        return None
    columns: dict[int, Any] = {}
    at = 0
    for place, value in first:
        is_list = type(value) is list
        end = at + 1 + (len(value) if is_list else 1)
        if type(place) is not int or not (table[:, at] == place).all():
            return None
        columns[place] = list(table[:, at + 1 : end].T) if is_list else table[:, at + 1]
        at = end
    return columns if at == table.shape[1] else None
