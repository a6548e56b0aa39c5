"""PCA on a held-out device after 0, 8, 32 and 128 measurements of a task.

    python benchmarks/few_shot.py --records DIR --out FILE [--models xgb,attention] [--seeds 0,1,2]
        [--holdout DEVICE,...] [--splits by_target,by_target_new]
    python benchmarks/few_shot.py --out FILE --table

A cell is a model, a held-out device and a seed, in a process of its own and one JSON line of FILE,
as in `models.py`; an interrupted run goes on. by_target_new tests on tasks that no device taught.
Each task of more than 129 programs on the device is measured in a random order: the first N are
learnt from, those after the 128th are tested on whatever N is. `support` is the source model with
the measured as its support set, without a gradient step; `fine_tuned` goes on learning from them
for as many rounds as `hetfeat transfer` would choose; `scratch` has no source.
"""

import numpy as np
from models import Cell, arguments, run, sides_of, spread

from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group
from hetfeat.transfer.finetune import (
    MOST_FOLDS,
    FewShot,
    fine_tuned,
    mean_pca,
    strongest,
    tuned_pca,
)

BUDGETS = (8, 32, 128)


def measured_first(device: Examples, seed: int) -> list[FewShot]:
    """For each budget the measured programs; the test side is the same for all."""
    rng = np.random.default_rng(seed)
    order = np.full(len(device), -1)
    for rows in by_group(group_codes(device)[0]):
        if len(rows) >= BUDGETS[-1] + 2:
            order[rng.permutation(rows)] = np.arange(len(rows))
    test = device.take(np.flatnonzero(order >= BUDGETS[-1]))
    if not len(test):
        raise SystemExit(f"no task of {BUDGETS[-1] + 2} programs on this device: collect more")
    few = []
    for budget in BUDGETS:
        rows = np.flatnonzero((order >= 0) & (order < budget))
        few.append(FewShot(device.take(rows), order[rows] % MOST_FOLDS, test))
    return few


def figures_of(cell: Cell, store: RecordStore) -> dict[str, float]:
    """PCA on the test side by way and budget, as `way@budget`; `pca` is the source's alone."""
    train, valid, device = sides_of(assemble(store).examples, cell)
    few = measured_first(device, cell.seed)
    test = few[0].test
    source = build(cell.model, cell.effort, cell.seed, cell.settings)
    source.fit(train, valid)
    figures = {"pca": mean_pca(source.predict(test.batch), test)}
    figures |= {"tasks": len(set(test.task.tolist())), "test_records": len(test)}
    for budget, data in zip(BUDGETS, few, strict=True):
        rounds = strongest(tuned_pca(source, data))
        tuned = fine_tuned(source, data.measured, rounds)
        scores = {
            "fine_tuned": tuned.predict(test.batch),
            "scratch": from_scratch(cell, data).predict(test.batch),
        }
        if cell.model == "attention":
            scores["support"] = source.predict(test.batch, data.measured)
            scores["fine_tuned_support"] = tuned.predict(test.batch, data.measured)
        figures |= {f"{way}@{budget}": mean_pca(found, test) for way, found in scores.items()}
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
            none = way in ("scratch", "rounds")
            at_0 = "" if none else spread([cell["pca"] for cell in cells])
            lines.append([*key, way, str(len(cells)), at_0, *found])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = arguments(__doc__, ["xgb", "attention"], ["by_target"])
    parser.set_defaults(without="none")
    run(parser.parse_args(), __file__, figures_of, table)


if __name__ == "__main__":
    main()
