"""What `hetfeat deploy` refuses before it does anything, and what it may replace."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import nets
import numpy as np
import pytest
import trained
from deploy_reports import REPORT
from door import hetfeat

from hetfeat.deploy.request import DeployRequest
from hetfeat.errors import WorkFailed

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def registry(tmp_path_factory, trained_once):
    with trained.registry_with_a_model(tmp_path_factory.mktemp("registry"), trained_once) as folder:
        yield folder


def test_refresh_replaces_a_bundle_of_an_older_format(tmp_path):
    from hetfeat.dataset.store import RecordStore
    from hetfeat.deploy.request import discard, journal_path

    old = tmp_path / "bundle"
    old.mkdir()
    (old / "bundle.json").write_text('{"format": 1}')
    RecordStore.create(journal_path(old))
    discard(old)
    assert not journal_path(old).exists()
    assert (old / "bundle.json").exists()


def test_a_function_finds_its_bundle_until_it_is_edited(device, device_file, tmp_path, monkeypatch):
    """No more is made than the manifest: what would be deployed is not."""
    from hetfeat.deploy.bundle import Output, Sample, Variant, write_bundle
    from hetfeat.errors import RequestError
    from registry.jobs import deploy

    def instead(request, profile, source, out, found, *others):
        return request, found

    monkeypatch.setattr(deploy, "_deploy_in_run", instead)
    job = deploy.DeployJob(
        "nets:dense",
        tmp_path / "bundle",
        device=str(device_file),
        model="none",
        trials=8,
        batch=(1, 2),
    )
    request, found = deploy.deploy_and_register(job)
    assert found is None
    executable = SimpleNamespace(export_library=lambda path, fcompile: Path(path).touch())
    value = np.ones((1, 1), np.float32)
    facts = {"request": request.as_json(), "report": REPORT.as_json()}
    variants = [Variant(1, executable, [value])]
    write_bundle(job.out, variants, device, Sample([value], [Output("y", value, 0.0)]), facts)
    assert deploy.deploy_and_register(job) == (request, REPORT)
    monkeypatch.setattr(nets, "dense", nets.mixed)
    with pytest.raises(RequestError, match="--refresh true"):
        deploy.deploy_and_register(job)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--network", "resnet19"), "resnet18"),
        (("--network", "nets:not_a_network"), "nets:not_a_network"),
        (("--network", "nets:unknown_operator"), "linalg_eig"),
        (("--output", "logits"), "among output_0;"),
        (("--device", "laptop"), "'local'"),
        (("--device", "missing.yaml"), "missing.yaml"),
        (("--device", "nvidia-t4"), "'nvidia-t4', whose target is cuda; expected a CPU"),
        (("--device", "gpu-here.yaml"), "a GPU"),
        (("--model", "costmodel.nonsense"), "costmodel.nonsense"),
        (("--model", f"models:/{trained.MODEL}/9"), "version 9"),
        (("--stage", "nowhere"), "staging"),
        (("--stage", "staging"), "staging"),
        (("--trials", "-1"), "--trials"),
        (("--batch", "0"), "--batch"),
        (("--batch", "1,1"), "twice"),
        (("--network", "nothing.onnx"), "a file that exists"),
        (("--network", "nothing.tflite"), "a file that exists"),
        (("--seed", "-1"), "--seed"),
        (("--effort", "heroic"), "heroic"),
        (("--refresh", "no"), "true or false"),
        (("--refresh", "maybe"), "twice"),
    ],
)
def test_wrong_requests_are_one_line_and_write_nothing(
    registry, device, device_file, capfd, options, said
):
    from hetfeat.devices.probe import remember
    from hetfeat.devices.profile import save_profile
    from registry.models.mlflow_client import connect

    remember(device)
    save_profile(replace(device, target={"kind": "cuda", "arch": "sm_999"}), Path("gpu-here.yaml"))
    line = dict(zip(("--device", "--network"), (str(device_file), "nets:tiny"), strict=True))
    line |= {options[0]: options[1], "--out": "unwanted"}
    runs = len(connect().search_runs(experiment_ids(connect())))
    refused = hetfeat(capfd, "deploy", *[word for pair in line.items() for word in pair])
    assert refused.code == 2
    last = refused.errors.splitlines()[-1]
    assert last.startswith("hetfeat: ")
    assert said in last
    assert not list(registry.glob("unwanted*"))
    assert len(connect().search_runs(experiment_ids(connect()))) == runs


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--stage", "staging"), "the only search that asks one"),
        (("--model", trained.MODEL), "the only search that asks one"),
        (("--trials", "0"), "a cost model, which chooses the programs"),
    ],
)
def test_a_search_that_asks_no_model_gets_none(registry, device_file, capfd, options, said):
    line = ("--device", str(device_file), "--network", "nets:tiny", "--search", "gbfs")
    refused = hetfeat(capfd, "deploy", *line, "--out", "unwanted", *options)
    assert (refused.code, said in refused.errors.splitlines()[-1]) == (2, True), refused.errors


def test_a_refused_refresh_keeps_what_was_measured(registry, device_file, capfd):
    from hetfeat.dataset.store import RecordStore

    journal = RecordStore.create(registry / "bundle.journal")
    line = ("--device", str(device_file), "--network", "nets:tiny", "--out", "bundle")
    unguided = ("--refresh", "true", "--trials", "0", "--model", "none")
    assert hetfeat(capfd, "deploy", *line, *unguided).code == 2
    assert (journal.path / "store.json").is_file()


def test_a_refresh_without_the_cross_compiler_keeps_what_was_measured(
    registry, device, capfd, tmp_path
):
    from hetfeat.dataset.store import RecordStore
    from hetfeat.devices.profile import save_profile

    target = {"kind": "llvm", "mtriple": "aarch64-nowhere-linux-gnu", "num-cores": 1}
    route = {"kind": "rpc", "key": "arm"}
    arm = replace(device, name="arm", family="cpu-arm", target=target, route=route)
    save_profile(arm, tmp_path / "arm.yaml")
    journal = RecordStore.create(registry / "arm.journal")
    line = ("--device", str(tmp_path / "arm.yaml"), "--network", "nets:tiny", "--out", "arm")
    refused = hetfeat(capfd, "deploy", *line, "--refresh", "true")
    assert refused.code == 2
    assert "aarch64-nowhere-linux-gnu-g++" in refused.errors.splitlines()[-1]
    assert (journal.path / "store.json").is_file()


def experiment_ids(client) -> list[str]:
    return [found.experiment_id for found in client.search_experiments()]


@pytest.mark.parametrize("named", [(), ("--network", "nets:dense")])
def test_the_code_that_a_journal_names_is_not_run_unasked(tmp_path, capfd, monkeypatch, named):
    request = DeployRequest("planted:run", "planted_run", (1,), "here", None, "quick", 0, 0)
    (tmp_path / "request.json").write_text(json.dumps(request.as_json()))
    (tmp_path / "planted.py").write_text("raise SystemExit('ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    line = ("compile", "--from", str(tmp_path), "--out", str(tmp_path / "b"), *named)
    refused = hetfeat(capfd, *line)
    assert refused.code == 2 and "--network planted:run" in refused.errors


@pytest.mark.parametrize(
    "text",
    [
        "[" * 4000,
        "null",
        '{"network": 1}',
        json.dumps({"network": "x", "slug": "x", "batches": "12", "device": "d"}),
    ],
)
def test_a_journal_s_request_that_is_none_is_one_line(tmp_path, capfd, text):
    (tmp_path / "request.json").write_text(text)
    refused = hetfeat(capfd, "compile", "--from", str(tmp_path), "--out", str(tmp_path / "b"))
    assert (refused.code, refused.errors.count("\n")) == (2, 1)
    assert "the journal of a deployment" in refused.errors


@pytest.fixture
def journal_of_heads(tmp_path, device) -> Path:
    """The journal of a deployment of one of a network's two outputs; nothing is measured yet."""
    from hetfeat.dataset.store import RecordStore
    from hetfeat.workloads.exported import function_digest

    store = RecordStore.create(tmp_path / "bundle.journal")
    with store.writing():
        store.add_device(device)
    request = DeployRequest("nets:heads", "nets_heads", (1,), device.name, None, "quick", 8, 0)
    digest = function_digest(request.network, request.batches, request.seed)
    request = replace(request, digest=digest, outputs=("output_0",))
    (store.path / "request.json").write_text(json.dumps(request.as_json()))
    return store.path


@pytest.mark.parametrize(
    ("options", "outputs"), [((), ("output_0",)), (("--output", "output_1"), ("output_1",))]
)
def test_compile_takes_other_outputs_than_the_deployment(
    journal_of_heads, tmp_path, capfd, monkeypatch, options, outputs
):
    asked = []

    def instead(request, profile, **_):
        asked.append(request.outputs)
        raise WorkFailed("a network", "none", "stop here")

    monkeypatch.setattr("registry.jobs.deploy._import_networks", instead)
    line = ("compile", "--from", str(journal_of_heads), "--network", "nets:heads")
    hetfeat(capfd, *line, "--out", str(tmp_path / "b"), *options)
    assert asked == [outputs]


def test_compile_names_the_outputs_there_are(journal_of_heads, tmp_path, capfd):
    line = ("compile", "--from", str(journal_of_heads), "--network", "nets:heads")
    refused = hetfeat(capfd, *line, "--out", str(tmp_path / "b"), "--output", "output_7")
    assert refused.code == 2 and "output_0, output_1" in refused.errors
