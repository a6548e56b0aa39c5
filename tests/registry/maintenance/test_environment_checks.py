"""Each trap that `doctor --environment true` knows: set, and seen to be found."""

import functools
import importlib.metadata
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import mlproject
from hetfeat.devices import host
from hetfeat.devices.probe import remember
from hetfeat.devices.profile import save_profile
from registry.cli import app
from registry.maintenance import environment, packages, tracking_store

REQUIREMENTS = ["numpy>=2.0,<3", 'torch>=2.13; extra == "torch"']


@pytest.fixture(autouse=True)
def here(tmp_path: Path, new_registry, monkeypatch) -> Path:
    """A machine without traps, as far as a test can have one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", new_registry(tmp_path))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for variable in (
        *("TVM_NUM_THREADS", "OMP_NUM_THREADS", "TVM_BIND_THREADS", "CXX", "CC"),
        *("MLFLOW_RUN_ID", "MLFLOW_ENV_ROOT"),
    ):
        monkeypatch.delenv(variable, raising=False)
    free(monkeypatch, disk_bytes=2**40)  # a busy machine is not what is tested
    monkeypatch.setattr(host, "memory_left_bytes", lambda: float("inf"))
    roomy = type("Memory", (), {"available": 2**40})
    monkeypatch.setattr("psutil.virtual_memory", lambda: roomy)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: REQUIREMENTS)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"numpy": "2.0+cpu"}.get(name))
    return tmp_path


def free(monkeypatch, disk_bytes: int) -> None:
    usage = type("Usage", (), {"free": disk_bytes})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)


def loading(monkeypatch, code: str, longest_s: float = 120.0) -> None:
    """Lets the check of what loads run this code."""
    check = functools.partial(packages.loads, {"TVM": code}, longest_s)
    monkeypatch.setitem(environment.CHECKS, "loads", check)


def only(monkeypatch, *names: str) -> None:
    """Leaves these checks of the machine."""
    for name in environment.CHECKS.keys() - set(names):
        monkeypatch.delitem(environment.CHECKS, name)


def another_numpy(monkeypatch, here, device):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.26")
    return "numpy 1.26 instead of numpy<3,>=2.0"


def another_torch(monkeypatch, here, device):
    installed = {"numpy": "2.0", "torch": "2.12.1+cpu"}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: installed[name])
    return "^torch 2.12.1.cpu instead of torch>=2.13$"


def not_installed(monkeypatch, here, device):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", missing)
    return "without being installed"


def newer_ffi(monkeypatch, here, device):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1.15.post2")
    return "segmentation fault"


def tvm_dies(monkeypatch, here, device):
    loading(monkeypatch, "import os; os.kill(os.getpid(), 11)")
    return "TVM does not load: killed by signal 11"


def tvm_hangs(monkeypatch, here, device):
    loading(monkeypatch, "import time; time.sleep(60)", longest_s=0.1)
    return "TVM does not load: TimeoutExpired"


def tvm_missing(monkeypatch, here, device):
    loading(monkeypatch, "import no_such_tvm")
    return "no_such_tvm"


def no_compiler(monkeypatch, here, device):
    monkeypatch.setenv("PATH", str(here))
    return "no C.. compiler"


def wrong_compiler(monkeypatch, here, device):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("CC", "gcc")  # which TVM does not fall back to
    return "no-such-compiler"


def program(folder: Path, name: str, code: int) -> Path:
    """A program that says why it ends with this exit code."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho no headers here >&2\nexit {code}\n")
    path.chmod(0o755)
    return path


def broken_compiler(monkeypatch, here, device):
    monkeypatch.setenv("CXX", str(program(here, "c++", 1)))
    return "does not link a library: no headers here"


def foreign_compiler(monkeypatch, here, device):
    program(here, "c++", 0).write_bytes(b"\x7fELF of another machine")
    monkeypatch.setenv("CXX", str(here / "c++"))
    return "does not link a library: Exec format error"


def broken_nvcc(monkeypatch, here, device):
    program(here, "nvcc", 1)
    monkeypatch.setenv("PATH", str(here), prepend=os.pathsep)
    return "nvcc is there and does not start"


def foreign_nvcc(monkeypatch, here, device):
    program(here, "nvcc", 0).write_bytes(b"\x7fELF of another machine")
    monkeypatch.setenv("PATH", str(here))  # alone: else the next nvcc is tried
    return "nvcc is there and does not start"


def many_threads(monkeypatch, here, device):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    return "OMP_NUM_THREADS is '64' where 2 cores"


def full_disk(monkeypatch, here, device):
    free(monkeypatch, disk_bytes=2**20)
    return "GiB free for the cache"


def disk_of_another(monkeypatch, here, device):
    monkeypatch.setattr(os, "access", lambda path, mode: path != here)
    return "the working folder .* cannot be written"


def little_memory(monkeypatch, here, device):
    # As a container of 3 GB, of which 1 is taken; tuning on two cores may take 4.5.
    monkeypatch.setattr(host, "memory_left_bytes", lambda: 2 * 2**30)
    return r"2\.0 GiB of memory free, where tuning takes up to 4\.5"


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


def old_database(monkeypatch, here, device):
    with closing(sqlite3.connect(here / "mlflow.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '1bd49d398cd23'")
    return "another version of MLflow"


def file_store(monkeypatch, here, device):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(here / "mlruns"))
    return "maintenance mode"


def run_of_another(monkeypatch, here, device):
    monkeypatch.setenv("MLFLOW_RUN_ID", "0123")
    return "MLFLOW_RUN_ID"


