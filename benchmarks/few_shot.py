"""PCA on a held-out device after 0, 8, 32 and 128 measurements of a task.

    python benchmarks/few_shot.py --records DIR --out FILE [--models xgb,attention] [--seeds 0,1,2]
        [--holdout DEVICE,...] [--splits by_target,by_target_new]
    python benchmarks/few_shot.py --out FILE --table

A cell is a model, a held-out device and a seed, in a process of its own and one JSON line of FILE,
as in `models.py`; an interrupted run goes on. by_target_new tests on tasks that no device taught.
Each task of more than 129 programs on the device is measured in a random order: the first N are
learnt from, those after the 128th are tested on whatever N is. `support` is the source model with
the measured as its support set, without a gradient step; `fine_tuned` goes on learning from them
for as many rounds as `hetfeat transfer` would choose; `scratch` has no source. `selected` is
`fine_tuned` with as many measurements in all, every one of them of the tasks that hold 80 % of the
FLOPs, as far as each has 128; `..._there` are the figures of these tasks alone.

Of a store of over 100,000 records the seed draws 30 of those tasks and 260 programs of each, and of
the other devices 60 programs a task.
"""

import fnmatch

import numpy as np
from models import Cell, arguments, run, sides_of, spread

from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.features.columns import TASK
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group
from hetfeat.models.support import predict_beside
from hetfeat.transfer.finetune import (
    DEFAULT_FINE_TUNING,
    FewShot,
    fine_tuned,
    mean_pca,
    strongest,
    tuned_pca,
)
from hetfeat.transfer.selection import heaviest

BUDGETS = (8, 32, 128)
LEAST = BUDGETS[-1] + 2
LARGE, TASKS, TESTED, TAUGHT = 100_000, 30, 260, 60
"""Records of a large store, tasks of the device, programs of each, of each of other devices."""
SHARE = 0.8
"""Of the FLOPs of one run of each task, that the selected tasks hold."""
FLOPS = [column.name for column in TASK].index("flops")


def drawn(examples: Examples, cell: Cell) -> Examples:
    """All of them, or as many as a large store is to give."""
    if len(examples) <= LARGE:
        return examples
    rng = np.random.default_rng(cell.seed)
    tested, taught = [], []
    for rows in by_group(group_codes(examples)[0]):
        if not fnmatch.fnmatch(examples.device[rows[0]], cell.holdout):
            taught.append(rng.permutation(rows)[:TAUGHT])
        elif len(rows) >= LEAST:
            tested.append(rng.permutation(rows)[:TESTED])
    tested = [tested[i] for i in rng.permutation(len(tested))[:TASKS]]
    return examples.take(np.sort(np.concatenate([*tested, *taught])))


