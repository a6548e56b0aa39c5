"""Schedule transfer: what was fast on one task, carried over to another.

A trace is a skeleton of instructions and the decisions taken in it. Two convolutions share the
decisions' meaning (how far each loop is tiled, at which level, how much is unrolled) even where
their extents differ, so the decisions of a fast program are a good start on a similar task
(Gibson and Cano 2022, "Transfer-Tuning", PACT).
"""

import heapq
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

import pyarrow.compute as pc

from hetfeat.dataset.schema import task_of
from hetfeat.dataset.store import RecordStore
from hetfeat.records import Program, Task
from hetfeat.schedules.trace import (
    LOCATION,
    TILE,
    Trace,
    dump,
    innermost_limit,
    parse_trace,
    without_postproc,
)
from hetfeat.search.base import Proposer, Shown

_COLUMNS = ["device", "task", "operator", "shapes", "dtype", "flops", "trace", "latencies_s"]


@dataclass(frozen=True)
class Donor:
    """A fast program of another task or device."""

    task: Task
    device: str
    trace: str
    latency_s: float


class ScheduleLibrary:
    """The fastest programs of each task on each device.

    Args:
        donors: Fast programs of other tasks or devices, to carry over.
        device: Name of the device to be tuned for, default empty; its own programs come first.
        neighbours: Number of nearest tasks whose pace tells what another is expected to take,
            default 4.
    """

    def __init__(self, donors: Iterable[Donor], device: str = "", *, neighbours: int = 4) -> None:
        self._device, self._neighbours = device, neighbours
        self._by_operator: dict[str, list[Donor]] = {}
        known: Counter[str] = Counter()
        for donor in donors:
            self._by_operator.setdefault(donor.task.operator, []).append(donor)
            known[donor.device] += 1
        self._paced_by = max(known, key=lambda name: (name == device, known[name]), default="")

    @classmethod
    def of(
        cls,
        store: RecordStore,
        device: str,
        withheld: Iterable[Task],
        *,
        kept_per_task: int = 4,
    ) -> "ScheduleLibrary":
        """The library of a store.

        Args:
            store: Record store in which the programs were measured.
            device: Name of the device to be tuned for.
            withheld: Tasks whose records on that very device, and those of tasks with the same
                anchor, are left out: the network's, if what is shown is to be transfer.
            kept_per_task: Number of traces kept of each task and device, the fastest; default 4.
        """
        held = {key for task in withheld for key in (task.hash, task.anchor)}
        fastest: dict[tuple[str, str], list[tuple[float, str]]] = {}
        tasks: dict[str, Task] = {}
        ran = pc.list_value_length(pc.field("latencies_s")) > 0
        for table in store.scan(_COLUMNS, where=ran):
            for row in table.to_pylist():
                if row["task"] not in tasks:
                    tasks[row["task"]] = task_of(row)
                task = tasks[row["task"]]
                if row["device"] == device and not held.isdisjoint((task.hash, task.anchor)):
                    continue
                best = fastest.setdefault((row["device"], row["task"]), [])
                heapq.heappush(best, (-min(row["latencies_s"]), row["trace"]))
                if len(best) > kept_per_task:
                    heapq.heappop(best)
        donors = (
            Donor(tasks[task], name, trace, -negative_s)
            for (name, task), best in fastest.items()
            for negative_s, trace in best
        )
        return cls(donors, device)

    def nearest(self, task: Task, count: int) -> list[Donor]:
        """Up to `count` donors: of the task itself, then of the tasks nearest in shape.

        Of a task, those that were fast on the device itself come before those of others, and a
        program that was fast on several comes once.
        """
        near = [
            (distance, donor.device != self._device, donor.latency_s, donor.trace, donor)
            for donor in self._by_operator.get(task.operator, ())
            if (distance := _distance(task, donor.task)) is not None
        ]
        # The second best of the nearest task comes after the best of the second nearest.
        turns: dict[str, int] = {}
        known: set[tuple[str, str]] = set()
        ordered = []
        for distance, foreign, latency_s, trace, donor in sorted(near, key=lambda one: one[:4]):
            key = donor.task.hash
            if (key, trace) not in known:
                known.add((key, trace))
                turns[key] = turns.get(key, 0) + 1
                ordered.append((turns[key] * (1.0 + distance), foreign, latency_s, trace, donor))
        return [one[4] for one in heapq.nsmallest(count, ordered, key=lambda one: one[:4])]

    def expected_s(self, task: Task) -> float:
        """Seconds that a task is expected to take, to be compared with those of other tasks.

        As many for each of its FLOPs as the fastest programs of its nearest tasks take, on the
        device or, where the library has none of it, on the one that it has most of; of
        convolutions those with the same window. Infinite where nothing like it is known.
        """
        pace: dict[str, tuple[float, float]] = {}
        for donor in self._by_operator.get(task.operator, ()):
            distance = _distance(task, donor.task)
            if donor.device != self._paced_by or distance is None:
                continue
            if donor.task.shapes[1][:-2] == task.shapes[1][:-2]:
                found = distance, donor.latency_s / donor.task.flops
                pace[donor.task.hash] = min(found, pace.get(donor.task.hash, found))
        nearest = [seconds for _, seconds in heapq.nsmallest(self._neighbours, pace.values())]
        return task.flops * geometric_mean(nearest) if nearest else math.inf


