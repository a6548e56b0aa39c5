"""Fewer records that teach nearly as much: hardware-aware sampling, after section 3.2 of the paper.

Docs/pruning.md says what each step is worth, and which of the paper's were changed and why.
"""

import errno
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hetfeat.cluster import Over
from hetfeat.dataset.duplicates import older_duplicates, program_keys
from hetfeat.dataset.readers import Piece
from hetfeat.dataset.schema import median_latencies
from hetfeat.dataset.sidecar_files import evaluation_tasks, save_evaluation_tasks
from hetfeat.dataset.splits import of_units, task_units
from hetfeat.dataset.store import RecordStore
from hetfeat.durable import sync, sync_tree
from hetfeat.errors import DataError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEAST_QUOTA = 8
"""Default of `least_quota`."""
_COLUMNS = ["device", "task", "operator", "shapes", "program", "latencies_s"]


@dataclass(frozen=True)
class Light:
    """What pruning reads of n records.

    Attributes:
        group: Code of the task on a device, int64 [n].
        device: Code of the device of each group, int64 [groups].
        program: Number of the program, the same on all devices, uint64 [n].
        latency_s: Latency in seconds, float64 [n]; NaN for what must go: failures, older
            duplicates.
    """

    group: Ints
    device: Ints
    program: npt.NDArray[np.uint64]
    latency_s: Floats


@dataclass(frozen=True)
class Pruned:
    """What became of a store.

    Attributes:
        before: Number of records before pruning, by operator.
        after: Number of records kept, by operator.
        tested: Number of records of the test side, all copied and in neither count.
    """

    before: dict[str, int]
    after: dict[str, int]
    tested: int


def choose(
    records: Light, fraction: float, seed: int, least_quota: int = LEAST_QUOTA
) -> npt.NDArray[np.bool_]:
    """Which records to keep, bool [n]: about `fraction` of all n, none of them failed.

    Each group keeps a quota. Its programs, sorted by latency, are divided into as many strata, of
    which each gives one: slow and fast survive alike. Within a stratum it is the program that
    fewest devices have kept so far, so that what one device drops another keeps; among those,
    chance decides.

    Args:
        records: Light columns of n records.
        fraction: Share of the records to keep.
        seed: Seed of the choice.
        least_quota: Programs that a task on a device keeps if it has them, however small its share;
            8 by default.
    """
    valid = np.isfinite(records.latency_s)
    sizes = np.bincount(records.group[valid], minlength=len(records.device))
    quota = quotas(sizes, round(fraction * len(valid)), least_quota)
    programs, program = np.unique(records.program, return_inverse=True)
    chance, used = _uniform(programs, seed), np.zeros(len(programs))
    kept = np.zeros(len(valid), bool)
    for device in np.unique(records.device):
        rows = np.flatnonzero(valid & (records.device[records.group] == device))
        by = chance[program[rows]], records.latency_s[rows], records.group[rows]
        rows = rows[np.lexsort(by)]  # equal latencies, too, in an order that no shard decides
        group = records.group[rows]
        place = np.arange(len(rows)) - np.searchsorted(group, group)
        stratum = place * quota[group] // sizes[group]
        order = np.lexsort(((used + chance)[program[rows]], stratum, group))
        first = np.diff(group[order], prepend=-1).astype(bool)
        first |= np.diff(stratum[order], prepend=-1).astype(bool)
        chosen = rows[order[first & (quota[group[order]] > 0)]]
        kept[chosen] = True
        used[program[chosen]] += 1
    return kept


def quotas(sizes: Ints, total: int, least_quota: int = LEAST_QUOTA) -> Ints:
    """How many of each group are kept, int64 as `sizes`; they add up to `total`, or to all.

    In proportion to the sizes, but `least_quota` at least where there are so many.
    """
    total = min(total, int(sizes.sum()))
    low, high = 0.0, 1.0
    for _ in range(60):
        share = (low + high) / 2
        if _shares(sizes, share, least_quota).sum() > total:
            high = share
        else:
            low = share
    exact = _shares(sizes, low, least_quota)
    if exact.sum() > total:  # not even the least quotas fit
        exact = sizes * (total / sizes.sum())
    # Rounded so that every partial sum is right to within one: no group loses by its number.
    return np.diff(np.floor(np.cumsum(exact) + 1e-6), prepend=0).astype(np.int64)


def _shares(sizes: Ints, share: float, least_quota: int) -> Floats:
    shares: Floats = np.maximum(np.minimum(sizes, least_quota), share * sizes)
    return shares


