"""What pruning keeps of a model's figures, beside random subsets of any size.

    python benchmarks/pruning.py run --records DIR --split by_task --out FILE.jsonl
    python benchmarks/pruning.py table --out FILE.jsonl

`run` trains the default model on the whole training side, on what `hetfeat prune` keeps of it, on
what the paper's rule keeps, and on random subsets; all are judged on the same test side, with the
same hyperparameters and the same valid side to stop by. Each seed has a split of its own, unless
the store names evaluation tasks. It adds a line a training to FILE and skips
what is there: interrupt it and run it again. `table` prints Markdown; docs/experiments
has the last.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from hetfeat.dataset.files import end_torn_line, json_lines
from hetfeat.dataset.sidecar_files import evaluation_tasks
from hetfeat.dataset.splits import split_examples
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.models.aggregate import flat_features
from hetfeat.models.gbdt import XgbModel
from hetfeat.models.labels import best_latencies, group_codes, labels
from hetfeat.models.metrics import by_group, pairwise_accuracy
from hetfeat.models.metrics_topk import eligible_groups, top_k
from hetfeat.models.pruned import kept_by_pruning

TOPS = ("top1", "top5")
OURS = ("pruned", "paper")
CURVE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
PRUNED = (0.55, 0.4)
RESAMPLES = 2000


@dataclass(frozen=True)
class Folded:
    """Takes the place of a batch: its flat features, computed once for all trainings."""

    flat: Any
    task: Any
    hardware: Any

    def __len__(self) -> int:
        return len(self.flat)

    def __getattr__(self, part: str) -> Any:
        """Whatever part of a batch is checked to be finite."""
        return self.flat[:, :1]

    def pieces(self) -> list["Folded"]:
        return [self]

    def loaded(self) -> "Folded":
        return self

    def take(self, index: Any) -> "Folded":
        return Folded(self.flat[index], self.task[index], self.hardware[index])


Keep = Callable[[Examples, float, int], Any]


def random_subset(train: Examples, fraction: float, seed: int) -> Any:
    drawn = np.random.default_rng([seed, 1]).permutation(len(train))
    return np.sort(drawn[: round(fraction * len(train))])


def paper_rule(train: Examples, fraction: float, seed: int) -> Any:
    """Section 3.2 to the letter: the slowest fifth of each task goes, then sampling by FLOPs.

    Each task on each device keeps in proportion to its programs and to the logarithm of its FLOPs;
    among them a program is drawn the more likely the faster it is.
    """
    rng = np.random.default_rng([seed, 2])
    flops = train.batch.task[:, 0].astype(np.float64)
    groups = list(by_group(group_codes(train)[0]))
    fast = [rows[np.argsort(train.latency_s[rows])] for rows in groups]
    fast = [rows[: max(1, int(0.8 * np.isfinite(train.latency_s[rows]).sum()))] for rows in fast]
    weight = np.array([len(rows) * flops[rows[0]] for rows in fast])
    sizes, wanted = np.array([len(rows) for rows in fast]), round(fraction * len(train))
    scale = 1.0
    for _ in range(60):  # what full tasks cannot take, the others do
        scale *= wanted / np.minimum(sizes, scale * weight / weight.sum() * wanted).sum()
    quota = np.minimum(sizes, np.round(scale * weight / weight.sum() * wanted)).astype(int)
    kept = []
    for rows, count in zip(fast, quota, strict=True):
        chance = 1 / train.latency_s[rows]
        kept.append(rng.choice(rows, count, replace=False, p=chance / chance.sum()))
    return np.sort(np.concatenate(kept))


METHODS: dict[str, Keep] = {
    "pruned": kept_by_pruning,
    "paper": paper_rule,
    "random": random_subset,
}


def trial(
    sides: tuple[Examples, Examples, Examples], kept: Any, fraction: float, seed: int
) -> dict[str, Any]:
    """Trains on what is kept; figures of each test task, so that tasks can be drawn again."""
    train, valid, test = sides
    groups, _ = group_codes(test)
    model = XgbModel.for_effort("standard", seed)
    with mock.patch("hetfeat.models.aggregate.flat_features", lambda batch: batch.flat):
        start = time.process_time()
        model.fit(train.take(kept), valid)
        seconds = time.process_time() - start
        scores = model.predict(test.batch)
    y = labels(test, best_latencies(*sides))  # the whole training side: the same for all methods
    pca, tasks = [], []
    for rows in by_group(groups):
        found = pairwise_accuracy(scores[rows], test.latency_s[rows], groups[rows])
        if found.groups:
            pca.append(found.value)
            tasks.append(str(test.task[rows[0]]))
    large = eligible_groups(groups, y > 0)[0]
    tops = {f"top{k}": [top_k(scores[r], y[r], groups[r], k).value for r in large] for k in (1, 5)}
    return {"records": len(kept), "cpu_s": seconds, "pca": pca, "pca_tasks": tasks, **tops}


def jobs(curve: Sequence[float], seeds: int) -> Iterator[tuple[str, float, int]]:
    """What is compared first, then the paper's rule and the rest of the curve."""
    for seed in range(seeds):
        yield "all", 1.0, seed
        yield from itertools.product(("pruned", "random"), PRUNED, [seed])
    for seed in range(seeds):
        yield from itertools.product(["paper"], PRUNED, [seed])
        yield from (("random", share, seed) for share in curve if share not in PRUNED)