def warm_starts_of(
    library: ScheduleLibrary,
    task: Task,
    proposer: Proposer,
    shown: Shown,
    *,
    most_donors: int = 12,
) -> list[Program]:
    """Programs for a task carried over from its nearest donors, nearest first.

    Args:
        library: Library with donors of other tasks and devices.
        task: Task that is started on.
        proposer: Source of programs, whose design space they are of.
        shown: Function that shows programs of the task, from which its sketches and extents are
            learnt.
        most_donors: Largest number of donors, default 12.
    """
    donors = library.nearest(task, most_donors)
    if not donors:
        return []
    templates = [program.trace for program in shown()]
    carried = (carry_over(donor.trace, templates) for donor in donors)
    return proposer.apply(task, [trace for trace in dict.fromkeys(carried) if trace is not None])


def carry_over(donor: str, templates: Sequence[str]) -> str | None:
    """The donor's decisions in another task's skeleton, or None where no skeleton takes them.

    Tile sizes become the nearest divisors of the new extents, from the innermost level outwards,
    which stays within the skeleton's limit; compute locations are left to be sampled anew.

    Args:
        donor: Trace of a record.
        templates: Traces of the new task, one at least of each of its sketches: their decisions
            tell the extents.

    Raises:
        DataError: The donor is no trace.
    """
    source = without_postproc(parse_trace(donor))
    for text in templates:
        template = without_postproc(json.loads(text))
        if (decisions := _match(source, template)) is not None:
            return dump([template[0], decisions])
    return None


def nearest_factors(factors: Sequence[int], extent: int, innermost: int | None = None) -> list[int]:
    """Factors of `extent` near the given ones, the outermost taking what is left.

    Args:
        factors: Given factors, outermost first.
        extent: Product of the factors found.
        innermost: Largest value that the last factor may have, default None for no limit.
    """
    left = extent
    found: list[int] = []
    for wanted in reversed(factors[1:]):
        most = left if found or innermost is None else innermost
        allowed = [d for d in _divisors(left) if d <= most]
        factor = min(allowed, key=lambda d: (abs(math.log(d / wanted)), d))
        found.append(factor)
        left //= factor
    return [left, *reversed(found)]


def _match(source: Trace, template: Trace) -> list[list[object]] | None:
    mine, theirs = _decisions(template), _decisions(source)
    if [kind for _, kind, _, _ in mine] != [kind for _, kind, _, _ in theirs]:
        return None
    decisions: list[list[object]] = []
    for (index, kind, attributes, own), (_, _, other_attributes, given) in zip(
        mine, theirs, strict=True
    ):
        if kind != TILE:
            if attributes != other_attributes:
                return None
            decisions.append([index, given])
        elif len(own) != len(given):
            return None
        else:
            limit = innermost_limit(attributes)
            decisions.append([index, nearest_factors(given, math.prod(own), limit)])
    return decisions


def _decisions(trace: Trace) -> list[tuple[int, str, list[object], list[int]]]:
    """Position, kind, attributes and value of each decision but the compute locations."""
    instructions, decisions = trace
    found = ((index, instructions[index], value) for index, value in sorted(decisions))
    return [(i, made[0], made[2], value) for i, made, value in found if made[0] != LOCATION]


def _distance(one: Task, other: Task) -> float | None:
    """Sum over the extents of the first two arguments of |log2 of their ratio|, or None."""
    if one.dtype != other.dtype:
        return None
    mine, theirs = one.shapes[:2], other.shapes[:2]
    if [len(shape) for shape in mine] != [len(shape) for shape in theirs]:
        return None
    pairs = (
        pair for shapes in zip(mine, theirs, strict=True) for pair in zip(*shapes, strict=True)
    )
    return sum(abs(math.log2(a / b)) for a, b in pairs)


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return [*small, *(number // d for d in small)]
