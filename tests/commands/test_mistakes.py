"""What a new user may get wrong, and the line that says so: `...` stands for anything."""

import importlib.metadata
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import spaces
import stores
import trained

import mlproject
from hetfeat.devices.probe import remember
from hetfeat.errors import RequestError, WorkFailed
from registry.cli import app
from registry.tracking.packages import distribution_of, missing

BAD_REQUEST, FAILED = 2, 1

MISTAKES = {
    # names that are nearly right
    "trian": "command 'trian'; expected train or transfer; `hetfeat --help` lists them all",
    "devices prob": "command 'prob'; expected probe; `hetfeat devices --help` lists them all",
    "train --modle xgb": "No such option '--modle'. Did you mean '--model'?; see ...",
    "train --model xgbb": "model 'xgbb'; expected one of xgb, ...; did you mean 'xgb'?",
    "train --records records --split by-task": "split 'by-task'; expected one of ...; "
    "did you mean 'by_task'?",
    "train --records records --family cpux86": "family 'cpux86'; ...; did you mean 'cpu-x86'?",
    "import notes.txt --format anzor --device lab": "format 'anzor'; ...; did you mean 'ansor'?",
    "search --space space.json --strategy gbsf": "strategy 'gbsf'; ...; did you mean 'gbfs'?",
    "devices show nvidia-t44": "device 'nvidia-t44'; expected ...; did you mean 'nvidia-t4'?",
    "deploy --network resnet-50": "network 'resnet-50'; expected ... such as resnet50, ...",
    "deploy --network bert_basse": "network 'bert_basse'; expected one of ...; did you mean "
    "'bert_base'?",
    "promote costmodel.cpu-x68 1": "model ...; expected a registered name, such as "
    "costmodel.cpu-x86; correct the name",
    "promote costmodel.cpu-x86 1 --to prod": "... 'prod' is not one of 'staging', ...",
    "pull costmodel.cpu-x86 --stage prod --out out": "stage 'prod' of model ...; expected stage "
    "staging or production, or a version number; ...",
    "train --effort fast": "... 'fast' is not one of 'quick', 'standard', 'full'; ...",
    # paths
    "train --records nowhere": "record store 'nowhere'; expected a folder with a store.json; "
    "make one with `hetfeat collect --out DIR`",
    "train --records empty": "record store 'empty'; expected a folder with a store.json; ...",
    "records stats notes.txt": "record store 'notes.txt'; expected a folder with a store.json; ...",
    "collect --network nets:tiny --out notes.txt": "'notes.txt'; expected a record store or an "
    "empty folder; choose another --out",
    "evaluate --model nowhere --records records": "--model 'nowhere'; expected a model's folder "
    "(with model.json) or models:/NAME/VERSION; ...",
    "evaluate --model records --records records": "--model 'records'; expected a model's folder "
    "(with model.json) or models:/NAME/VERSION; ...",
    "run empty --input x.npy --output y.npy": "'empty'; expected a bundle: ...; make one with "
    "hetfeat deploy",
    "prune records --out records": "'records', which holds something; expected a new folder; ...",
    "pull models:/costmodel.cpu-x86/1 --out records": "--out 'records', which is in use; ...",
    "share costmodel.cpu-x86 --bucket b --out empty": "--out 'empty', a folder; expected a "
    "file for the URLs; choose another --out",
    "import nowhere --format ansor --device lab": "'nowhere'; expected a file or a folder of "
    "records; correct the path",
    "deploy --network missing.onnx": "network 'missing.onnx' (No such file or directory); ...",
    "deploy resnet18 --device missing.yaml": "device profile missing.yaml; expected a readable "
    "YAML file; ...",
    # devices that cannot be measured
    "deploy --device nvidia-t4 --network nets:tiny": "device 'nvidia-t4', whose target is cuda; "
    "expected a CPU (llvm), or this machine's own NVIDIA GPU: ...; choose another --device, or "
    "make one with `hetfeat devices probe --gpu true`",
    "collect --device nvidia-t4 --network nets:tiny": "device 'nvidia-t4', whose target is cuda; "
    "...",
    "transfer --device nvidia-t4 --network nets:tiny": "device 'nvidia-t4', whose target is cuda; "
    "...",
    # contents
    "import empty --format ansor --device lab": "'empty', which looks like an empty folder; ...",
    "import notes.txt --format ansor --device lab": "'notes.txt', which looks like text that "
    "begins with 'dear diary'; expected ansor records; ...",
    "train --records torn": "'torn/shards.jsonl' with a line that is not JSON; ...; `hetfeat "
    "records repair torn` sets it aside and keeps the rest",
    "search --space torn.json": "'torn.json': not whole JSON ...; expected a Kernel Tuner ...",
    "deploy --network torn.onnx": "network 'torn.onnx', which cannot be read ...; expected an ONNX "
    "model; export it anew",
    "deploy --network net.tflite": "network 'net.tflite'; expected a TFLite model; ...",
    "devices show torn.yaml": "device profile torn.yaml; expected a readable YAML file; ...",
    "fetch torn.json --out x": "'torn.json'; expected a file written by `hetfeat share`; ...",
    "hpo --records records --storage torn.json": "--storage 'torn.json' ...; expected a journal "
    "file, or the URL of a database that answers; ...",
    # values
    "train --seed -1": "... -1 is not in the range x>=0; see `hetfeat train --help`",
    "deploy --trials -1": "... -1 is not in the range x>=0; see `hetfeat deploy --help`",
    "deploy --batch 0": "... '0' is not a list of numbers of at least 1; ...",
    "train --pruned yes": "... 'yes' is not true or false; ...",
    "promote costmodel.cpu-x86 one": "... 'one' is not a whole number; ...",
    "prune records --out pruned --fraction half": "... 'half' is not a number; ...",
    "prune records --out pruned --fraction 1.5": "--fraction 1.5; expected a share above 0, at "
    "most 1; say 0.55",
    "search --space space.json --budget 0": "--budget 0 of a space of 120 states; ...",
    "search --gemm 512": "--gemm 512; expected three whole numbers M,N,K of at least 1; ...",
    "import notes.txt --format ansor --device MyGPU": "device name 'MyGPU'; expected lower-case "
    "letters, digits, dots, dashes; ...",
    "fleet status --tracker nowhere": "address 'nowhere'; expected HOST:PORT, ...",
    # what does not go together, or is not there yet
    "train --records records --split by_target": "--holdout (none) with the by_target split; "
    "expected devices of the records (a, b), ...",
    "search": "neither --space nor --gemm; expected one of the two; ...",
    "compare costmodel.cpu-x68/1 costmodel.cpu-x86/1": "model ...; expected a registered name, "
    "such as costmodel.cpu-x86; correct the name",
    "compare costmodel.cpu-x86/1 costmodel.cpu-x86/1 --html records": "--html 'records', a folder; "
    "expected a file for the page; choose another",
    "compare onlyone": "1 run to compare; expected two or more; name another one",
    "promote costmodel.cpu-x86 7": "version 7 of 'costmodel.cpu-x86'; expected a version that "
    "exists; ...",
    "rollback costmodel.cpu-x86": "rollback of ...; expected an earlier version that was in "
    "production ...",
    "deploy resnet18 --stage staging": "'costmodel.cpu-x86@staging'; ...; `hetfeat promote "
    "costmodel.cpu-x86 VERSION --to staging` puts one there",
    "transfer --records records --device lab": "device 'lab'; expected a device of the records (a, "
    "b); ...",
    "hpo --records records --storage sqlite:///mlflow.db": "--storage with the database of MLflow; "
    "...",
}
"""Command line -> what is said after `hetfeat: `; each exits with 2 and writes nothing."""


