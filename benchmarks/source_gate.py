"""Which test of a source's own valid side tells sources that know something from those that do not?

    python benchmarks/source_gate.py --out FILE [--devices NAME,...] [--seeds 0,1] [--effort quick]
    python benchmarks/source_gate.py --out FILE --table

A source is trained of one device's packaged records: as they are, with the latencies of each task
shuffled, or of every second task. Each is a line of FILE with the figures of its valid side, and is
not trained again. The tests are then asked about valid sides of 1 task and more, drawn from these.
`inverted` and `wrong profile` have a valid side that agrees with them: of them the file has what
they say of another device, which is what the gate asks next.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from search import read_lines, table
from transfer_pairs import shuffled

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.splits import split_examples, task_units
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group, pairs_of_groups
from hetfeat.transfer.finetune import mean_pca

KINDS = ("as it is", "shuffled", "half shuffled", "inverted", "wrong profile")
KNOWS = ("as it is", "half shuffled")
SIZES = (1, 2, 3, 5, 8)
PERMUTATIONS, DRAWS = 400, 200
OLD_LEAST = 0.62
LEVEL = 0.01


def altered(kind: str, examples: Examples, other: Examples, seed: int) -> Examples:
    """A source's records as somebody might have spoilt them."""
    if kind == "shuffled":
        return shuffled(examples, seed)
    if kind == "half shuffled":
        tasks = sorted(set(examples.task.tolist()))
        wrong = np.isin(examples.task.astype(str), tasks[seed % 2 :: 2])
        lies = shuffled(examples, seed).latency_s
        return replace(examples, latency_s=np.where(wrong, lies, examples.latency_s))
    if kind == "inverted":
        return replace(examples, latency_s=1e-9 / examples.latency_s)
    if kind == "wrong profile":
        batch = examples.batch.loaded()
        hardware = np.repeat(other.batch.loaded().hardware[:1], len(examples), axis=0)
        return replace(examples, batch=replace(batch, hardware=hardware))
    return examples


def line_of(kind: str, examples: Examples, other: Examples, effort: str, seed: int) -> dict:
    """A source trained, its valid side task by task, and how it orders another device."""
    records = altered(kind, examples, other, seed)
    split = split_examples(records, "by_task", seed)
    train = records.take(np.concatenate([split.train, split.test]))
    valid = records.take(split.valid)
    model = build("xgb", effort, seed, {})
    model.fit(train, valid)
    scores, groups = model.predict(valid.batch), group_codes(valid)[0]
    units, rng = task_units(valid), np.random.default_rng(seed)
    found: dict[str, Any] = {"share": [], "unit": [], "permuted": []}
    for rows in by_group(groups):
        own = np.zeros(len(rows), np.int64)
        (pairs,) = pairs_of_groups(scores[rows], valid.latency_s[rows], own)
        if pairs.pairs:
            found["share"].append(pairs.share)
            found["unit"].append(int(units[rows[0]]))
            found["permuted"].append(permuted(scores[rows], valid.latency_s[rows], rng))
    return {**found, "elsewhere": mean_pca(model.predict(other.batch), other)}


def permuted(scores, latency_s, rng) -> list[float]:
    """Shares of right pairs of one task with its labels in other orders."""
    own = np.zeros(len(scores), np.int64)
    orders = (rng.permutation(latency_s) for _ in range(PERMUTATIONS))
    return [round(pairs_of_groups(scores, order, own)[0].share, 4) for order in orders]


def tests_of(line: dict, rows: np.ndarray) -> Iterator[tuple[str, bool]]:
    """What each test says of some tasks of a valid side: whether the source knows something."""
    shares = np.array(line["share"])[rows]
    yield "at least 0.62", bool(shares.mean() >= OLD_LEAST)
    error = shares.std(ddof=1) / len(shares) ** 0.5 if len(shares) > 1 else np.inf
    yield "two standard errors", bool(shares.mean() - 2 * error > 0.5)
    chance = np.array(line["permuted"])[rows].mean(axis=0)
    error = np.linalg.norm(np.std(np.array(line["permuted"])[rows], axis=1)) / len(shares)
    for count in (2, 2.5, 3):
        yield f"{count} errors of chance", bool(shares.mean() - count * error > 0.5)
    as_good = (1 + np.sum(chance >= shares.mean())) / (1 + len(chance))
    yield "permuted labels", bool(as_good <= LEVEL)


def run(given: argparse.Namespace) -> None:
    done = {(line["device"], line["kind"], line["seed"]) for line in read_lines(given.out)}
    store = RecordStore.open(packaged_store())
    names = given.devices or sorted(store.devices())
    loaded = {name: assemble(store, devices=[name]).examples for name in names}
    for seed in given.seeds:
        for number, name in enumerate(names):
            other = loaded[names[number - 1]]
            for kind in KINDS:
                if (name, kind, seed) in done:
                    continue
                line = line_of(kind, loaded[name], other, given.effort, seed)
                head = {"device": name, "other": names[number - 1], "kind": kind, "seed": seed}
                with given.out.open("a") as file:
                    file.write(json.dumps({**head, "effort": given.effort, **line}) + "\n")
                print(*head.values(), f"{np.mean(line['share']):.3f}", file=sys.stderr, flush=True)


def tables(lines: list[dict]) -> str:
    """How often each test keeps a source, by what it is and by the size of its valid side."""
    rng = np.random.default_rng(0)
    rows = []
    for kind in ("shuffled", *KNOWS):
        own = [line for line in lines if line["kind"] == kind]
        for size in (*SIZES, None):
            said: dict[str, list[bool]] = {}
            for line in own:
                tasks = len(line["share"])
                for _ in range(DRAWS if size else 1):
                    chosen = rng.permutation(tasks)[: size or tasks]
                    for name, keeps in tests_of(line, chosen):
                        said.setdefault(name, []).append(keeps)
            rates = {name: np.mean(keeps) for name, keeps in said.items()}
            rows.append([kind, str(size or "all"), *(f"{rate:.3f}" for rate in rates.values())])
    head = ["source", "valid tasks", *rates]
    kept = table(head, rows)
    figures = []
    for kind in KINDS:
        own = [line for line in lines if line["kind"] == kind]
        spread = [
            f"{np.mean(v):.3f} ({min(v):.3f} to {max(v):.3f})"
            for v in ([np.mean(one["share"]) for one in own], [one["elsewhere"] for one in own])
        ]
        figures.append([kind, str(len(own)), *spread])
    figure_head = ["source", "trained", "PCA, own valid side", "PCA, another device"]
    return f"Share of the sources that are kept\n\n{kept}\n\n{table(figure_head, figures)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--devices", type=lambda text: text.split(","), default=[])
    parser.add_argument("--seeds", type=lambda text: [*map(int, text.split(","))], default=[0, 1])
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--table", action="store_true", help="only show what FILE holds")
    given = parser.parse_args()
    if not given.table:
        run(given)
    print(tables(read_lines(given.out)))


if __name__ == "__main__":
    main()
