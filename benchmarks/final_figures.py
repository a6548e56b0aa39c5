"""Figures on networks that nothing was ever chosen on; each look at them is kept.

    python benchmarks/final_figures.py [--model xgb] [--seeds 0] [--log FILE] [--reason TEXT]

Of the packaged records the tasks of `FINAL`, and all that are connected with them, are tested on;
a model learns from the rest and stops by a tenth of it. Each run adds a line to the log, which is
committed: the more often somebody looks, the less the figures mean. Experiments that choose
anything leave these tasks out (`without_final`).
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.splits import of_units, split_examples, task_units
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.models.evaluate import Networks, evaluate
from hetfeat.models.hyperparameters import build
from hetfeat.models.metrics_topk import SMALLEST_TASK

FINAL = ("regnet_y_800mf", "convnext_tiny", "timm_inception_v4")
"""Grouped convolutions, depthwise ones beside products of matrices, and plain ones."""
LOG = Path(__file__).parent / "results" / "final-figures.jsonl"
FIGURES = ("pca", "pca_tenset", "rmse", "top1", "top5")


def without_final(examples: Examples, networks: Networks) -> Examples:
    """The examples that something may be chosen on."""
    tasks = {task for name in FINAL for task in networks.get(name, ())}
    return examples.take(np.flatnonzero(~of_units(examples, task_units(examples), tasks)))


def figures_of(model_name: str, seed: int, examples: Examples, networks: Networks) -> dict:
    """One training, judged on the final networks: together, and each network alone."""
    split = split_examples(examples, "by_task", seed, FINAL, networks)
    train, valid, test = (examples.take(rows) for rows in (split.train, split.valid, split.test))
    model = build(model_name, "standard", seed, {})
    model.fit(train, valid)
    found = figures_on(model, train, valid, test)
    for name in FINAL:
        rows = np.flatnonzero(np.isin(test.task.astype(str), list(networks[name])))
        alone = figures_on(model, train, valid, test.take(rows))
        found |= {f"{name}.{key}": value for key, value in alone.items()}
    return found


def figures_on(model, train: Examples, valid: Examples, test: Examples) -> dict[str, float]:
    """The main figures of some programs; intervals where there are tasks enough for one."""
    told = evaluate(model, train, valid, test).metrics
    names = [f"{name}{end}" for name in FIGURES for end in ("", ".low", ".high")]
    found = {name: told[name] for name in names if name in told}
    if not told["topk_by_definition"]:
        found = {name: value for name, value in found.items() if not name.startswith("top")}
    return found | {"tasks": told["pca_tasks"], "records": float(len(test))}


def line_of(
    given: argparse.Namespace, store: RecordStore, examples: Examples, figures: Sequence[dict]
) -> dict[str, Any]:
    """What the log keeps of a run."""
    networks = store.networks()
    tasks = {task for name in FINAL for task in networks[name]}
    held = of_units(examples, task_units(examples), tasks)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit.stdout.strip(),
        "reason": given.reason,
        "model": given.model,
        "seeds": given.seeds,
        "networks": FINAL,
        "devices": {
            str(device): int(np.sum(held & (examples.device == device)))
            for device in sorted(set(examples.device[held].tolist()))
        },
        "dataset_digest": store.digest(),
        "figures": {
            name: float(np.mean([own[name] for own in figures if name in own]))
            for name in figures[0]
        },
    }


def shown(line: dict[str, Any]) -> str:
    """A line of the log as a table."""
    told = line["figures"]
    rows = ["| networks | " + " | ".join(FIGURES) + " | tasks | records |"]
    rows.append("|" + " --- |" * (len(FIGURES) + 3))
    for name in ("", *FINAL):
        at = f"{name}." if name else ""
        cells = [cell(told, at + figure) for figure in FIGURES]
        sizes = (f"{told[at + size]:.0f}" for size in ("tasks", "records"))
        rows.append(f"| {name or 'all three'} | {' | '.join([*cells, *sizes])} |")
    return "\n".join(rows)


def cell(told: dict[str, float], name: str) -> str:
    """A figure and its interval; of top-k nothing where tasks are smaller than it is defined on."""
    if name not in told:
        return f"no task of {SMALLEST_TASK}" if "top" in name else "-"
    ends = [told.get(f"{name}.{end}") for end in ("low", "high")]
    between = "" if None in ends else f" ({ends[0]:.3f} to {ends[1]:.3f})"
    return f"{told[name]:.3f}{between}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="xgb")
    parser.add_argument("--seeds", type=lambda text: [*map(int, text.split(","))], default=[0])
    parser.add_argument("--log", type=Path, default=LOG)
    parser.add_argument("--reason", required=True, help="why somebody looks")
    given = parser.parse_args()
    looked = len(given.log.read_text().splitlines()) if given.log.exists() else 0
    print(f"{looked} looks so far; this is the next", file=sys.stderr)
    store = RecordStore.open(packaged_store())
    examples = assemble(store).examples
    networks = store.networks()
    figures = [figures_of(given.model, seed, examples, networks) for seed in given.seeds]
    line = line_of(given, store, examples, figures)
    given.log.parent.mkdir(parents=True, exist_ok=True)
    with given.log.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(shown(line))


if __name__ == "__main__":
    main()