@pytest.fixture(scope="module")
def here(tmp_path_factory, device, trained_once) -> Iterator[Path]:
    """A folder with one of everything, sound and torn."""
    with trained.registry_with_a_model(tmp_path_factory.mktemp("here"), trained_once) as folder:
        remember(device)
        (folder / "empty").mkdir()
        (folder / "notes.txt").write_text("dear diary\n")
        (folder / "torn.json").write_text('{"a": [1,')
        (folder / "torn.yaml").write_text("name: [")
        (folder / "torn.onnx").write_bytes(b"\x08\x07garbage")
        (folder / "net.tflite").write_bytes(b"TFL3")
        spaces.write(folder / "space.json", spaces.whole())
        stores.make_store(folder / "torn", tasks=1, per_task=2)
        (folder / "torn" / "shards.jsonl").write_text("{\n")
        yield folder


def said(capfd, line: str) -> tuple[int, str]:
    """The exit code and the one line, without the program's name."""
    capfd.readouterr()
    code = app.run(mlproject.cli, shlex.split(line))
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith("hetfeat: ")
    return code, last.removeprefix("hetfeat: ")


def matches(message: str, wanted: str) -> bool:
    pattern = ".*".join(map(re.escape, wanted.split("...")))
    return re.fullmatch(pattern, message) is not None


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_to_do(here, capfd, line):
    before = sorted(here.iterdir())
    code, message = said(capfd, line)
    assert matches(message, MISTAKES[line]), message
    assert code == BAD_REQUEST
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize(
    "line", ["versions", "doctor costmodel.cpu-x86", "hpo --records records --trials 1"]
)
def test_a_server_that_is_down(here, capfd, monkeypatch, line):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    code, message = said(capfd, line)
    assert code == FAILED
    wanted = "no way to ...127.0.0.1...; expected a registry that answers; check ..."
    assert matches(message, wanted), message


