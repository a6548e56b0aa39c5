"""PCA of models that one process trains, beside those of workers that train together.

    python benchmarks/cluster_training.py [--device NAME] [--workers 1 2 3] [--models mlp]

Packaged records of one device, by_task, five seeds of the model and of the split. Each model is
trained on the same records: in this process, and with `--cluster local:N`. A JSON line a training.
"""

import argparse
import hashlib
import json
import statistics
from typing import Any

import numpy as np

from hetfeat.cluster import connected
from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.splits import split_examples
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.cluster import assemble_there
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import pairwise_accuracy


def trained(examples: Any, name: str, seed: int) -> dict[str, Any]:
    """PCA on the test side, and a digest of the scores."""
    split = split_examples(examples, "by_task", seed)
    train, valid, test = (examples.take(getattr(split, s)) for s in ("train", "valid", "test"))
    model = build(name, "quick", seed, {})
    model.fit(train, valid)
    scores = model.predict(test.batch)
    pca = pairwise_accuracy(scores, test.latency_s, group_codes(test)[0]).value
    return {"records": len(train), "pca": pca, "scores": digest(scores)}


def digest(scores: np.ndarray) -> str:
    return hashlib.sha256(scores.tobytes()).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="amd-epyc-znver4-avx2-2t")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--models", nargs="+", default=["xgb", "lgbm"])
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    store = RecordStore.open(packaged_store())
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for workers in (0, *given.workers):
        with connected(f"local:{workers}" if workers else None) as client:
            if client is None:
                examples = assemble(store, devices=[given.device]).examples
            else:
                examples = assemble_there(store, client, [given.device]).examples
            for name in given.models:
                for seed in range(given.seeds):
                    row = trained(examples, name, seed)
                    found.setdefault((name, workers), []).append(row)
                    told = {"model": name, "workers": workers, "seed": seed}
                    print(json.dumps(told | row), flush=True)
    print("| model | workers | PCA | standard error | same scores as one process |")
    print("| --- | ---: | ---: | ---: | --- |")
    for (name, workers), rows in sorted(found.items()):
        pca = [row["pca"] for row in rows]
        error = statistics.stdev(pca) / len(pca) ** 0.5
        alone = [row["scores"] for row in found[name, 0]]
        same = sum(a == row["scores"] for a, row in zip(alone, rows, strict=True))
        print(
            f"| {name} | {workers or 'one process'} | {statistics.mean(pca):.4f} | {error:.4f} "
            f"| {same} of {len(rows)} |"
        )


if __name__ == "__main__":
    main()