def folded_examples(store: RecordStore, tasks: int | None, measured: int | None) -> Examples:
    examples = some_tasks(assemble(store).examples, tasks)
    if measured:
        examples = measured_often(examples, measured)
    batch = examples.batch
    return replace(examples, batch=Folded(flat_features(batch), batch.task, batch.hardware))


def some_tasks(examples: Examples, count: int | None) -> Examples:
    names = np.random.default_rng(0).permutation(np.unique(examples.task.astype(str)))
    return examples.take(np.flatnonzero(np.isin(examples.task.astype(str), names[:count])))


def measured_often(examples: Examples, count: int) -> Examples:
    """Of each task that a device has so many programs of, so many drawn at random."""
    rng = np.random.default_rng(0)
    often = [rows for rows in by_group(group_codes(examples)[0]) if len(rows) >= count]
    print(f"{len(often)} tasks x {count} measurements", flush=True)
    drawn = [rng.choice(rows, count, replace=False) for rows in often]
    return examples.take(np.sort(np.concatenate(drawn)))


def run(given: argparse.Namespace) -> None:
    store = RecordStore.open(given.records)
    examples = folded_examples(store, given.tasks, given.measured)
    networks, holdout = store.networks(), tuple(given.holdout)
    if given.split == "by_task" and not holdout and (dense := evaluation_tasks(store.path)):
        networks["evaluation"], holdout = dict.fromkeys(dense, 1), ("evaluation",)
    head = {"store": given.name or given.records.name, "split": given.split}
    head |= {"digest": store.digest(), "holdout": given.holdout, "tasks": given.tasks}
    head["measured"] = given.measured
    given.out.parent.mkdir(parents=True, exist_ok=True)
    done = {line_key(line) for line in lines_of(given.out)}
    for method, fraction, seed in jobs(given.curve, given.seeds):
        line = head | {"method": method, "fraction": fraction, "seed": seed}
        if line_key(line) in done:
            continue
        split = split_examples(examples, given.split, seed, holdout, networks)
        sides = tuple(examples.take(side) for side in (split.train, split.valid, split.test))
        kept = np.arange(len(split.train))
        if method != "all":
            kept = METHODS[method](sides[0], fraction, seed)
        with given.out.open("a") as file:
            file.write(json.dumps(line | trial(sides, kept, fraction, seed)) + "\n")


def line_key(line: dict[str, Any]) -> str:
    names = ("digest", "tasks", "measured", "split", "holdout", "method", "fraction", "seed")
    return json.dumps([line.get(name) for name in names])


def lines_of(path: Path) -> list[dict[str, Any]]:
    end_torn_line(path)
    return list(json_lines(path))


Trials = dict[tuple[str, float], dict[int, dict[str, Any]]]
"""Method and fraction -> seed -> line."""


def table(given: argparse.Namespace) -> None:
    sets: dict[tuple[str, str], Trials] = {}
    for line in lines_of(given.out):
        trials = sets.setdefault((line["store"], line["split"]), {})
        trials.setdefault((line["method"], line["fraction"]), {})[line["seed"]] = line
    columns = ("trained on", "records", "PCA", "less all", "less random", "top-1", "top-5", "CPU s")
    for (store, split), trials in sorted(sets.items()):
        print(f"\n{store}, {split}\n\n| {' | '.join(columns)} | like a random |")
        print("| --- " * (len(columns) + 1) + "|")
        order = {name: i for i, name in enumerate(("all", *METHODS))}
        for row in sorted(trials, key=lambda row: (order[row[0]], -row[1])):
            print(row_of(trials, row))


