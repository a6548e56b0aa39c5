"""What a source is worth to a device with few measurements of each task, by how both are learnt.

    python benchmarks/transfer_ways.py --public DIR --out FILE [--pairs NAME,...] [--seed 0]
        [--budgets 4,8,16] [--tested 16] [--own STORE]
    python benchmarks/transfer_ways.py --out FILE --table

`--public` is the store that `model_tables.py` imports the auto-scheduler's records into
(`OUT/public-whole`). CPU pairs are of the packaged records, without the final networks; the H100's
and the H200's records are the packaged ones of GPUs, or those of `--own`. Of the target TASKS tasks
are drawn, and N programs of each measured; up to TESTED others of each are tested, the same ones
for every N of `--budgets`, and `--tested` at least. `scratch` with 3 N is what a source is worth if
it is matched.

Ways: `source` as it is, and fine-tuned for some rounds; `together`, one training of the measured
and the source's records; and means of two ways' margins. FILE has a line for each pair and N, with
figures of each task; those that it holds are not made again.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from final_figures import without_final
from paired import FIGURES, gain, mean, of_tasks, shown, units_of
from search import read_lines

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.splits import split_examples
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.models.base import CostModel
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group
from hetfeat.transfer.finetune import (
    FewShot,
    centred,
    fine_tuned,
    from_scratch,
    mean_pca,
)
from hetfeat.transfer.joint import learnt_together, thinned

BUDGETS = [4, 8, 16]
TUNED = {"source": 0, "10 rounds": 10, "30 rounds": 30, "100 rounds": 100, "300 rounds": 300}
CENTRED = ("as they are", "centred")
MEANS = (
    ("source", "scratch"),
    ("together", "scratch"),
    ("together", "100 rounds"),
    ("together", "source"),
)
TASKS, TESTED, TAUGHT, DRAWN = 40, 150, 40, 260
ZEN = "amd-epyc-znver"
PAIRS: dict[str, tuple[tuple[str, ...], str]] = {
    "V100 to K80": (("nvidia-v100",), "nvidia-k80"),
    "Zen 4 to Zen 5": ((f"{ZEN}4-avx2-2t", f"{ZEN}4-sse42-2t"), f"{ZEN}5-avx512-2t"),
    "V100 and K80 to RTX 2080 Ti": (("nvidia-v100", "nvidia-k80"), "nvidia-rtx-2080-ti"),
    "Zen 3 to Zen 5": ((f"{ZEN}3-avx2-2t",), f"{ZEN}5-avx512-2t"),
    "K80 to V100": (("nvidia-k80",), "nvidia-v100"),
    "K80 to a Xeon": (("nvidia-k80",), "intel-xeon-platinum-8358"),
}
OLDER = {"K80": "nvidia-k80", "V100": "nvidia-v100", "RTX 2080 Ti": "nvidia-rtx-2080-ti"}
OWN = {"H100": "nvidia-h100", "H200": "nvidia-h200"}
"""Devices of the project's own records of GPUs."""
PAIRS_OF_OWN: dict[str, tuple[tuple[str, ...], str]] = {
    f"{name} to {own}": (devices, device)
    for own, device in OWN.items()
    for name, devices in [*((n, (d,)) for n, d in OLDER.items()), ("all", tuple(OLDER.values()))]
}


