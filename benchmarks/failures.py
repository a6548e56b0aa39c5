"""What failed programs teach trees: as slower ones of pairs, by y = 0 alone (as built), or nothing.

    python benchmarks/failures.py --records DIR --out FILE [--models xgb,lgbm] [--seeds 0,1,2]
        [--splits within_task,by_task] [--jobs 2]
    python benchmarks/failures.py --out FILE --table

At most 120 programs of a task on a device, drawn at random, take part. `failed_first` is the share
of failures in the tenth of a task that a model puts first, `failed` that of all; means over the
tasks of the test side that have some of both. Cells and FILE are those of `models.py`, the last run
is in docs/experiments.
"""

from dataclasses import replace

import models
import numpy as np

from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.models.evaluate import evaluate
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group

MOST = 120
SLOWER = 1e6
"""Times the slowest program: y is 0 to six digits."""


def in_pairs(side: Examples) -> Examples:
    latency_s = side.latency_s
    return replace(side, latency_s=np.nan_to_num(latency_s, nan=SLOWER * np.nanmax(latency_s)))


def left_out(side: Examples) -> Examples:
    return side.take(np.flatnonzero(np.isfinite(side.latency_s)))


VARIANTS = {"none": lambda side: side, "in_pairs": in_pairs, "left_out": left_out}


def sample(examples: Examples) -> Examples:
    rng = np.random.default_rng(0)
    drawn = [rng.permutation(rows)[:MOST] for rows in by_group(group_codes(examples)[0])]
    return examples.take(np.sort(np.concatenate(drawn)))


def failed_first(scores: np.ndarray, test: Examples) -> tuple[float, float]:
    first, of_all = [], []
    for rows in by_group(group_codes(test)[0]):
        failed = np.isnan(test.latency_s[rows])
        if 0 < failed.sum() < len(rows):
            best = np.argsort(-scores[rows], kind="stable")[: max(1, len(rows) // 10)]
            first.append(failed[best].mean())
            of_all.append(failed.mean())
    return float(np.mean(first)), float(np.mean(of_all))


def figures_of(cell: models.Cell, store: RecordStore) -> dict[str, float]:
    train, valid, test = models.sides_of(sample(assemble(store).examples), cell)
    train, valid = (VARIANTS[cell.without](side) for side in (train, valid))
    model = build(cell.model, cell.effort, cell.seed, cell.settings)
    model.fit(train, valid)
    judged = evaluate(model, train, valid, test, store.networks(), cell.seed).metrics
    first, of_all = failed_first(model.predict(test.batch), test)
    return {**judged, "failed_first": first, "failed": of_all}


FIGURES = ("pca", "rmse", "top1", "failed_first", "failed")


def table(rows: list[dict]) -> str:
    groups: dict[tuple[str, ...], list[dict[str, float]]] = {}
    for row in rows:
        groups.setdefault((row["split"], row["model"], row["without"]), []).append(row["figures"])
    lines = ["split | model | failures | cells | " + " | ".join(FIGURES)]
    lines.append(" | ".join(["---"] * (len(FIGURES) + 4)))
    for key, cells in sorted(groups.items()):
        shown = [models.spread([cell[name] for cell in cells]) for name in FIGURES]
        lines.append(" | ".join([*key, str(len(cells)), *shown]))
    return "\n".join(f"| {line} |" for line in lines)


def main() -> None:
    parser = models.arguments(__doc__, ["xgb"], ("within_task", "by_task"))
    parser.add_argument("--without", default=",".join(VARIANTS))
    models.run(parser.parse_args(), __file__, figures_of, table)


if __name__ == "__main__":
    main()
