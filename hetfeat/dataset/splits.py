"""Three ways to hold records out, each a different claim about what a model generalises to.

- `within_task`: records of tasks and devices that were trained on. A record is a program on a
  device: every duplicate of it lies on one side.
- `by_task`: tasks never trained on, on any device. Tasks with the same operator and the same
  leading argument shapes (one convolution under two epilogues) lie on one side.
- `by_target`: devices never trained on. The validation side shares no program with the rest.
  Networks held out beside devices are not trained on either: their tasks on a held-out device are
  new in both respects, which `mask_unseen` tells from the others.
"""

import json
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from hetfeat.errors import DataError, RequestError, not_one_of
from hetfeat.records import anchor_of

SplitKind = Literal["within_task", "by_task", "by_target"]
SPLITS: tuple[str, ...] = get_args(SplitKind)
TENSET = "tenset"
"""Name of TenSet's own protocol, for figures beside published ones only: see `split_as_tenset`."""


Texts = npt.NDArray[np.object_]


class TaskKeyed(Protocol):
    """Whatever says of n records or tasks which task they are of, each object [n]."""

    @property
    def task(self) -> Texts:
        """Task hashes."""

    @property
    def operator(self) -> Texts:
        """Anchor operators."""

    @property
    def shapes(self) -> Texts:
        """Argument shapes as JSON, as in the store."""


class Keyed(TaskKeyed, Protocol):
    """The device and the program, too. `features.batch.Examples` is such a thing."""

    @property
    def device(self) -> Texts:
        """Device names."""

    @property
    def program(self) -> Texts:
        """Program keys."""


@dataclass(frozen=True)
class Split:
    """Positions, int64, of the examples of each side.

    What by_target leaves out of training for its tasks alone is on no side.
    """

    train: npt.NDArray[np.int64]
    valid: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


def split_examples(
    examples: Keyed,
    kind: str,
    seed: int,
    holdout: Sequence[str] = (),
    networks: dict[str, dict[str, int]] | None = None,
    *,
    test_share: float = 0.2,
    valid_share: float = 0.1,
) -> Split:
    """Divides examples into train, valid and test.

    Args:
        examples: Measured programs, n of them.
        kind: Name of the split, one of `SPLITS`.
        seed: Seed of every draw; the same seed gives the same split.
        holdout: Devices to test on (by_target, beside networks to leave out of training), or
            networks to test on (by_task); empty, the default, for a share of all (not by_target).
        networks: Occurrences by network and task hash, as the store keeps them; None, the default,
            for none.
        test_share: Share of the test side where nothing is held out by name; 0.2 by default.
        valid_share: Share of the rest that is its valid side; 0.1 by default.

    Raises:
        RequestError: Unknown split, device or network, or a holdout that the split does not use.
        DataError: A side would be empty.
    """
    rng = np.random.default_rng(seed)
    if kind == "within_task":
        _refuse_holdout(holdout)
        records = _codes(_records(examples))
        strata = _codes((device, task) for device, task, _ in _records(examples))
        test, rest = _take(records, strata, test_share, rng)
        valid, train = _take(records[rest], strata[rest], valid_share, rng)
    elif kind == "by_task":
        units = task_units(examples)
        test, rest = _test_tasks(examples, units, holdout, networks or {}, test_share, rng)
        valid, train = _take(units[rest], np.zeros_like(rest), valid_share, rng)
    elif kind == "by_target":
        held, left_out = _held_devices(examples, holdout, networks or {})
        test, rest = np.flatnonzero(held), np.flatnonzero(~held & ~left_out)
        programs = _codes(zip(examples.task.tolist(), examples.program.tolist(), strict=True))
        valid, train = _take(programs[rest], np.zeros_like(rest), valid_share, rng)
    else:
        raise not_one_of("split", kind, SPLITS, "choose one")
    return _with_records_on_each_side(examples, kind, Split(rest[train], rest[valid], test))


def split_as_tenset(examples: Keyed, seed: int, *, test_share: float = 0.1) -> Split:
    """TenSet's protocol, which is more lenient than any of `SPLITS`: not for choosing a model.

    Pairs of a task and a device are held out, so the task may be learnt from another device. The
    side that ends the training is the one that is tested on.

    Args:
        examples: Measured programs.
        seed: Seed of the draw; the same seed gives the same split.
        test_share: Share of the test side; 0.1 by default.

    Raises:
        DataError: A side would be empty.
    """
    units = _codes((device, task) for device, task, _ in _records(examples))
    test, train = _take(units, np.zeros_like(units), test_share, np.random.default_rng(seed))
    return _with_records_on_each_side(examples, TENSET, Split(train, test, test))


def mask_unseen(examples: TaskKeyed, *known: TaskKeyed) -> npt.NDArray[np.bool_]:
    """Whether nothing `known`, on any device, is of the example's task or anchor, bool [n]."""
    seen = {key for part in known for keys in _task_keys(part) for key in keys}
    return np.fromiter((seen.isdisjoint(keys) for keys in _task_keys(examples)), bool)


def task_units(examples: TaskKeyed) -> npt.NDArray[np.int64]:
    """Codes of what by_task holds out as a whole: connected tasks, int64 [n].

    Two examples are connected when they share the task hash, or the operator and the shapes of
    the first two arguments (which are the anchor's data and weights).
    """
    codes: dict[str, int] = {}
    parent: list[int] = []

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def code(key: str) -> int:
        if key not in codes:
            codes[key] = len(parent)
            parent.append(len(parent))
        return codes[key]

    own = []
    for task, anchor in _task_keys(examples):
        here = code(task)
        parent[root(code(anchor))] = root(here)
        own.append(here)
    return np.fromiter(map(root, own), np.int64)


