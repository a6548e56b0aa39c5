"""What the tests of hpo, transfer and evaluate share: a folder with records and a registry."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import mlproject
from hetfeat.models.gbdt import XgbModel
from hetfeat.models.gbdt_parameters import GbdtParameters
from registry.cli import app
from registry.files.manifest import write_manifest
from registry.models.mlflow_client import connect
from registry.models.version import Version
from registry.models.versions import register


def succeed(capfd, *arguments: str) -> dict[str, Any]:
    """The result of a command that must exit 0."""
    code = app.run(mlproject.cli, [*arguments, "--json"])
    printed = capfd.readouterr()
    assert code == 0, printed.err
    return json.loads(printed.out)


def refuse(capfd, *arguments: str) -> str:
    """The one line of a command that must exit 2."""
    code = app.run(mlproject.cli, [*arguments, "--json"])
    printed = capfd.readouterr()
    assert code == 2, printed.err
    assert printed.out == ""
    (line,) = [text for text in printed.err.splitlines() if text.startswith("hetfeat: ")]
    return line


def source_model(examples, shuffled: bool = False) -> XgbModel:
    """A model of device `a`; with shuffled labels it knows nothing."""
    rows = np.flatnonzero(examples.device.astype(str) == "a")
    own = examples.take(rows)
    if shuffled:
        own.latency_s[:] = np.random.default_rng(1).permutation(own.latency_s)
    model = XgbModel(GbdtParameters(rounds=60))
    model.fit(own, own)
    return model


def registered(model: XgbModel, name: str, folder: Path) -> Version:
    """The model as a version in the registry of this folder."""
    client = connect()
    model.save(folder)
    digest = write_manifest(folder)
    run = client.create_run("0")
    client.log_artifacts(run.info.run_id, str(folder), "model")
    client.set_terminated(run.info.run_id)
    return register(
        name,
        f"runs:/{run.info.run_id}/model",
        folder_manifest_sha256=digest,
        tags={"family": "cpu-x86"},
        run_id=run.info.run_id,
        client=client,
    )
