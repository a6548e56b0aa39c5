"""What a network gains by the average of its weights, and by a schedule that it trains to the end.

    python benchmarks/network_schedules.py --out DIR [--models mlp,attention] [--seeds 0,1,2]
        [--ways "as built;short"]
    python benchmarks/network_schedules.py --out DIR --table

The packaged records are learnt from without the final networks. Each seed holds a fifth of their
connected tasks out, on which ways are judged, and stops by a tenth of the rest. `as built` is what
`hetfeat train` does, `last weights` the same without an average, `short` has 25 epochs. `trees` is
`xgb` of the same sides. DIR has a file for each training, with its margins of the judged programs;
those that it holds are not trained again. Intervals are of a bootstrap over connected tasks, paired
with `as built`, all seeds together.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from bags import keep, parts_of, sides_of, together
from final_figures import without_final
from paired import FIGURES, gain, mean, of_tasks, shown
from search import table

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.models.hyperparameters import build

AS_BUILT, TREES = "as built", "trees"
AVERAGE, LAST, SHORT = {"average": 0.995}, {"average": 0.0}, {"rounds": 25, "patience": 25}
WAYS: dict[str, dict[str, Any]] = {
    AS_BUILT: {},
    "average": AVERAGE,
    "last weights": LAST,
    "short": SHORT,
    "short, last weights": SHORT | LAST,
}
STOPPED_BY = 10
"""Of the tasks that are learnt from one in so many ends a training."""


def path_of(folder: Path, model: str, way: str, seed: int) -> Path:
    """The file of a training."""
    return folder / f"{model}-{way.replace(' ', '_').replace(',', '')}-seed{seed}.npz"


def trained(model_name: str, settings: dict[str, Any], seed: int, examples: Examples) -> dict:
    """Margins of the judged programs, the epochs and the seconds of the processor."""
    sides = sides_of(examples, seed)
    part = parts_of(sides.units, STOPPED_BY, seed)
    model = build(model_name, "standard", seed, settings)
    losses: list[float] = []
    started = time.process_time()
    model.fit(
        sides.learnt.take(np.flatnonzero(part != 0)),
        sides.learnt.take(np.flatnonzero(part == 0)),
        lambda epoch, told: losses.append(told["valid_loss"]),
    )
    seconds = time.process_time() - started
    margins = np.log(model.predict(sides.judged.batch))
    return {
        "margins": margins,
        "train_s": seconds,
        "epochs": len(losses),
        "best": int(np.argmin(losses)),
    }


def run(given: argparse.Namespace, examples: Examples) -> None:
    given.out.mkdir(parents=True, exist_ok=True)
    wanted = [("xgb", TREES, seed) for seed in given.seeds]
    wanted += [(m, way, seed) for m in given.models for seed in given.seeds for way in given.ways]
    for model, way, seed in wanted:
        path = path_of(given.out, model, way, seed)
        if path.exists():
            continue
        found = trained(model, WAYS.get(way, {}), seed, examples)
        keep(path, found)
        said = f"{found['train_s']:.0f} s, best of {found['epochs']} is {found['best']}"
        print(f"{path.stem}: {said}", file=sys.stderr, flush=True)


def tables(given: argparse.Namespace, examples: Examples) -> str:
    """What each way reaches, and by how much it exceeds the network as built."""
    sides = {seed: sides_of(examples, seed) for seed in given.seeds}
    units = np.concatenate([each.units_of_tasks for each in sides.values()])
    rows = []
    for model in given.models:
        own = {}
        for name, way in [(model, way) for way in given.ways] + [("xgb", TREES)]:
            paths = [path_of(given.out, name, way, seed) for seed in given.seeds]
            if not all(path.exists() for path in paths):
                continue
            kept = [np.load(path) for path in paths]
            own[way] = together(
                [
                    of_tasks(one["margins"], sides[seed].judged)
                    for one, seed in zip(kept, given.seeds, strict=True)
                ]
            )
            cells = [model, way]
            for figure in FIGURES:
                over = gain(own[way][figure], own[AS_BUILT][figure], units)
                cells += [shown(mean(own[way][figure], units))]
                cells += ["" if way == AS_BUILT else shown(over, signed=True)]
            cells += [f"{np.mean([one['train_s'] for one in kept]):.0f}"]
            cells += [", ".join(str(one["best"]) for one in kept)]
            rows.append(cells)
    head = ["model", "way", "PCA", "over as built", "top-1", "over as built"]
    head += ["train, s", "best epoch"]
    tasks = f"{len(units)} tasks of {len(np.unique(units))} units"
    return f"{tasks}\n\n{table(head, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--seeds", type=lambda text: [*map(int, text.split(","))], default=[0, 1, 2]
    )
    parser.add_argument("--models", type=lambda text: text.split(","), default=["mlp", "attention"])
    parser.add_argument("--ways", type=lambda text: text.split(";"), default=[*WAYS])
    parser.add_argument("--table", action="store_true", help="only print what DIR holds")
    given = parser.parse_args()
    store = RecordStore.open(packaged_store())
    examples = without_final(assemble(store).examples, store.networks())
    if not given.table:
        run(given, examples)
    print(tables(given, examples))


if __name__ == "__main__":
    main()
