"""Which programs of a new device to measure: what each choice is worth to a model that transfers.

    python benchmarks/measured_choice.py --public DIR --out FILE [--pairs NAME,...] [--seeds 0,1]
        [--budgets 4,8,16]
    python benchmarks/measured_choice.py --out FILE --table

Pairs, tasks and `--public` are those of `transfer_ways.py`. Of each task of the target up to TESTED
programs at random are tested, the same ones for all choices; of up to POOL others N are measured.
The source's records and the measured ones are learnt together, as `hetfeat transfer` does with
`--source-records`. The choices, of which only `random` asks no model:

- `best`: those that the source scores best; `half best`: half of them, the others at random.
- `levels`: at equal steps of the source's order, from its best to its worst.
- `apart`: each as far as it can be from those chosen before, in the 50 features that matter most to
  the source, in steps of what is usual among the programs of the task.
- `unsure`: those that three sources, of other draws, score most differently.

FILE has a line for each pair, seed and N; those that it holds are not made again.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import transfer_ways as ways
from everywhere import numbers
from paired import FIGURES, gain, mean, of_tasks, shown, units_of
from search import read_lines, table

from hetfeat.dataset.splits import split_examples
from hetfeat.features.batch import Examples
from hetfeat.models.aggregate import flat_features
from hetfeat.models.base import CostModel
from hetfeat.models.engines.trees import most_important
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group
from hetfeat.transfer.joint import learnt_together, thinned

POOL, FEATURES, SOURCES = 64, 50, 3
PAIRS = ("V100 to K80", "K80 to V100", "Zen 4 to Zen 5", "Zen 3 to Zen 5")


class Pool:
    """The programs of a task that may be measured, and what sources say of them.

    Args:
        margins: Margins of each source, float64 [sources, n].
        features: Features that matter to the first one, float32 [n, features].
        seed: Seed of what is drawn at random.
    """

    def __init__(self, margins: np.ndarray, features: np.ndarray, seed: int) -> None:
        self._margins = margins
        steps = features.std(axis=0)
        self._features = features[:, steps > 0] / steps[steps > 0]
        self._drawn = np.random.default_rng(seed).permutation(margins.shape[1])
        self._order = np.argsort(-margins[0], kind="stable")

    def random(self, count: int) -> np.ndarray:
        return self._drawn[:count]

    def best(self, count: int) -> np.ndarray:
        return self._order[:count]

    def half_best(self, count: int) -> np.ndarray:
        best = self._order[: count // 2]
        others = self._drawn[~np.isin(self._drawn, best)]
        return np.concatenate([best, others[: count - len(best)]])

    def levels(self, count: int) -> np.ndarray:
        return self._order[np.linspace(0, len(self._order) - 1, count).round().astype(int)]

    def apart(self, count: int) -> np.ndarray:
        chosen = [int(self._order[0])]
        nearest = np.full(len(self._order), np.inf)
        while len(chosen) < count:
            away = ((self._features - self._features[chosen[-1]]) ** 2).sum(axis=1)
            nearest = np.minimum(nearest, away)
            nearest[chosen] = -1
            chosen.append(int(np.argmax(nearest)))
        return np.array(chosen)

    def unsure(self, count: int) -> np.ndarray:
        return np.argsort(-self._margins.std(axis=0), kind="stable")[:count]


CHOICES: dict[str, Callable[[Pool, int], np.ndarray]] = {
    "random": Pool.random,
    "best": Pool.best,
    "half best": Pool.half_best,
    "levels": Pool.levels,
    "apart": Pool.apart,
    "unsure": Pool.unsure,
}


def divided(examples: Examples, seed: int, most: int) -> tuple[Examples, Examples]:
    """Programs that may be measured, and those that are tested, of tasks that have enough."""
    rng = np.random.default_rng(seed)
    ran = examples.take(np.flatnonzero(np.isfinite(examples.latency_s)))
    tasks = [rng.permutation(rows) for rows in by_group(group_codes(ran)[0])]
    tasks = [rows for rows in tasks if len(rows) >= most + 16]
    tasks = [tasks[i] for i in rng.permutation(len(tasks))[: ways.TASKS]]
    pooled = [min(POOL, max(most, len(rows) // 2)) for rows in tasks]
    return (
        ran.take(np.concatenate([rows[:n] for rows, n in zip(tasks, pooled, strict=True)])),
        ran.take(
            np.concatenate(
                [rows[n : n + ways.TESTED] for rows, n in zip(tasks, pooled, strict=True)]
            )
        ),
    )


def pools_of(sources: list[CostModel], open_: Examples, seed: int) -> list[tuple[np.ndarray, Pool]]:
    """The rows of each task, and its pool."""
    margins = np.stack([np.log(source.predict(open_.batch)) for source in sources])
    chosen = most_important(sources[0].importance(), "flat", FEATURES) > 0
    features = flat_features(open_.batch.loaded())[:, chosen]
    return [
        (rows, Pool(margins[:, rows], np.nan_to_num(features[rows]), seed))
        for rows in by_group(group_codes(open_)[0])
    ]


def run(given: argparse.Namespace) -> None:
    done = {(line["pair"], line["seed"], line["budget"]) for line in read_lines(given.out)}
    for pair in given.pairs:
        for seed in given.seeds:
            if missing := [n for n in given.budgets if (pair, seed, n) not in done]:
                of_pair(given, pair, seed, missing)


def of_pair(given: argparse.Namespace, pair: str, seed: int, budgets: list[int]) -> None:
    devices, device = ways.PAIRS[pair]
    taught = thinned(ways.records_of(given, devices), ways.TAUGHT, seed)
    open_, tested = divided(ways.records_of(given, [device]), seed, 2 * max(given.budgets))
    split = split_examples(taught, "by_task", seed)
    learn, check = np.concatenate([split.train, split.test]), split.valid
    sources = []
    for number in range(SOURCES):
        source = build("xgb", "standard", SOURCES * seed + number, {})
        source.fit(taught.take(learn), taught.take(check))
        sources.append(source)
    pools = pools_of(sources, open_, seed)
    for count in budgets:
        started, figures = time.process_time(), {}
        for name, choose in CHOICES.items():
            rows = np.sort(np.concatenate([rows[choose(pool, count)] for rows, pool in pools]))
            model = learnt_together(sources[0], "xgb", taught, open_.take(rows), "standard", seed)
            told = of_tasks(np.log(model.predict(tested.batch)), tested)
            figures[name] = {figure: getattr(told, figure).tolist() for figure in FIGURES}
        line = {"pair": pair, "seed": seed, "budget": count, "figures": figures}
        line |= {"units": units_of(tested).tolist(), "open": len(open_), "tested": len(tested)}
        with given.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{pair} {count}: {time.process_time() - started:.0f} s", file=sys.stderr)


def tables(lines: list[dict], choices: Collection[str], where: str = "pair") -> str:
    """What random programs are worth, and by how much each other choice exceeds that."""
    others = [name for name in choices if name != "random"]
    cells = dict.fromkeys((line[where], line["budget"]) for line in lines)
    parts = []
    for figure in FIGURES:
        rows = []
        for place, budget in cells:
            own = [line for line in lines if (line[where], line["budget"]) == (place, budget)]
            units = np.concatenate([line["units"] for line in own])
            told = {
                name: np.concatenate([line["figures"][name][figure] for line in own])
                for name in choices
            }
            over = [shown(gain(told[n], told["random"], units), signed=True) for n in others]
            rows.append([place, str(budget), f"{mean(told['random'], units).mean:.3f}", *over])
        head = [where, "N", "random", *(f"{name}, over random" for name in others)]
        parts.append(f"{figure}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--public", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", type=lambda text: text.split(","), default=[*PAIRS])
    parser.add_argument("--seeds", type=numbers, default=[0, 1])
    parser.add_argument("--budgets", type=numbers, default=ways.BUDGETS)
    parser.add_argument("--table", action="store_true", help="only print what FILE holds")
    given = parser.parse_args()
    if not given.table:
        run(given)
    print(tables(read_lines(given.out), CHOICES))


if __name__ == "__main__":
    main()
