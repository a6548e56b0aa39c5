"""Each trap that `doctor --environment true` knows: set, and seen to be found."""

import importlib.metadata
import json
import os
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import mlproject
from hetfeat.devices.probe import remember
from registry import environment
from registry.commands import _cli


@pytest.fixture(autouse=True)
def here(tmp_path: Path, new_registry, monkeypatch) -> Path:
    """A machine without traps, as far as a test can have one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", new_registry(tmp_path))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for variable in ("TVM_NUM_THREADS", "TVM_BIND_THREADS", "CXX", "CC"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: ["numpy==2.0", "x==1; extra"])
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"numpy": "2.0+cpu"}.get(name))
    return tmp_path


def another_numpy(monkeypatch, here, device):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.26")
    return "numpy 1.26 instead of 2.0"


def not_installed(monkeypatch, here, device):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", missing)
    return "without being installed"


def newer_ffi(monkeypatch, here, device):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1.15.post2")
    return "segmentation fault"


def tvm_dies(monkeypatch, here, device):
    monkeypatch.setattr(environment, "_LOADS", "import os; os.kill(os.getpid(), 11)")
    return "signal 11"


def tvm_missing(monkeypatch, here, device):
    monkeypatch.setattr(environment, "_LOADS", "import no_such_tvm")
    return "no_such_tvm"


def no_compiler(monkeypatch, here, device):
    monkeypatch.setenv("PATH", str(here))
    return "no C.. compiler"


def wrong_compiler(monkeypatch, here, device):
    monkeypatch.setenv("CXX", "no-such-compiler")
    return "no-such-compiler"


def one_thread(monkeypatch, here, device):
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    return "'1' where 2 cores"


def confined(monkeypatch, here, device):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3})
    return "CPUs 1,3"


def profile_of_another_cpu(monkeypatch, here, device):
    # No CPU has both of what this one has that others have not.
    target = {"kind": "llvm", "mcpu": "graniterapids", "mattr": ["+avx512vp2intersect"]}
    remember(replace(device, target=target))
    return "this one has not"


def profile_of_more_cores(monkeypatch, here, device):
    remember(replace(device, threads=64))
    return "64 threads where 2"


def no_server(monkeypatch, here, device):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    return "reach the tracking store"


def damaged_database(monkeypatch, here, device):
    (here / "mlflow.db").write_bytes(b"no database" * 100)
    return "not a database"


def shared_with_optuna(monkeypatch, here, device):
    with closing(sqlite3.connect(here / "mlflow.db")) as database:
        database.execute("CREATE TABLE studies (study_id INTEGER PRIMARY KEY)")
    return "studies of Optuna"


TRAPS = [
    ("versions", another_numpy),
    ("versions", not_installed),
    ("ffi", newer_ffi),
    ("loads", tvm_dies),
    ("loads", tvm_missing),
    ("compiler", no_compiler),
    ("compiler", wrong_compiler),
    ("threads", one_thread),
    ("binding", confined),
    pytest.param("profile", profile_of_another_cpu, marks=pytest.mark.tvm),
    pytest.param("profile", profile_of_more_cores, marks=pytest.mark.tvm),
    ("tracking", no_server),
    ("tracking", damaged_database),
    ("tracking", shared_with_optuna),
]


@pytest.mark.parametrize(("check", "trap"), TRAPS)
def test_a_trap_is_found_and_has_a_way_out(monkeypatch, here, device, check, trap):
    said = trap(monkeypatch, here, device)
    found = list(environment.CHECKS[check]())
    assert any(re.search(said, what) for what, _ in found), found
    assert all(action for _, action in found)


def test_every_check_has_a_trap():
    assert {getattr(trap, "values", trap)[0] for trap in TRAPS} == set(environment.CHECKS)


def command(capfd, *arguments: str) -> tuple[int, dict]:
    code = _cli.run(mlproject.cli, ["doctor", "--environment", "true", *arguments, "--json"])
    printed = capfd.readouterr()
    return code, json.loads(printed.out) if printed.out else printed.err


@pytest.mark.tvm
def test_a_sound_machine_has_no_findings(here, device, capfd):
    remember(device)
    assert command(capfd) == (0, {"findings": [], "left": 0})


def test_a_finding_exits_with_1(monkeypatch, here, device, capfd):
    monkeypatch.setattr(
        environment, "CHECKS", {name: environment.CHECKS[name] for name in ("threads", "tracking")}
    )
    one_thread(monkeypatch, here, device)
    code, printed = command(capfd)
    assert (code, printed["left"]) == (1, 1)
    (finding,) = printed["findings"]
    assert finding["code"] == "threads" and not finding["repaired"]


def test_nothing_there_yet_is_no_trap_and_stays_so(monkeypatch, here):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here}/other.db")
    assert list(environment.tracking()) == []
    assert not (here / "other.db").exists()


def test_a_machine_is_not_repaired(capfd):
    code, said = command(capfd, "--repair", "true")
    assert code == 2 and "alone" in said