def of_units(
    examples: TaskKeyed, units: npt.NDArray[np.int64], tasks: Collection[str]
) -> npt.NDArray[np.bool_]:
    """Whether an example shares a unit of `task_units` with one of the tasks, bool [n]."""
    named = np.fromiter((task in tasks for task in examples.task.tolist()), bool)
    return np.isin(units, units[named])


def anchors(examples: TaskKeyed) -> list[str]:
    """The anchor of each example's task, as `records.anchor_of` has it."""
    parsed = {text: json.loads(text) for text in set(examples.shapes.tolist())}
    tasks = zip(examples.operator.tolist(), examples.shapes.tolist(), strict=True)
    return [anchor_of(operator, parsed[text]) for operator, text in tasks]


def _task_keys(examples: TaskKeyed) -> Iterator[tuple[str, str]]:
    """What two examples of connected tasks have in common: the task, or the anchor."""
    return zip(examples.task.tolist(), anchors(examples), strict=True)


def _test_tasks(
    examples: Keyed,
    units: npt.NDArray[np.int64],
    holdout: Sequence[str],
    networks: dict[str, dict[str, int]],
    test_share: float,
    rng: np.random.Generator,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    if not holdout:
        return _take(units, np.zeros_like(units), test_share, rng)
    if unknown := sorted(set(holdout) - set(networks)):
        raise RequestError(
            f"--holdout {', '.join(unknown)} with the by_task split",
            f"networks of the record store ({', '.join(sorted(networks)) or 'it names none'})",
            "choose among them, or use --split by_target to hold devices out",
        )
    held = _of_networks(examples, units, [networks[name] for name in holdout])
    return np.flatnonzero(held), np.flatnonzero(~held)


def _held_devices(
    examples: Keyed, holdout: Sequence[str], networks: dict[str, dict[str, int]]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Whether an example is of a device held out, and whether of a network held out."""
    devices = sorted(set(examples.device.tolist()))
    named = set(holdout) & set(devices)
    if not named or set(holdout) - named - set(networks):
        raise RequestError(
            f"--holdout {','.join(holdout) or '(none)'} with the by_target split",
            f"devices of the records ({', '.join(devices)}), beside them networks "
            f"({', '.join(sorted(networks)) or 'it names none'})",
            "name at least one device and leave at least one to train on",
        )
    wanted = [networks[name] for name in holdout if name not in named]
    of_network = _of_networks(examples, task_units(examples), wanted)
    return np.isin(examples.device.astype(str), sorted(named)), of_network


def _of_networks(
    examples: Keyed, units: npt.NDArray[np.int64], networks: Sequence[dict[str, int]]
) -> npt.NDArray[np.bool_]:
    """Whether an example shares a unit with a task of the networks, bool [n]."""
    return of_units(examples, units, {task for network in networks for task in network})


def _with_records_on_each_side(examples: Keyed, kind: str, split: Split) -> Split:
    for name in ("train", "valid", "test"):
        if not len(getattr(split, name)):
            raise DataError(
                f"{len(examples.task)} records of {len(set(examples.task.tolist()))} tasks on "
                f"{len(set(examples.device.tolist()))} devices, whose {kind} split has an "
                f"empty {name} side",
                "at least one record on each side",
                "collect more tasks or programs, or choose another split",
            )
    return split


def _refuse_holdout(holdout: Sequence[str]) -> None:
    if holdout:
        raise RequestError(
            f"--holdout {','.join(holdout)} with the within_task split",
            "no --holdout, since part of every task is held out",
            "use --split by_target or by_task",
        )


def _take(
    units: npt.NDArray[np.int64],
    strata: npt.NDArray[np.int64],
    share: float,
    rng: np.random.Generator,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Positions of about `share` of the examples of each stratum, and the others.

    Whole units go to one side; a unit lies in one stratum. A stratum of one unit gives none.
    """
    order = rng.permutation(int(units.max()) + 1 if len(units) else 0)
    names, first, counts = np.unique(units, return_index=True, return_counts=True)
    shuffled = np.lexsort((order[names], strata[first]))
    names, counts, stratum = names[shuffled], counts[shuffled], strata[first][shuffled]
    starts = np.flatnonzero(np.diff(stratum, prepend=-1))
    of = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(names)))
    before = np.cumsum(counts) - counts
    before -= before[starts][of]
    is_last = np.diff(stratum, append=-1) != 0
    chosen = (before < share * np.bincount(of, counts)[of]) & ~is_last
    held = np.zeros(len(order), bool)
    held[names[chosen]] = True
    return np.flatnonzero(held[units]), np.flatnonzero(~held[units])


def _records(examples: Keyed) -> Iterator[tuple[str, str, str]]:
    fields = (examples.device, examples.task, examples.program)
    return zip(*(f.tolist() for f in fields), strict=True)


def _codes(keys: Iterable[Hashable]) -> npt.NDArray[np.int64]:
    seen: dict[Hashable, int] = {}
    return np.fromiter((seen.setdefault(key, len(seen)) for key in keys), np.int64)