def prune(
    source: RecordStore,
    out: Path,
    fraction: float,
    seed: int = 0,
    on_piece: Callable[[int], None] = lambda done: None,
    least_quota: int = LEAST_QUOTA,
    over: Over = map,
) -> Pruned:
    """Writes the chosen records of a store into a new one, in two passes.

    The first reads light columns, some 40 bytes a record; the second copies. The same seed gives
    the same records, whatever the shards. Records of the store's evaluation tasks, and of tasks
    that by_task holds out with them, are neither looked at nor counted: all are copied.

    Args:
        source: Store that is pruned; it stays as it is.
        out: Folder of the new store, absent or empty.
        fraction: Share of the records to keep.
        seed: Seed of the choice; 0 by default.
        on_piece: Function called with the number of pieces read, each of which is read twice; by
            default it does nothing.
        least_quota: Programs that a task on a device keeps if it has them, however small its share;
            8 by default.
        over: Function that applies another to each piece; `map` by default.

    Raises:
        DataError: `out` holds something, or nothing is left.
    """
    place = out.resolve()
    if place.is_mount() or (place.exists() and (not place.is_dir() or any(place.iterdir()))):
        raise DataError(f"'{out}', which holds something", "a new folder", "choose another --out")
    pieces = list(source.pieces())
    dense = evaluation_tasks(source.path)
    sizes, records, operators, tested = _light(pieces, dense, on_piece, over)
    kept = tested.copy()
    kept[~tested] = choose(records, fraction, seed, least_quota)
    if not kept[~tested].any():
        raise DataError(
            f"record store '{source.path}', of which nothing is left",
            "at least one record that did not fail",
            "choose a larger --fraction or other records",
        )
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as work:
        target = RecordStore.create(Path(work) / "records")
        _copy(pieces, np.split(kept, np.cumsum(sizes)[:-1]), target, on_piece, over)
        for profile in source.devices().values():
            target.add_device(profile)
        target.add_workloads(source.workloads())
        for network, weights in source.networks().items():
            target.add_network(network, weights, {})
        if dense:
            save_evaluation_tasks(target.path, dense)
        _publish(target.path, place)
    names = np.array(operators, object)
    before, after = (Counter(names[rows].tolist()) for rows in (~tested, kept & ~tested))
    return Pruned(dict(before), dict(after), int(tested.sum()))


def _publish(draft: Path, place: Path) -> None:
    """Makes a draft the store of a name: whole, or after an interrupt not at all."""
    sync_tree(draft)
    try:
        os.replace(draft, place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise DataError(
            f"'{place}', which holds something by now", "a new folder", "choose another --out"
        ) from error
    sync(place.parent)


def light_of(
    group: Ints,
    groups: Sequence[tuple[str, str]],
    program: npt.NDArray[np.uint64],
    latency_s: Floats,
) -> Light:
    """Light columns; the groups, given as (device, task), get codes that follow from these."""
    order = sorted(range(len(groups)), key=groups.__getitem__)
    code = np.empty(len(order), np.int64)
    code[order] = np.arange(len(order))
    names = [groups[i][0] for i in order]
    device = np.unique(np.array(names, str), return_inverse=True)[1].astype(np.int64)
    return Light(code[group], device, program, latency_s)


def _light(
    pieces: list[Piece], evaluation: list[str], on_piece: Callable[[int], None], over: Over
) -> tuple[list[int], Light, list[str], npt.NDArray[np.bool_]]:
    """Sizes of the pieces, and light columns of what may be pruned.

    Of all records the operator, and if they may not.
    """
    older = older_duplicates(pieces)
    codes: dict[tuple[str, str], int] = {}
    tasks: set[tuple[str, str, str]] = set()
    groups, programs, latencies, operators = [], [], [], []
    for position, table in enumerate(over(_read_light, pieces)):
        device, task, operator, shapes = (table[name].to_pylist() for name in _COLUMNS[:4])
        pairs = zip(device, task, strict=True)
        groups.append(np.array([codes.setdefault(pair, len(codes)) for pair in pairs], np.int64))
        tasks.update(zip(task, operator, shapes, strict=True))
        programs.append(program_keys(table))
        latency_s = median_latencies(table["latencies_s"])
        latency_s[older.get(position, [])] = np.nan
        latencies.append(latency_s)
        operators += operator
        on_piece(position + 1)
    held = _held_out(tasks, evaluation)
    group = np.concatenate([np.empty(0, np.int64), *groups])
    tested = np.array([task in held for _, task in codes], bool)[group]
    program = np.concatenate([np.empty(0, np.uint64), *programs])
    latency = np.concatenate([np.empty(0), *latencies])
    light = light_of(group[~tested], list(codes), program[~tested], latency[~tested])
    return [len(piece) for piece in groups], light, operators, tested


def _read_light(piece: Piece) -> pa.Table:
    return piece.read(_COLUMNS)


class _Tasks(NamedTuple):
    """Tasks as `splits.TaskKeyed`."""

    task: npt.NDArray[np.object_]
    operator: npt.NDArray[np.object_]
    shapes: npt.NDArray[np.object_]


def _held_out(tasks: set[tuple[str, str, str]], evaluation: list[str]) -> set[str]:
    """The tasks that by_task holds out if it holds these out."""
    if not evaluation:
        return set()
    rows = _Tasks(*(np.array(column, object) for column in zip(*sorted(tasks), strict=True)))
    held = of_units(rows, task_units(rows), set(evaluation))
    return set(rows.task[held].tolist())


def _copy(
    pieces: list[Piece],
    kept: list[npt.NDArray[np.bool_]],
    target: RecordStore,
    on_piece: Callable[[int], None],
    over: Over,
) -> None:
    writer = target.writer()
    for position, table in enumerate(over(_read_chosen, zip(pieces, kept, strict=True))):
        if table is not None:
            writer.add(table)
        on_piece(len(pieces) + position + 1)
    writer.close()


def _read_chosen(item: tuple[Piece, npt.NDArray[np.bool_]]) -> pa.Table | None:
    piece, chosen = item
    return piece.read().filter(pa.array(chosen)) if chosen.any() else None


def _uniform(keys: npt.NDArray[np.uint64], seed: int) -> Floats:
    """A number in [0, 1) that follows from a key and the seed (SplitMix64), float64 [n]."""
    with np.errstate(over="ignore"):
        z = keys + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / 2**53
