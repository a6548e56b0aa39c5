"""What a bag of trees is worth: trainings that stop by other tasks, whose margins are averaged.

    python benchmarks/bags.py --out DIR [--seeds 0,1,2] [--kinds quarters,seeds]
    python benchmarks/bags.py --out DIR --table

The packaged records are learnt from without the final networks. Each seed holds a fifth of their
connected tasks out, on which bags are judged. `tenths` and `quarters` say how much of the rest ends
a training; each member of a bag stops by other tasks and learns from all others. `seeds` stop by
one tenth, and draw other rows and columns. `tenths` of one member is what `hetfeat train` does.

DIR has a file for each member, with its margins of the judged programs; those that it holds are
not trained again. Intervals are of a bootstrap over connected tasks, paired, of all seeds together.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from final_figures import without_final
from paired import FIGURES, OfTasks, gain, mean, of_tasks, shown
from search import table

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.splits import split_examples, task_units
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group

PARTS = {"quarters": 4, "tenths": 10, "seeds": 10}
SIZES = (1, 2, 4)
AS_BUILT = ("tenths", 1)


@dataclass(frozen=True)
class Sides:
    """What one seed learns from and judges on, each with the codes of its connected tasks."""

    learnt: Examples
    units: np.ndarray
    judged: Examples
    judged_units: np.ndarray

    @property
    def units_of_tasks(self) -> np.ndarray:
        """The code of each judged task on a device."""
        groups = by_group(group_codes(self.judged)[0])
        return self.judged_units[[rows[0] for rows in groups]]


@dataclass(frozen=True)
class Member:
    """One training: margins of the judged programs, and what it cost."""

    margins: np.ndarray
    train_s: float
    predict_s: float
    kilobytes: float


def sides_of(examples: Examples, seed: int) -> Sides:
    """A fifth of the connected tasks to judge on, the others to learn from."""
    units = task_units(examples)
    split = split_examples(examples, "by_task", seed)
    learnt = np.sort(np.concatenate([split.train, split.valid]))
    return Sides(examples.take(learnt), units[learnt], examples.take(split.test), units[split.test])


def parts_of(units: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Number of the part that each example is in, int64 [n]; connected tasks are in one part."""
    codes = np.unique(units, return_inverse=True)[1]
    sizes = np.bincount(codes)
    order = np.random.default_rng(seed).permutation(len(sizes))
    before = np.cumsum(sizes[order]) - sizes[order]
    part = np.empty(len(sizes), np.int64)
    part[order] = before * count // sizes.sum()
    return part[codes]


def trained(sides: Sides, kind: str, number: int, seed: int) -> Member:
    """A member of a bag."""
    part = parts_of(sides.units, PARTS[kind], seed)
    stops, draws = (0, seed + 100 * number) if kind == "seeds" else (number, seed)
    model = build("xgb", "standard", draws, {})
    started = time.process_time()
    model.fit(
        sides.learnt.take(np.flatnonzero(part != stops)),
        sides.learnt.take(np.flatnonzero(part == stops)),
    )
    fitted = time.process_time()
    margins = np.log(model.predict(sides.judged.batch))
    predicted = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        kilobytes = (Path(folder) / "model" / "booster.ubj").stat().st_size / 1e3
    return Member(margins, fitted - started, predicted - fitted, kilobytes)


def path_of(folder: Path, kind: str, number: int, seed: int) -> Path:
    """The file of a member; the first of `seeds` is the first of `tenths`."""
    kind = "tenths" if (kind, number) == ("seeds", 0) else kind
    return folder / f"{kind}-{number}-seed{seed}.npz"


def members_of(folder: Path, kind: str, size: int, seed: int) -> list[Member] | None:
    """The members of a bag; None while one has not been trained."""
    paths = [path_of(folder, kind, number, seed) for number in range(size)]
    if not all(path.exists() for path in paths):
        return None
    return [Member(**dict(np.load(path))) for path in paths]


def keep(path: Path, arrays: dict) -> None:
    """Writes a file of arrays at once."""
    draft = path.with_suffix(".part.npz")
    np.savez(draft, **arrays)
    draft.replace(path)


def run(given: argparse.Namespace, examples: Examples) -> None:
    given.out.mkdir(parents=True, exist_ok=True)
    wanted = [
        each
        for kind in given.kinds
        for seed in given.seeds
        for each in [("tenths", 0, seed), *((kind, n, seed) for n in range(max(SIZES)))]
    ]
    for kind, number, seed in wanted:
        path = path_of(given.out, kind, number, seed)
        if not path.exists():
            member = trained(sides_of(examples, seed), kind, number, seed)
            keep(path, vars(member))
            print(f"{path.stem}: {member.train_s:.0f} s", file=sys.stderr, flush=True)


def together(each: Sequence[OfTasks]) -> dict[str, np.ndarray]:
    """Figures of the tasks of all seeds, one after the other."""
    return {name: np.concatenate([getattr(one, name) for one in each]) for name in FIGURES}


def tables(given: argparse.Namespace, examples: Examples) -> str:
    """What each bag reaches, by how much it exceeds one model as built, and what it costs."""
    sides = {seed: sides_of(examples, seed) for seed in given.seeds}
    units = np.concatenate([each.units_of_tasks for each in sides.values()])
    found, costs = {}, {}
    for kind in dict.fromkeys(["tenths", *given.kinds]):
        for size in SIZES:
            bags = {seed: members_of(given.out, kind, size, seed) for seed in given.seeds}
            if None in bags.values() or (kind, size) == ("seeds", 1):
                continue
            found[kind, size] = together(
                [
                    of_tasks(np.mean([m.margins for m in bag], axis=0), sides[seed].judged)
                    for seed, bag in bags.items()
                ]
            )
            costs[kind, size] = [
                np.mean([sum(getattr(m, name) for m in bag) for bag in bags.values()])
                for name in ("train_s", "predict_s", "kilobytes")
            ]
    judged = np.mean([len(each.judged) for each in sides.values()])
    rows = []
    for (kind, size), own in found.items():
        cells = [kind, str(size)]
        for name in FIGURES:
            over = gain(own[name], found[AS_BUILT][name], units)
            cells += [shown(mean(own[name], units))]
            cells += ["" if (kind, size) == AS_BUILT else shown(over, signed=True)]
        train_s, predict_s, kilobytes = costs[kind, size]
        cells += [f"{train_s:.0f}", f"{1e6 * predict_s / judged:.0f}", f"{kilobytes:.0f}"]
        rows.append(cells)
    head = ["stopped by", "members", "PCA", "over one as built", "top-1", "over one as built"]
    head += ["train, s", "predict, us a program", "kB"]
    tasks = f"{len(units)} tasks of {len(np.unique(units))} units, {judged:.0f} programs a seed"
    return f"{tasks}\n\n{table(head, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--seeds", type=lambda text: [*map(int, text.split(","))], default=[0, 1, 2]
    )
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=["quarters", "seeds"])
    parser.add_argument("--table", action="store_true", help="only print what DIR holds")
    given = parser.parse_args()
    store = RecordStore.open(packaged_store())
    examples = without_final(assemble(store).examples, store.networks())
    if not given.table:
        run(given, examples)
    print(tables(given, examples))


if __name__ == "__main__":
    main()