def relative_store(monkeypatch, here, device):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    return "another folder"


def folder_of_the_same_name(monkeypatch, here, device):
    (here / "MLproject").write_text("name: x")
    (here / "mlproject").mkdir()
    return "'mlproject' beside MLproject"


def no_environment(monkeypatch, here, device):
    (here / "MLproject").write_text("name: x")
    (here / "python_env.yaml").write_text("dependencies: [nothing==0]")
    monkeypatch.setenv("MLFLOW_ENV_ROOT", str(here / "envs"))
    monkeypatch.setenv("PATH", str(here))
    return "no environment at .*envs"


TRAPS = [
    ("versions", another_numpy),
    ("versions", another_torch),
    ("versions", not_installed),
    ("ffi", newer_ffi),
    ("loads", tvm_dies),
    ("loads", tvm_hangs),
    ("loads", tvm_missing),
    ("compiler", no_compiler),
    ("compiler", wrong_compiler),
    ("compiler", broken_compiler),
    ("compiler", foreign_compiler),
    ("cuda", broken_nvcc),
    ("cuda", foreign_nvcc),
    ("threads", one_thread),
    ("threads", many_threads),
    ("disk", full_disk),
    ("disk", disk_of_another),
    ("memory", little_memory),
    ("binding", confined),
    pytest.param("profile", profile_of_another_cpu, marks=[pytest.mark.tvm, pytest.mark.slow]),
    pytest.param("profile", profile_of_more_cores, marks=[pytest.mark.tvm, pytest.mark.slow]),
    ("tracking", no_server),
    ("tracking", damaged_database),
    ("tracking", shared_with_optuna),
    ("tracking", old_database),
    ("tracking", file_store),
    ("variables", run_of_another),
    ("variables", relative_store),
    ("project", folder_of_the_same_name),
    ("project", no_environment),
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
    code = app.run(mlproject.cli, ["doctor", "--environment", "true", *arguments, "--json"])
    printed = capfd.readouterr()
    return code, json.loads(printed.out) if printed.out else printed.err


@pytest.mark.slow
@pytest.mark.tvm
def test_a_sound_machine_has_no_findings(here, device, capfd):
    remember(device)
    assert command(capfd) == (0, {"findings": [], "left": 0})


def test_a_finding_exits_with_1(monkeypatch, here, device, capfd):
    only(monkeypatch, "threads", "tracking")
    one_thread(monkeypatch, here, device)
    code, printed = command(capfd)
    assert (code, printed["left"]) == (1, 1)
    (finding,) = printed["findings"]
    assert finding["code"] == "threads" and not finding["repaired"]


def test_nothing_there_yet_is_no_trap_and_stays_so(monkeypatch, here):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here}/other.db")
    assert list(tracking_store.tracking()) == []
    assert not (here / "other.db").exists()


def test_a_machine_is_not_repaired(capfd):
    code, said = command(capfd, "--repair", "true")
    assert code == 2 and "alone" in said


class TestDevices:
    """What `doctor --environment true NAME` says of a device."""

    @pytest.fixture(autouse=True)
    def devices_only(self, monkeypatch):
        only(monkeypatch)

    @pytest.fixture
    def port(self) -> int:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            return taken.getsockname()[1]

    @pytest.fixture
    def remote(self, here, device, port) -> str:
        route = {"kind": "rpc", "tracker": f"127.0.0.1:{port}", "key": "lab"}
        save_profile(replace(device, name="lab", route=route), here / "lab.yaml")
        return "lab.yaml"

    def found(self, capfd, name: str) -> dict:
        code, printed = command(capfd, name)
        assert code == printed["left"] == 1, printed
        (finding,) = printed["findings"]
        assert (finding["code"], finding["model"]) == ("device", name)
        return finding

    def test_a_tracker_that_does_not_answer(self, remote, port, capfd):
        finding = self.found(capfd, remote)
        assert f"127.0.0.1:{port}, which does not answer" in finding["what"]
        assert "hetfeat fleet start-tracker" in finding["action"]

    @pytest.mark.slow
    @pytest.mark.tvm
    def test_a_tracker_without_a_server_of_the_device(self, remote, port, capfd, project):
        start = [sys.executable, "-m", "hetfeat.devices.fleet.tracker", "127.0.0.1", str(port)]
        with subprocess.Popen(start, env=os.environ | {"PYTHONPATH": str(project)}) as tracker:
            try:
                wait_for(port)
                finding = self.found(capfd, remote)
            finally:
                tracker.kill()
        assert "has no server 'lab' for lab" in finding["what"]
        assert f"--tracker 127.0.0.1:{port} --key lab" in finding["action"]

    def test_a_profile_that_is_torn(self, here, capfd):
        (here / "torn.yaml").write_text("name: [")
        assert "torn.yaml" in self.found(capfd, "torn.yaml")["what"]

    def test_a_device_that_is_not_there(self, here, device, capfd):
        remember(device)
        assert "device 'laptop'" in self.found(capfd, "laptop")["what"]

    def test_a_gpu_without_nvcc(self, here, device, capfd, monkeypatch):
        gpu = {"target": {"kind": "cuda"}, "family": "gpu-nvidia", "route": {"kind": "rpc"}}
        save_profile(replace(device, **gpu), here / "gpu.yaml")
        monkeypatch.setattr(shutil, "which", lambda name: None)
        _, printed = command(capfd, "gpu.yaml")
        assert "no nvcc" in printed["findings"][0]["what"]


def wait_for(port: int) -> None:
    for _ in range(300):
        with socket.socket() as link:
            if link.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on {port}")
