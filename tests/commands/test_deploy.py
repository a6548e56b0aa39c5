"""`hetfeat deploy` and `hetfeat run`, for real, on a network of two convolutions."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import nets
import numpy as np
import pytest
import trained
from door import hetfeat
from small_deploys import deploy_small

from hetfeat.dataset.store import RecordStore
from hetfeat.deploy.pipeline import count_leaked
from hetfeat.deploy.request import DeployRequest, SourceModel, existing
from hetfeat.errors import DataError, RequestError
from hetfeat.models.packaged import packaged_model
from hetfeat.records import Program, Task
from hetfeat.search.evolution import Evolution
from hetfeat.tune.guidance import GuidanceConfig
from hetfeat.tune.tuner import TuningOptions
from registry.jobs.chosen_model import find_source

pytestmark = [pytest.mark.slow, pytest.mark.tvm]

REPORTED = {
    *("latency_ms", "peers_ms", "untuned_ms", "tuning_s", "build_s", "trials", "max_abs_error"),
    *("tolerance", "model_version", "leaked_records", "bundle", "run_id", "bundle_version"),
}
STAGES = {
    *("importing", "lowering", "references", "choosing", "building", "verifying", "timing"),
}
BLOCKED = """
import importlib.abc, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Block())
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory, trained_once, device, device_file):
    with trained.registry_with_a_model(tmp_path_factory.mktemp("registry"), trained_once) as folder:
        yield SimpleNamespace(folder=folder, device_file=str(device_file))


@pytest.fixture(autouse=True)
def small_and_without_peers(monkeypatch):
    """But for `deployed`: a process of its own, it compares with all peers as users do."""
    deploy_small(monkeypatch, "registry.jobs.deploy")


NAMED = ("--network", "nets:tiny")


def deploy_line(registry, out: str = "bundle", network: str = "nets:tiny", *more: str):
    line = ("deploy", "--device", registry.device_file, "--network", network)
    return (*line, "--trials", "8", "--out", out, *more)


