"""Promote, history and pull in an empty registry and in a full one.

    python benchmarks/registry/scale.py [--models 1000] [--versions 20] [--on postgresql]

The many models are written straight into the database; what is timed goes through MLflow.
"""

import itertools
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from common import in_child, machine, no_gates, parser, quantile, registry_on
from filling import fill

from registry.files.manifest import write_manifest
from registry.files.moves import promote
from registry.files.pull import pull
from registry.models.mlflow_client import connect
from registry.models.stages import history
from registry.models.versions import register

REPEATS = 31


def prepare(uri: str, folder: Path) -> dict[str, Callable[[], object]]:
    """What is measured in a registry: the work of each command, for a model of two versions."""
    folder.mkdir()
    client, name = connect(uri), f"costmodel.measured-{uuid.uuid4().hex[:8]}"
    experiment = client.create_experiment(name, artifact_location=f"file://{folder}/artifacts")
    for number in (1, 2):
        model = folder / f"model-{number}"
        model.mkdir()
        (model / "model.ubj").write_bytes(b"{" + os.urandom(200_000))
        digest = write_manifest(model)
        run = client.create_run(experiment).info.run_id
        client.log_artifacts(run, str(model), "model")
        register(
            name,
            f"runs:/{run}/model",
            folder_manifest_sha256=digest,
            tags={},
            run_id=run,
            client=client,
        )
    turns = itertools.count()

    def one_promote() -> None:
        promote(name, next(turns) % 2 + 1, "production", gates=no_gates, client=client)

    def one_pull() -> None:
        os.environ["HETFEAT_HOME"] = f"{folder}/home-{next(turns)}"  # nothing is cached there
        pull(f"{name}@production", client=client)

    return {
        "promote": one_promote,
        "history": lambda: history(name, client=client),
        "pull": one_pull,
    }


def compare(empty_uri: str, full_uri: str, folder: Path) -> dict[str, dict[str, float]]:
    """Median seconds of each command's work in both, taken in turns: others disturb both alike."""
    work = {"empty": prepare(empty_uri, folder / "e"), "full": prepare(full_uri, folder / "f")}
    medians: dict[str, dict[str, float]] = {where: {} for where in work}
    for what in work["empty"]:
        taken: dict[str, list[float]] = {where: [] for where in work}
        for _ in range(REPEATS):
            for where in work:
                began = time.perf_counter()
                work[where][what]()
                taken[where].append(time.perf_counter() - began)
        for where in work:
            medians[where][what] = quantile(taken[where], 0.5)
    return medians


def main() -> int:
    options = parser(stores=("sqlite", "postgresql"))
    options.add_argument("--models", type=int, default=1000)
    options.add_argument("--versions", type=int, default=20)
    given = options.parse_args()
    with (
        registry_on(given.on) as empty,
        registry_on(given.on) as full,
        tempfile.TemporaryDirectory() as folder,
    ):
        in_child(lambda: fill(full, given.models, given.versions, Path(folder) / "filled", 0))
        medians = in_child(lambda: compare(empty, full, Path(folder)))
    ratios = {what: round(medians["full"][what] / s, 2) for what, s in medians["empty"].items()}
    result = {
        **machine(),
        "store": given.on,
        "models": given.models,
        "versions_each": given.versions,
        **{
            f"{where}_s": {what: round(seconds, 3) for what, seconds in of.items()}
            for where, of in medians.items()
        },
        "ratio": ratios,
    }
    print(json.dumps(result, indent=1))
    return 1 if max(ratios.values()) > 2 else 0


if __name__ == "__main__":
    sys.exit(main())