@dataclass(frozen=True)
class Target:
    """A device: what may be measured of it, each task in a random order, and what is tested."""

    measurable: Examples
    order: np.ndarray
    test: Examples

    def first(self, count: int) -> FewShot:
        rows = np.flatnonzero(self.order < count)
        return FewShot(self.measurable.take(rows), self.order[rows] % min(4, count // 2), self.test)


def records_of(given: argparse.Namespace, devices: Sequence[str]) -> Examples:
    """Records of some devices, at most DRAWN of each task."""
    if any(device.startswith(ZEN) for device in devices):
        store = RecordStore.open(packaged_store())
        examples = without_final(assemble(store).examples, store.networks())
        return examples.take(np.flatnonzero(np.isin(examples.device.astype(str), devices)))
    store = given.own if set(devices) <= set(OWN.values()) else given.public
    examples = assemble(RecordStore.open(store), devices=devices).examples
    return thinned(examples, DRAWN, 0)


def target_of(examples: Examples, seed: int, most: int, tested: int) -> Target:
    """Of tasks with enough programs, `most` to measure and at least `tested` to test on."""
    rng = np.random.default_rng(seed)
    ran = examples.take(np.flatnonzero(np.isfinite(examples.latency_s)))
    tasks = [rng.permutation(rows) for rows in by_group(group_codes(ran)[0])]
    tasks = [rows for rows in tasks if len(rows) >= most + tested]
    tasks = [tasks[i] for i in rng.permutation(len(tasks))[:TASKS]]
    order = np.concatenate([np.arange(most) for _ in tasks])
    return Target(
        ran.take(np.concatenate([rows[:most] for rows in tasks])),
        order,
        ran.take(np.concatenate([rows[most : most + TESTED] for rows in tasks])),
    )


def scratch(data: FewShot, seed: int) -> CostModel:
    """The model that `hetfeat transfer` compares with."""
    needed = [
        from_scratch(*data.part(fold)[:2], "xgb", "standard", seed)[1] for fold in range(data.folds)
    ]
    model = build("xgb", "standard", seed, {"rounds": round(float(np.median(needed)))})
    model.fit(data.measured, data.measured)
    return model


def cross_validated(source: CostModel, data: FewShot, seed: int) -> dict[str, dict[str, float]]:
    """PCA of each way on the measured programs, of scores of folds as they are and centred."""
    ways = [*TUNED, "scratch"]
    found = {kind: {way: np.zeros(len(data.measured)) for way in ways} for kind in CENTRED}
    for fold in range(data.folds):
        train, valid, rows = data.part(fold)
        models = {way: fine_tuned(source, train, rounds) for way, rounds in TUNED.items()}
        models["scratch"] = from_scratch(train, valid, "xgb", "standard", seed)[0]
        for way, model in models.items():
            told = model.predict(data.measured.batch)
            found["as they are"][way][rows] = told[rows]
            found["centred"][way][rows] = centred(told, data.measured)[rows]
    return {
        kind: {way: mean_pca(scores, data.measured) for way, scores in each.items()}
        for kind, each in found.items()
    }


def line_of(
    source: CostModel, taught: Examples, target: Target, count: int, given: argparse.Namespace
) -> dict:
    seed = given.seed
    data = target.first(count)
    models = {way: fine_tuned(source, data.measured, rounds) for way, rounds in TUNED.items()}
    models |= {
        "scratch": scratch(data, seed),
        "scratch 3N": scratch(target.first(3 * count), seed),
        "together": learnt_together(source, "xgb", taught, data.measured, "standard", seed),
    }
    margins = {way: np.log(model.predict(target.test.batch)) for way, model in models.items()}
    for one, other in MEANS:
        margins[f"{one} + {other}"] = (margins[one] + margins[other]) / 2
    told = {way: of_tasks(scores, target.test) for way, scores in margins.items()}
    return {
        "budget": count,
        "judged": cross_validated(source, data, seed) if given.judged else {},
        "figures": {
            way: {name: getattr(each, name).tolist() for name in FIGURES}
            for way, each in told.items()
        },
    }


def run(given: argparse.Namespace) -> None:
    done = {(line["pair"], line["seed"], line["budget"]) for line in read_lines(given.out)}
    for pair in given.pairs:
        missing = [n for n in given.budgets if (pair, given.seed, n) not in done]
        if not missing:
            continue
        devices, device = {**PAIRS, **PAIRS_OF_OWN}[pair]
        taught = thinned(records_of(given, devices), TAUGHT, given.seed)
        most = 3 * max(given.budgets)
        target = target_of(records_of(given, [device]), given.seed, most, given.tested)
        split = split_examples(taught, "by_task", given.seed)
        source = build("xgb", "standard", given.seed, {})
        source.fit(taught.take(np.concatenate([split.train, split.test])), taught.take(split.valid))
        for count in missing:
            start = time.process_time()
            line = line_of(source, taught, target, count, given)
            line |= {"pair": pair, "seed": given.seed, "units": units_of(target.test).tolist()}
            line |= {"taught": len(taught), "tested": len(target.test)}
            with given.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{pair} {count}: {time.process_time() - start:.0f} s", file=sys.stderr)


def table(lines: list[dict]) -> str:
    """Markdown: every way's figures, what `together` gains, and what means of ways add to it."""
    ways = [*TUNED, "scratch", "scratch 3N", "together"]
    means = [" + ".join(pair) for pair in MEANS]
    parts = []
    for name in FIGURES:
        head = ["pair", "N", *ways, "over scratch", "over scratch 3N"]
        rows, added = (
            [head, ["---"] * len(head)],
            [["pair", "N", *means], ["---"] * (2 + len(means))],
        )
        for line in lines:
            units = np.array(line["units"])
            own = {way: np.array(told[name]) for way, told in line["figures"].items()}
            both = own["together"]
            gains = [gain(both, own[way], units) for way in ("scratch", "scratch 3N")]
            cells = [f"{mean(own[way], units).mean:.3f}" for way in ways]
            cells += [shown(each, signed=True) for each in gains]
            rows.append([line["pair"], str(line["budget"]), *cells])
            more = [shown(gain(own[way], both, units), signed=True) for way in means]
            added.append([line["pair"], str(line["budget"]), *more])
        parts += [f"{name}", "", *map(_row, rows), "", f"{name} over that of `together`", ""]
        parts += [*map(_row, added), ""]
    judged = [line for line in lines if line["judged"]]
    if judged:
        parts += ["PCA by cross-validation", "", _row(["pair", "N", "scores", *TUNED, "scratch"])]
        parts.append(_row(["---"] * (4 + len(TUNED))))
    for line in judged:
        for kind, told in line["judged"].items():
            figures = [f"{value:.3f}" for value in told.values()]
            parts.append(_row([line["pair"], str(line["budget"]), kind, *figures]))
    return "\n".join(parts)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--public", type=Path)
    parser.add_argument("--own", type=Path, default=packaged_store("gpu-nvidia"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", type=lambda text: text.split(","), default=[*PAIRS])
    parser.add_argument(
        "--budgets", type=lambda text: [int(each) for each in text.split(",")], default=BUDGETS
    )
    parser.add_argument("--tested", type=int, default=16, help="least programs of a task to test")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--judged", action="store_true", help="cross-validate each strength, too")
    parser.add_argument("--table", action="store_true", help="only print what FILE holds")
    given = parser.parse_args()
    if not given.table:
        run(given)
    print(table(read_lines(given.out)))


if __name__ == "__main__":
    main()