@pytest.fixture(scope="module")
def deployed(registry):
    """The first deployment, in a process of its own, as users run it."""
    line = [sys.executable, "-m", "small_deploys", *deploy_line(registry), "--json"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return SimpleNamespace(
        report=json.loads(done.stdout),
        errors=done.stderr,
        path=registry.folder / "bundle",
        folder=registry.folder,
    )


@pytest.fixture
def copied(deployed, tmp_path) -> Path:
    """A copy of the bundle to spoil."""
    return Path(shutil.copytree(deployed.path, tmp_path / "copy"))


@pytest.fixture
def sample(deployed) -> Path:
    return deployed.path / "sample_input_0.npy"


class TestCompiling:
    def test_what_was_found_becomes_a_bundle(self, deployed, capfd):
        journal = deployed.folder / "bundle.journal"
        before = {p: p.read_bytes() for p in journal.rglob("*") if p.is_file()}
        made = hetfeat(capfd, "compile", "--from", "bundle.journal", "--out", "early", *NAMED)
        assert made.code == 0, made.errors
        assert set(made.value) >= REPORTED
        assert (made.value["trials"], made.value["resumed"]) == (8, 8)
        assert made.value["max_abs_error"] <= made.value["tolerance"]
        assert made.value["model_version"] == f"models:/{trained.MODEL}/1"
        assert made.value["bundle_version"] != deployed.report["bundle_version"]
        assert {p: p.read_bytes() for p in journal.rglob("*") if p.is_file()} == before

    @pytest.mark.parametrize(
        ("journal", "out", "said"),
        [
            ("bundle", "early2", "the journal of a deployment"),
            ("nowhere", "early2", "the journal of a deployment"),
            ("bundle.journal", "bundle", "choose another --out"),
        ],
    )
    def test_what_cannot_be_is_told(self, deployed, capfd, journal, out, said):
        refused = hetfeat(capfd, "compile", "--from", journal, "--out", out)
        assert refused.code == 2 and said in refused.errors

    @pytest.mark.parametrize("noted", [{"slug": "tiny_0a1b2c3d"}, {"digest": "0a1b2c3d"}])
    def test_a_network_that_has_changed_since_is_told(self, deployed, tmp_path, capfd, noted):
        journal = tmp_path / "copy.journal"
        shutil.copytree(deployed.folder / "bundle.journal", journal)
        request = json.loads((journal / "request.json").read_text())
        (journal / "request.json").write_text(json.dumps(request | noted))
        line = ("compile", "--from", str(journal), "--out", str(tmp_path / "b"), *NAMED)
        refused = hetfeat(capfd, *line)
        assert refused.code == 2 and "which has changed since" in refused.errors


class TestDeploying:
    def test_a_bundle_of_an_interrupted_tuning_is_gone_on_with(self, copied):
        manifest = json.loads((copied / "bundle.json").read_text())
        batches = tuple(manifest["request"]["batches"])
        request = DeployRequest(**manifest["request"] | {"batches": batches})
        assert existing(request, copied).as_json() == manifest["report"]
        manifest["report"]["interrupted"] = True
        (copied / "bundle.json").write_text(json.dumps(manifest))
        assert existing(request, copied) is None

    def test_a_damaged_bundle_is_not_what_was_asked_for(self, copied):
        manifest = json.loads((copied / "bundle.json").read_text())
        request = manifest["request"] | {"batches": tuple(manifest["request"]["batches"])}
        with (copied / "lib_1.so").open("ab") as library:
            library.write(b" ")
        with pytest.raises(DataError, match="lib_1"):
            existing(DeployRequest(**request), copied)

    def test_what_the_model_has_seen_here_of_these_tasks_is_counted(self, device):
        convolution, fused, other = (
            Task(name, "conv2d", ((1, 8, 8, size), (3, 3, size, 4), *more), "float32", 1.0)
            for name, size, more in (("t", 3, ()), ("u", 3, ((4,),)), ("v", 5, ()))
        )
        seen = {device.name: {convolution.anchor: 3, "x": 5}, "another": {fused.anchor: 7}}
        source = SourceModel(SimpleNamespace(seen_anchors=seen), "digest")
        assert count_leaked(source, device, [convolution, fused]) == 3
        assert count_leaked(source, device, [other]) == 0
        assert count_leaked(None, device, [convolution]) == 0

    def test_the_report_says_what_was_promised(self, deployed):
        report = deployed.report
        assert set(report) >= REPORTED
        assert report["trials"] == 8
        assert report["model_version"] == f"models:/{trained.MODEL}/1"
        assert report["reused"] is False
        assert report["leaked_records"] == 0
        assert report["max_abs_error"] <= report["tolerance"]
        assert min(report["latency_ms"], report["untuned_ms"]) > 0
        assert report["peers_ms"]["torch"] > 0
        assert report["peers_ms"]["onnxruntime"] > 0
        assert report["peers_ms"]["openvino"] > 0
        assert set(report["seconds"]) == {*STAGES, "first check"}

    def test_the_bundle_says_where_it_comes_from(self, deployed, device):
        manifest = json.loads((deployed.path / "bundle.json").read_text())
        assert manifest["device"] == "here"
        assert manifest["target"] == device.target
        assert manifest["threads"] == device.threads
        assert manifest["cost_model"] == f"models:/{trained.MODEL}/1"
        assert manifest["inputs"] == [{"shape": [1, 3, 16, 16], "dtype": "float32"}]
        assert {"lib_1.so", "params.npz", "run.py", "sample_input_0.npy"} <= set(manifest["files"])
        assert {"tvm", "numpy", "hetfeat"} <= set(manifest["versions"])
        journal = RecordStore.open(deployed.folder / "bundle.journal").read(["task", "latencies_s"])
        ran = {row["task"] for row in journal.to_pylist() if row["latencies_s"]}
        told = {task["task"]: task["latency_s"] is not None for task in manifest["tasks"]}
        assert ran & set(told) and told == {task: task in ran for task in told}

    def test_the_bundle_is_registered_with_its_source(self, deployed, registry):
        from registry.models.mlflow_client import connect

        version = connect().get_model_version("network.nets_tiny.here", "1")
        assert version.tags["parent_model_uri"] == f"models:/{trained.MODEL}/1"
        assert version.run_id == deployed.report["run_id"]

    def test_without_trials_the_model_picks_the_programs(self, registry, monkeypatch, capfd):
        """And a pick that does not build is left out."""
        pick = Evolution.pick

        def bound_to_a_gpu_s_threads(search):
            found = pick(search)
            if found.task.operator != "matmul":
                return found
            instructions, _ = json.loads(found.trace)
            loops = next(i for i, one in enumerate(instructions) if one[0] == "GetLoops")
            bind = ["Bind", instructions[loops][3][:1], ["threadIdx.x"], []]
            return Program(found.task, json.dumps([[*instructions[: loops + 1], bind], []]))

        monkeypatch.chdir(registry.folder)
        monkeypatch.setattr(Evolution, "pick", bound_to_a_gpu_s_threads)
        monkeypatch.setattr("hetfeat.deploy.tuned.measure_finalists", None)  # nothing ran
        pinned = ("--model", f"models:/{trained.MODEL}/1")
        line = deploy_line(registry, "unsound", "nets:tiny", "--trials", "0", *pinned)
        made = hetfeat(capfd, *line)
        assert made.code == 0, made.errors
        assert made.value["trials"] == 0
        assert made.value["model_version"] == f"models:/{trained.MODEL}/1"
        assert "the program chosen for matmul" in made.errors
        assert "does not build" in made.errors
        assert made.value["max_abs_error"] <= made.value["tolerance"]
        manifest = json.loads((registry.folder / "unsound" / "bundle.json").read_text())
        without = [task["operator"] for task in manifest["tasks"] if not task["trace"]]
        assert without == ["matmul"]
        assert len(manifest["tasks"]) > 1
        assert all(task["latency_s"] is None for task in manifest["tasks"])

    def test_a_model_that_the_gate_drops_is_named_and_tuning_goes_on(
        self, registry, monkeypatch, capfd
    ):
        monkeypatch.chdir(registry.folder)
        guidance = GuidanceConfig(first_fit=32, refit_every=8)
        options = partial(TuningOptions, guidance=guidance)
        monkeypatch.setattr("hetfeat.deploy.tuned.TuningOptions", options)
        verdict = np.full(2, 0.1), np.full(2, 0.9)  # what the gate itself finds is test_judge's
        monkeypatch.setattr(
            "hetfeat.tune.guidance.ModelGuidance._cross_validated", lambda *_: verdict
        )
        made = hetfeat(capfd, *deploy_line(registry, "gated", "nets:tiny", "--trials", "48"))
        assert made.code == 0, made.errors
        assert "the cost model is dropped" in made.errors
        assert made.value["trials"] > 32
        assert made.value["max_abs_error"] <= made.value["tolerance"]

    def test_no_warning_of_a_library_is_passed_on(self, deployed):
        assert "Warning" not in deployed.errors

    def test_no_draft_is_left(self, deployed):
        names = {path.name for path in deployed.folder.iterdir()}
        assert not [name for name in names if name.startswith(".bundle") or "draft" in name]

    def test_the_output_is_that_of_torch(self, deployed):
        import torch

        from hetfeat.deploy.bundle import load_bundle
        from hetfeat.workloads.networks import load_network

        network = load_network("nets:tiny")
        values = torch.randn(1, 3, 16, 16)
        with torch.inference_mode():
            expected = network.module(values).numpy()
        found = load_bundle(deployed.path).run([values.numpy()])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    def test_again_is_the_same_bundle(self, deployed, registry, capfd):
        before = (deployed.path / "bundle.json").read_bytes()
        again = hetfeat(capfd, *deploy_line(registry))
        assert again.code == 0, again.errors
        assert again.value["reused"] is True
        assert again.value["latency_ms"] == deployed.report["latency_ms"]
        assert again.value["bundle_version"] == deployed.report["bundle_version"]
        assert (deployed.path / "bundle.json").read_bytes() == before

    def test_one_that_was_not_registered_in_time_is_registered_next(
        self, deployed, registry, capfd
    ):
        out = shutil.copytree(deployed.path, registry.folder / "unregistered")
        (out / "manifest.json").unlink()  # the registry's, written just before registering
        again = hetfeat(capfd, *deploy_line(registry, str(out)))
        assert again.code == 0, again.errors
        assert again.value["reused"] is True
        assert again.value["run_id"] != deployed.report["run_id"]
        assert again.value["bundle_version"] != deployed.report["bundle_version"]

    @pytest.mark.parametrize(("batch", "tiny"), [("2", nets.tiny), ("1", nets.mixed)])
    def test_another_request_does_not_overwrite_it(
        self, deployed, registry, capfd, monkeypatch, batch, tiny
    ):
        """Nor does a function of the same name that was edited find it."""
        monkeypatch.setattr(nets, "tiny", tiny)
        before = (deployed.path / "bundle.json").read_bytes()
        other = hetfeat(capfd, *deploy_line(registry, "bundle", "nets:tiny", "--batch", batch))
        assert other.code == 2
        assert "--refresh true" in other.errors.splitlines()[-1]
        assert (deployed.path / "bundle.json").read_bytes() == before

    @pytest.mark.parametrize("refresh", ["true", "false"])
    def test_nothing_but_a_bundle_is_ever_replaced(self, registry, capfd, tmp_path, refresh):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "letter").write_text("dear")
        line = deploy_line(registry, str(tmp_path / "mine"), "nets:tiny", "--refresh", refresh)
        refused = hetfeat(capfd, *line)
        assert refused.code == 2
        assert "bundle" in refused.errors.splitlines()[-1]
        assert (tmp_path / "mine" / "letter").read_text() == "dear"

    def test_refresh_makes_it_anew(self, deployed, registry, capfd):
        out = str(shutil.copytree(deployed.path, registry.folder / "refreshed"))
        shutil.copytree(f"{deployed.path}.journal", f"{out}.journal")
        before = (Path(out) / "bundle.json").read_bytes()
        again = hetfeat(capfd, *deploy_line(registry, out, "nets:tiny", "--refresh", "true"))
        assert again.code == 0, again.errors
        assert again.value["reused"] is False
        assert again.value["resumed"] == 0, "it measures anew"
        assert (Path(out) / "bundle.json").read_bytes() != before
        assert again.value["bundle_version"] != deployed.report["bundle_version"]

    def test_an_interrupt_of_the_last_measurements_leaves_a_bundle(
        self, deployed, registry, capfd, monkeypatch, tmp_path
    ):
        def interrupted(candidates, measurer):
            raise KeyboardInterrupt

        monkeypatch.setattr("hetfeat.deploy.tuned.measure_finalists", interrupted)
        out = tmp_path / "stopped"
        shutil.copytree(f"{deployed.path}.journal", f"{out}.journal")
        found = hetfeat(capfd, *deploy_line(registry, str(out)))
        assert found.code == 130, found.errors
        assert found.value["stopped"] is True
        assert (out / "bundle.json").is_file()

    @pytest.mark.parametrize("more", [("--seed", "1"), ("--refresh", "true")])
    def test_a_second_one_leaves_the_first_alone(self, deployed, registry, capfd, tmp_path, more):
        from hetfeat.dataset.store import RecordStore

        journal = Path(shutil.copytree(f"{deployed.path}.journal", tmp_path / "running.journal"))
        before = {p: p.read_bytes() for p in journal.rglob("*") if p.is_file()}
        line = deploy_line(registry, str(tmp_path / "running"), "nets:tiny", *more)
        with RecordStore.open(journal).writing():
            second = hetfeat(capfd, *line)
        assert second.code == 2
        assert "to which another process writes" in second.errors.splitlines()[-1]
        assert {p: p.read_bytes() for p in journal.rglob("*") if p.is_file()} == before
        assert not (tmp_path / "running").exists()