class Measurable:
    """The large tasks of a device, each in the random order in which it is measured."""

    def __init__(self, device: Examples, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.device, self.order = device, np.full(len(device), -1)
        for rows in by_group(group_codes(device)[0]):
            if len(rows) >= LEAST:
                self.order[rng.permutation(rows)] = np.arange(len(rows))
        self.test = device.take(np.flatnonzero(self.order >= BUDGETS[-1]))
        if not len(self.test):
            raise SystemExit(f"no task of {LEAST} programs on this device: collect more")
        flops = dict(zip(self.test.task, 2.0 ** self.test.batch.task[:, FLOPS], strict=True))
        self.tasks = len(flops)
        self.selected = heaviest(flops, {}, SHARE)

    def first(self, budget: int) -> FewShot:
        """So many programs of every task."""
        return self._within(np.full(len(self.device), budget))

    def first_selected(self, budget: int) -> FewShot | None:
        """As many in all, of the selected tasks alone; None where these have not so many."""
        each = budget * self.tasks // len(self.selected)
        here = np.isin(self.device.task, list(self.selected))
        return self._within(np.where(here, each, 0)) if each <= BUDGETS[-1] else None

    def _within(self, limit: np.ndarray) -> FewShot:
        rows = np.flatnonzero((self.order >= 0) & (self.order < limit))
        folds = self.order[rows] % DEFAULT_FINE_TUNING.most_folds
        return FewShot(self.device.take(rows), folds, self.test)

    def pca(self, scores: np.ndarray) -> tuple[float, float]:
        """Of all tested tasks, and of the selected ones."""
        rows = np.flatnonzero(np.isin(self.test.task, list(self.selected)))
        return mean_pca(scores, self.test), mean_pca(scores[rows], self.test.take(rows))


def figures_of(cell: Cell, store: RecordStore) -> dict[str, float]:
    """PCA on the test side by way and budget, as `way@budget`; `pca` is the source's alone."""
    train, valid, device = sides_of(drawn(assemble(store).examples, cell), cell)
    space = Measurable(device, cell.seed)
    test = space.test
    source = build(cell.model, cell.effort, cell.seed, cell.settings)
    source.fit(train, valid)
    all_tasks, there = space.pca(source.predict(test.batch))
    figures: dict[str, float] = {"pca": all_tasks, "pca_there": there}
    figures |= {"tasks": space.tasks, "selected": len(space.selected), "test_records": len(test)}
    for budget in BUDGETS:
        data = space.first(budget)
        rounds = strongest(tuned_pca(source, data))
        tuned = fine_tuned(source, data.measured, rounds)
        scores = {
            "fine_tuned": tuned.predict(test.batch),
            "scratch": from_scratch(cell, data).predict(test.batch),
        }
        if selected := space.first_selected(budget):
            again = fine_tuned(source, selected.measured, strongest(tuned_pca(source, selected)))
            scores["selected"] = again.predict(test.batch)
        if cell.model == "attention":
            scores["support"] = predict_beside(source, test, data.measured)
            scores["fine_tuned_support"] = predict_beside(tuned, test, data.measured)
        for way, found in scores.items():
            figures[f"{way}@{budget}"], figures[f"{way}_there@{budget}"] = space.pca(found)
        figures[f"rounds@{budget}"] = rounds
    return figures


def from_scratch(cell: Cell, data: FewShot):
    """Learns from all that was measured, for as long as did most good to one fold of it."""
    losses: list[float] = []
    learn, check, _ = data.part(0)
    first = build(cell.model, cell.effort, cell.seed, cell.settings)
    first.fit(learn, check, lambda _, figures: losses.append(figures["valid_loss"]))
    rounds = {"rounds": 1 + int(np.argmin(losses))}
    model = build(cell.model, cell.effort, cell.seed, cell.settings | rounds)
    model.fit(data.measured, data.measured)
    return model


def table(rows: list[dict]) -> str:
    """Markdown: mean and spread over seeds and held-out devices."""
    head = ["records", "split", "model", "way", "cells", "0", *map(str, BUDGETS)]
    lines = [head, ["---"] * len(head)]
    groups: dict[tuple[str, ...], list[dict[str, float]]] = {}
    for row in rows:
        name = " ".join([row["model"], *(f"{k}={v}" for k, v in row["settings"].items())])
        groups.setdefault((row["records"], row["split"], name), []).append(row["figures"])
    for key, cells in sorted(groups.items()):
        ways = sorted({name.split("@")[0] for cell in cells for name in cell if "@" in name})
        for way in ways:
            found = [spread([cell.get(f"{way}@{b}") for cell in cells]) for b in BUDGETS]
            source = "pca_there" if way.endswith("_there") else "pca"
            none = way.startswith(("scratch", "rounds"))
            at_0 = "" if none else spread([cell.get(source) for cell in cells])
            lines.append([*key, way, str(len(cells)), at_0, *found])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = arguments(__doc__, ["xgb", "attention"], ["by_target"])
    parser.set_defaults(without="none")
    run(parser.parse_args(), __file__, figures_of, table)


if __name__ == "__main__":
    main()