def test_a_tracker_that_is_down(here, capfd):
    code, message = said(capfd, "fleet status --tracker 127.0.0.1:9")
    assert code == FAILED
    assert matches(message, "tracker 127.0.0.1:9, which does not answer ...fleet start-tracker`...")


def test_a_folder_below_a_file(here, capfd):
    code, message = said(capfd, "prune records --out notes.txt/pruned")
    assert code == FAILED
    wanted = "'notes.txt/pruned' (Not a directory); expected a place that can be written, ..."
    assert matches(message, wanted), message


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="no /sys to write to in vain")
def test_a_folder_that_is_read_only(here, capfd):
    code, message = said(capfd, "prune records --out /sys/kernel/pruned")
    assert code == FAILED
    assert matches(message, "'/sys/kernel/pruned' (...); expected a place that can be written, ...")


def test_a_package_that_is_missing(here, capfd, monkeypatch):
    for name in [
        n for n in sys.modules if n.startswith(("lightgbm", "hetfeat.models.engines.lgbm"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    code, message = said(capfd, "train --records records --model lgbm")
    assert code == FAILED
    wanted = (
        "the package 'lightgbm', which is not installed; ...hetfeat doctor --environment true..."
    )
    assert matches(message, wanted), message


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("MySQLdb", "mysqlclient"),
        ("google", "google-cloud-storage"),
        ("google.cloud.storage", "google-cloud-storage"),
        ("azure.storage.blob", "azure-storage-blob"),
        ("psycopg2", "psycopg2-binary"),
        ("sklearn.linear", "scikit-learn"),
        ("nobody_knows_this", None),
    ],
)
def test_a_module_is_never_taken_for_a_package(module, package):
    assert distribution_of(module) == package
    line = str(missing(ModuleNotFoundError(name=module)))
    assert (package in line and "pip install" in line) if package else "pip install" not in line


@pytest.mark.parametrize("module", ["torch", "torch.nn", "psycopg2"])
def test_a_package_of_an_extra_that_is_missing_names_the_extra(monkeypatch, module):
    asked = ["numpy>=2", 'psycopg2_binary>=2; extra == "postgres"', 'torch>=2; extra == "torch"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: asked)
    monkeypatch.setattr(importlib.metadata, "packages_distributions", dict)
    extra = "torch" if module.startswith("torch") else "postgres"
    line = str(missing(ModuleNotFoundError(name=module)))
    assert f"extra '{extra}'; `pip install 'hetfeat[{extra}]'`" in line
    assert "extra" not in str(missing(ModuleNotFoundError(name="numpy")))


def test_a_database_without_its_driver_names_the_package(here, monkeypatch):
    from registry.jobs import optuna_study

    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(WorkFailed, match=r"psycopg2-binary.*pip install"):
        optuna_study.open_storage("postgresql://localhost/x", "sqlite:///mlflow.db")


def test_a_deleted_experiment_and_a_store_without_its_package_are_told(here, monkeypatch):
    from registry.models.mlflow_client import connect
    from registry.tracking import command_run

    client = connect()
    gone = client.create_experiment("gone")
    client.delete_experiment(gone)
    client.create_experiment("far", artifact_location="gs://bucket/x")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "gone")
    wanted = f"mlflow experiments restore --experiment-id {gone}.*MLFLOW_EXPERIMENT_NAME"
    with pytest.raises(RequestError, match=wanted), command_run.tracked_run("train", {}):
        pass
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "far")
    monkeypatch.setitem(sys.modules, "google.cloud", None)
    worked = []
    with (
        pytest.raises(WorkFailed, match="pip install google-cloud-storage"),
        command_run.tracked_run("train", {}),
    ):
        worked.append(True)
    assert not worked


def test_a_defect_is_not_taken_for_a_mistake(monkeypatch):
    def broken(*_):
        raise ModuleNotFoundError("No module named 'hetfeat.gone'", name="hetfeat.gone")

    monkeypatch.setattr(app.LazyGroup, "load", broken)
    with pytest.raises(ModuleNotFoundError):
        app.run(mlproject.cli, ["train"])


def test_there_are_forty():
    assert len(MISTAKES) >= 40