def test_without_a_model_in_the_registry_the_packaged_one_guides(
    registry_here, device_file, monkeypatch, capfd
):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    made = hetfeat(capfd, "deploy", "nets:tiny", "--device", str(device_file), "--trials", "0")
    assert made.code == 0, made.errors
    packaged = packaged_model("cpu-x86")
    assert packaged is not None
    assert made.value["model_version"] == packaged.name
    assert packaged.name in made.errors
    manifest = json.loads((registry_here / "bundle" / "bundle.json").read_text())
    assert manifest["dataset_digest"] == packaged.dataset_digest


def test_a_packaged_model_of_another_version_is_refused(device):
    with pytest.raises(RequestError, match="packaged:0"):
        find_source("packaged:0", None, device)


def test_without_a_model_it_tunes_from_scratch_for_several_batches(
    registry_here, device_file, monkeypatch, capfd
):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    line = ["deploy", "--device", str(device_file), "--network", "nets:tiny", "--trials", "4"]
    line += ["--model", "none", "--batch", "1,4", "--out", "scratch"]
    made = hetfeat(capfd, *line)
    assert made.code == 0, made.errors
    assert made.value["model_version"] is None
    assert set(made.value["batches_ms"]) == {"4"}
    manifest = json.loads((registry_here / "scratch" / "bundle.json").read_text())
    assert [variant["batch"] for variant in manifest["variants"]] == [1, 4]
    assert manifest["any_rows"] is True
    assert hetfeat(capfd, *line).value["reused"] is True
    assert hetfeat(capfd, *line, "--stage", "production").code == 2
    refused = hetfeat(capfd, *line, "--trials", "0", "--out", "one-shot")
    assert refused.code == 2 and "no cost model" in refused.errors
    assert not list(registry_here.glob("one-shot*"))