def row_of(trials: Trials, row: tuple[str, float]) -> str:
    own = trials[row].values()
    pca, top1, top5 = (np.mean([np.mean(x[name]) for x in own]) for name in ("pca", *TOPS))
    others = [("all", 1.0)] * (row[0] != "all") + [("random", row[1])] * (row[0] in OURS)
    less = [difference(trials, row, other) for other in others] + ["", ""]
    cells = [f"{row[0]} {row[1]:.0%}", f"{next(iter(own))['records']:,}", f"{pca:.4f}", *less[:2]]
    cells += [f"{top1:.3f}", f"{top5:.3f}", f"{np.mean([x['cpu_s'] for x in own]):.1f}"]
    return f"| {' | '.join(cells)} | {matching_share(trials, row) if row[0] in OURS else ''} |"


def difference(trials: Trials, row: tuple[str, float], other: tuple[str, float]) -> str:
    """Mean difference of PCA with its 95 % interval."""
    if not (values := pca_of(trials, [row, other])):
        return ""
    found = [own - theirs for own, theirs in resampled(*values)]
    low, high = np.quantile(found[1:], [0.025, 0.975])
    return f"{found[0]:+.4f} ({low:+.4f} to {high:+.4f})"


def matching_share(trials: Trials, row: tuple[str, float]) -> str:
    """The smallest random subset as good in PCA, with its 95 % interval."""
    curve = sorted((r for r in trials if r[0] == "random"), key=lambda r: r[1]) + [("all", 1.0)]
    if not (values := pca_of(trials, [row, *curve])):
        return ""
    shares = [share for _, share in curve]
    found = [crossing(shares, rest, own) for own, *rest in resampled(*values)]
    low, high = np.quantile(found[1:], [0.025, 0.975], method="nearest")
    return f"{percent(found[0])} ({percent(low)} to {percent(high)})"


def pca_of(trials: Trials, rows: list[tuple[str, float]]) -> Any:
    """PCA of each row on each test task, [rows, tasks], and the tasks; of the seeds all have."""
    seeds = sorted(set.intersection(*(set(trials.get(row, ())) for row in rows)))
    if not seeds:
        return None
    values = [np.concatenate([trials[row][seed]["pca"] for seed in seeds]) for row in rows]
    return np.array(values), np.concatenate([trials[rows[0]][s]["pca_tasks"] for s in seeds])


def resampled(values: Any, tasks: Any) -> Iterator[Any]:
    """Means of the rows: first as they are, then with tasks drawn again.

    A task is drawn with all its devices and seeds: these are no further tasks.
    """
    _, task = np.unique(tasks, return_inverse=True)
    sums = np.array([np.bincount(task, weights=row) for row in values])
    counts = np.bincount(task)
    yield values.mean(axis=1)
    rng = np.random.default_rng(0)
    for _ in range(RESAMPLES):
        drawn = rng.integers(0, len(counts), len(counts))
        yield sums[:, drawn].sum(axis=1) / counts[drawn].sum()


def crossing(shares: list[float], curve: Any, value: float) -> float:
    """Where the curve, made to rise, first reaches a value; infinite where it never does."""
    rising = np.maximum.accumulate(curve)
    if value > rising[-1]:
        return np.inf
    at = int(np.searchsorted(rising, value))
    if at == 0:
        return shares[0]
    step = (value - rising[at - 1]) / (rising[at] - rising[at - 1])
    return float(shares[at - 1] + step * (shares[at] - shares[at - 1]))


def percent(share: float) -> str:
    return f"{share:.0%}" if np.isfinite(share) else "more than all"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["run", "table"])
    parser.add_argument("--out", type=Path, default=Path("build/pruning.jsonl"))
    parser.add_argument("--records", type=Path)
    parser.add_argument("--name", help="of the records in the table, by default the folder's")
    parser.add_argument("--tasks", type=int, help="only so many, drawn at random")
    parser.add_argument("--measured", type=int, help="only tasks with so many programs a device")
    parser.add_argument("--split", default="by_task")
    parser.add_argument("--holdout", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--curve", type=float, nargs="*", default=CURVE)
    given = parser.parse_args()
    if given.action == "table":
        table(given)
    elif given.records is None:
        parser.error("run needs --records DIR")
    else:
        run(given)


if __name__ == "__main__":
    main()
