"""`hetfeat deploy --precision int8`, as it is registered, shown and compiled from its journal."""

import json
import re

import numpy as np
import pytest
import trained
from door import hetfeat
from small_deploys import deploy_small

import mlproject
from registry.cli import app
from registry.models.version import CALIBRATION_TAG, PRECISION_TAG

pytestmark = [pytest.mark.slow, pytest.mark.tvm]

DATA = "rows.npz"


@pytest.fixture(scope="module")
def registry(tmp_path_factory, trained_once):
    with trained.registry_with_a_model(tmp_path_factory.mktemp("registry"), trained_once) as folder:
        rows = np.random.default_rng(0).normal(size=(10, 3, 16, 16)).astype(np.float32)
        np.savez(folder / DATA, x=rows)
        yield folder


@pytest.fixture(autouse=True)
def small(monkeypatch):
    deploy_small(monkeypatch, "registry.jobs.deploy", peers=("onnxruntime",))


@pytest.fixture(scope="module")
def line(device_file):
    device = ("--device", str(device_file), "--network", "nets:tiny", "--model", "none")
    return ("deploy", *device, "--trials", "1", "--precision", "int8")


def test_it_is_registered_with_its_calibration_and_its_accuracy(registry, line, capfd):
    from registry.cli.deploy import render
    from registry.models.mlflow_client import connect
    from registry.models.versions import resolve

    made = hetfeat(capfd, *line, "--calibration", DATA, "--out", "tiny8")
    assert made.code == 0, made.errors
    assert made.value["bundle_version"].startswith("models:/network.nets_tiny_int8.")
    assert made.value["peers_ms"]["onnxruntime"] > 0
    assert set(made.value["peers_error"]) == {"onnxruntime"}
    assert re.search("onnxruntime is (exact, too|inexact, off by up to)", render(made.value))
    accuracy = made.value["accuracy"]
    assert accuracy["rows"] == 2 and "int8 against float32 on 2 rows held out" in made.errors
    version = resolve(made.value["bundle_version"], client=connect())
    assert version.tags[PRECISION_TAG] == "int8"
    assert version.tags[CALIBRATION_TAG] == made.value["calibration"]
    assert float(version.tags["metric.snr_db"]) == accuracy["snr_db"]
    assert hetfeat(capfd, *line, "--calibration", DATA, "--out", "tiny8").value["reused"]
    app.run(mlproject.cli, ["lineage", made.value["bundle_version"]])
    assert f"{made.value['calibration'][:16]} (calibration data)" in capfd.readouterr().out


def test_what_was_found_is_compiled_from_the_journal(registry, capfd):
    made = hetfeat(
        capfd,
        *("compile", "--from", "tiny8.journal", "--network", "nets:tiny", "--out", "early8"),
    )
    assert made.code == 0, made.errors
    manifest = json.loads((registry / "early8" / "bundle.json").read_text())
    assert manifest["integers"]["exact"]
    assert made.value["accuracy"]["rows"] == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "int8 without --calibration"),
        (("--calibration", "nothing.npz"), "a file that exists"),
        (("--calibration", DATA, "--batch", "1,2"), "with 2 batch sizes"),
        (("--calibration", DATA, "--network", "nets:dense"), "expected [rows, 64]"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_done(registry, line, capfd, options, said):
    refused = hetfeat(capfd, *line, "--out", "unwanted", *options)
    assert refused.code == 2
    assert said in refused.errors.splitlines()[-1]
    assert not list(registry.glob("unwanted*"))