class TestBench:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--peers", "torch"), "--network not given"),
            (("--peers", "torch", "--network", "nets:mixed"), "nets_tiny"),
            (("--peers", "tensorflow"), "one of torch, onnxruntime, openvino, torch_compile"),
        ],
    )
    def test_peers_of_other_networks_are_refused(self, deployed, capfd, options, said):
        refused = hetfeat(capfd, "bench", str(deployed.path), *options)
        assert refused.code == 2
        assert said in refused.errors

    def test_engines_are_timed_side_by_side(self, deployed, registry, capfd):
        line = ("--peers", "onnxruntime", "--network", "nets:tiny", "--rounds", "1")
        engines = hetfeat(capfd, "bench", str(deployed.path), *line).value["engines"]
        assert set(engines) == {"bundle, batch 1", "onnxruntime"}
        for found in engines.values():
            assert found["rows_per_s"] == pytest.approx(1e3 / found["latency_ms"])


class TestRunning:
    @pytest.fixture
    def expected(self, deployed, sample) -> np.ndarray:
        from hetfeat.deploy.bundle import load_bundle

        return load_bundle(deployed.path).run([np.load(sample, allow_pickle=False)])

    def test_a_fresh_process_runs_it_without_torch_and_mlflow(
        self, deployed, sample, tmp_path, expected
    ):
        code = BLOCKED.format(blocked={"torch", "mlflow", "xgboost", "pyarrow"}) + (
            "import mlproject\n"
            "from registry.cli import app\n"
            "assert app.run(mlproject.cli, sys.argv[1:]) == 0\n"
            "assert not {'torch', 'mlflow'} & set(sys.modules)\n"
        )
        out = tmp_path / "y.npy"
        line = ["run", str(deployed.path), "--input", str(sample), "--output", str(out)]
        done = subprocess.run(
            [sys.executable, "-c", code, *line], capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(np.load(out, allow_pickle=False), expected)

    def test_its_own_program_needs_tvm_and_numpy_only(self, deployed, sample, tmp_path, expected):
        code = BLOCKED.format(blocked={"torch", "mlflow", "hetfeat", "registry"}) + (
            "import runpy\n"
            "program = sys.argv.pop(1)\n"
            "sys.argv[0] = program\n"
            "runpy.run_path(program, run_name='__main__')\n"
        )
        out = tmp_path / "y.npy"
        line = [str(deployed.path / "run.py"), "--input", str(sample), "--output", str(out)]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(
            [sys.executable, "-c", code, *line],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(np.load(out, allow_pickle=False), expected)

    def test_its_own_program_says_what_is_wrong(self, copied, sample, tmp_path):
        line = ["--input", str(sample), "--output", str(tmp_path / "no" / "y.npy")]
        done = subprocess.run(
            [sys.executable, str(copied / "run.py"), *line], capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "a folder that exists" in done.stderr
        assert "Traceback" not in done.stderr
