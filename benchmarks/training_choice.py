"""Which programs to train on, for a model that picks on tasks of which nothing is measured.

    python benchmarks/training_choice.py --public DIR --out FILE [--devices NAME,...]
        [--seeds 0,1,2] [--budgets 8,16,32]
    python benchmarks/training_choice.py --out FILE --table

`--public` is the store that `model_tables.py` imports the auto-scheduler's records into
(`OUT/public-whole`). A device's tasks are split by task. Of each that is trained on, up to POOL
programs may be measured, and N of them are. All programs of the others are tested, up to TESTED.
The first quarter of N is random for each way:

- `random`: the rest is, too.
- `prior`: a model of the first quarter weighs the programs that the rest is drawn of, as
  prior-guided sampling of the one-shot tuner (Ryu et al., CC 2022) does.
- `explored`: three times a model of what is there picks the programs it scores best, as
  exploration-based training of the same tuner does.
- `guided`: three times such a model picks half of the programs and chance the other half, as
  `hetfeat collect` does.

FILE has a line for each device, seed and N; those that it holds are not made again.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import transfer_ways
from everywhere import numbers
from measured_choice import tables
from paired import FIGURES, of_tasks, units_of
from search import read_lines

from hetfeat.dataset.splits import split_examples
from hetfeat.features.batch import Examples
from hetfeat.models.base import CostModel
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group

POOL, TESTED, LEAST = 128, 256, 64
"""Most programs of a task to measure and to test, and fewest that a task must have."""
ROUNDS = 3
"""How often a model is trained and asked anew."""

Rows = np.ndarray
Pick = Callable[[np.ndarray, Rows, int, np.random.Generator], Rows]
"""Chooses some of the rows of a task, by their margins."""


def best(margins: np.ndarray, rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    return rows[np.argsort(-margins, kind="stable")[:count]]


def half_best(margins: np.ndarray, rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    chosen = best(margins, rows, count // 2, rng)
    others = rows[~np.isin(rows, chosen)]
    return np.concatenate([chosen, rng.choice(others, count - len(chosen), replace=False)])


def weighed(margins: np.ndarray, rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    weights = np.exp((margins - margins.max()) / max(margins.std(), 1e-9))
    return rng.choice(rows, count, replace=False, p=weights / weights.sum())


WAYS: dict[str, tuple[Pick, int] | None] = {
    "random": None,
    "prior": (weighed, 1),
    "explored": (best, ROUNDS),
    "guided": (half_best, ROUNDS),
}
"""How programs are picked, and in how many rounds."""


def fitted(examples: Examples, check: Examples, seed: int) -> CostModel:
    model = build("xgb", "standard", seed, {})
    model.fit(examples, check)
    return model


def collected(way: str, open_: Examples, check: Examples, count: int, seed: int) -> Examples:
    """The programs that a way measures, `count` of each task."""
    rng = np.random.default_rng(seed)
    tasks = [rng.permutation(rows) for rows in by_group(group_codes(open_)[0])]
    if (picking := WAYS[way]) is None:
        return open_.take(np.concatenate([rows[:count] for rows in tasks]))
    pick, rounds = picking
    taken = [rows[: count // 4] for rows in tasks]
    for number in range(rounds):
        more = (count - count // 4) * (number + 1) // rounds + count // 4
        model = fitted(open_.take(np.concatenate(taken)), check, seed)
        margins = np.log(model.predict(open_.batch))
        for i, rows in enumerate(tasks):
            left = rows[~np.isin(rows, taken[i])]
            chosen = pick(margins[left], left, more - len(taken[i]), rng)
            taken[i] = np.concatenate([taken[i], chosen])
    return open_.take(np.concatenate(taken))


def limited(examples: Examples, most: int, seed: int) -> Examples:
    """At most so many programs of each task that has enough."""
    rng = np.random.default_rng(seed)
    tasks = by_group(group_codes(examples)[0])
    chosen = [rng.permutation(rows)[:most] for rows in tasks if len(rows) >= LEAST]
    return examples.take(np.concatenate(chosen))


def of_device(given: argparse.Namespace, device: str, seed: int, budgets: list[int]) -> None:
    examples = transfer_ways.records_of(given, [device])
    ran = examples.take(np.flatnonzero(np.isfinite(examples.latency_s)))
    split = split_examples(ran, "by_task", seed)
    open_ = limited(ran.take(split.train), POOL, seed)
    tested = limited(ran.take(split.test), TESTED, seed)
    for count in budgets:
        started, figures = time.process_time(), {}
        check = limited(ran.take(split.valid), count, seed)
        for way in WAYS:
            model = fitted(collected(way, open_, check, count, seed), check, seed)
            told = of_tasks(np.log(model.predict(tested.batch)), tested)
            figures[way] = {figure: getattr(told, figure).tolist() for figure in FIGURES}
        line = {"device": device, "seed": seed, "budget": count, "figures": figures}
        line |= {"units": units_of(tested).tolist(), "open": len(open_), "tested": len(tested)}
        with given.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{device} {count}: {time.process_time() - started:.0f} s", file=sys.stderr)


def run(given: argparse.Namespace) -> None:
    done = {(line["device"], line["seed"], line["budget"]) for line in read_lines(given.out)}
    for device in given.devices:
        for seed in given.seeds:
            if missing := [n for n in given.budgets if (device, seed, n) not in done]:
                of_device(given, device, seed, missing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--public", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--devices", type=lambda text: text.split(","), default=[*transfer_ways.OLDER.values()]
    )
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2])
    parser.add_argument("--budgets", type=numbers, default=[8, 16, 32])
    parser.add_argument("--table", action="store_true", help="only print what FILE holds")
    given = parser.parse_args()
    if not given.table:
        run(given)
    print(tables(read_lines(given.out), WAYS, "device"))


if __name__ == "__main__":
    main()
