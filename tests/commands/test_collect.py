"""`hetfeat collect` as a process, interrupted, killed, and run again to the end."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from hetfeat.dataset import sidecar_files
from hetfeat.dataset.store import RecordStore
from registry.models.mlflow_client import connect

pytestmark = [pytest.mark.slow, pytest.mark.tvm]

PROGRAMS_PER_TASK = 12
ENOUGH = 12
"""Records in the store before the process is stopped."""
DECIDING = ("programs", "programs_per_s")


def start(
    folder: Path, device_file: Path, environment, command, network="nets:tiny"
) -> subprocess.Popen:
    line = [*command, "collect", "--device", str(device_file), "--network", network]
    line += ["--programs-per-task", str(PROGRAMS_PER_TASK), "--out", "records", "--json"]
    return subprocess.Popen(
        line, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def journal_lines(folder: Path) -> int:
    path = folder / "records" / "journal.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def stop_in_the_middle(process: subprocess.Popen, folder: Path, number: signal.Signals):
    """Stops a process once it has measured something; says what it leaves."""
    end = time.monotonic() + 200
    while journal_lines(folder) < ENOUGH:
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < end
        time.sleep(0.02)
    children = psutil.Process(process.pid).children(recursive=True)
    written = journal_lines(folder)
    started = time.monotonic()
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=60)
    seconds = time.monotonic() - started
    psutil.wait_procs(children, timeout=20)
    return SimpleNamespace(
        code=process.returncode,
        errors=errors.decode(),
        seconds=seconds,
        written=written,
        rejected=rejected(folder),
        left=[child for child in children if child.is_running()],
        times=times(folder),
    )


def rejected(folder: Path) -> int:
    """Measurements not kept, their repeats having disagreed."""
    return len(list(sidecar_files.read_rows(folder / "records", sidecar_files.REJECTED)))


def times(folder: Path) -> dict[str, float]:
    """When each program was measured; fails if one was twice."""
    table = RecordStore.open(folder / "records").read(["program", "unix_s"]).to_pydict()
    assert len(set(table["program"])) == len(table["program"])
    return dict(zip(table["program"], table["unix_s"], strict=True))


@pytest.fixture(scope="module")
def story(tmp_path_factory, device_file, child_environment, hetfeat_command) -> SimpleNamespace:
    """Interrupted, then killed, then run to the end, then once more."""
    folder = tmp_path_factory.mktemp("collect")
    common = (folder, device_file, child_environment, hetfeat_command)
    interrupted = stop_in_the_middle(start(*common), folder, signal.SIGINT)
    shards = len(RecordStore.open(folder / "records").shards())
    killed = stop_in_the_middle(start(*common), folder, signal.SIGKILL)
    last = start(*common)
    out, errors = last.communicate(timeout=300)
    assert last.returncode == 0, errors.decode()
    return SimpleNamespace(
        interrupted=interrupted,
        shards=shards,
        killed=killed,
        result=json.loads(out),
        times=times(folder),
        rejected=rejected(folder),
        store=RecordStore.open(folder / "records"),
        folder=folder,
    )


def test_an_interrupt_is_obeyed_and_told_in_a_line(story):
    assert story.interrupted.code == 130
    assert story.interrupted.seconds < 20
    assert story.interrupted.errors.splitlines()[-1].startswith("hetfeat: interrupted")
    assert "Traceback" not in story.interrupted.errors


def test_what_was_measured_before_the_interrupt_is_in_shards(story):
    assert len(story.interrupted.times) >= story.interrupted.written >= ENOUGH
    assert story.shards > 0


def test_a_kill_loses_at_most_what_was_in_flight(story):
    assert story.killed.code == -signal.SIGKILL
    before = len(story.interrupted.times)
    assert len(story.killed.times) >= before + story.killed.written


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_no_child_goes_on(story, how):
    assert getattr(story, how).left == []


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_nothing_is_measured_again(story, how):
    earlier = getattr(story, how).times
    assert {key: story.times[key] for key in earlier} == earlier


def test_the_last_run_measured_the_rest(story):
    result = story.result
    before = len(story.killed.times) + story.killed.rejected
    assert result["known_before"] == before
    assert result["programs"] == len(story.times) + story.rejected - before
    assert result["rejected"] == story.rejected - story.killed.rejected
    assert result["failed"] <= result["programs"] / 4
    assert result["programs_per_s"] > 0
    assert result["dataset_digest"] == story.store.digest()


def test_the_run_shows_how_many_and_how_fast(story):
    client = connect(f"sqlite:///{story.folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("hetfeat")
    runs = client.search_runs([experiment.experiment_id], "status = 'FINISHED'")
    shown = [run.data.metrics[f"decides/{key}"] for run in runs for key in DECIDING]
    assert shown == [story.result[key] for key in DECIDING]


def test_the_store_has_everything_a_training_needs(story):
    (device,) = story.store.devices().values()
    assert device.name == "here"
    (weights,) = story.store.networks().values()
    assert set(weights) == set(story.store.workloads())
    assert story.result["tasks"] == len(weights)
    assert story.store.damaged_shards() == []
    assert not (story.store.path / "journal.jsonl").exists()


def test_convolutions_are_measured_in_the_ways_that_deploy_lets_compete(story):
    sides: dict[str, set[int]] = {}
    for row in story.store.read(["operator", "shapes"]).to_pylist():
        weights = json.loads(row["shapes"])[1]
        sides.setdefault(row["operator"], set()).add(weights[0])
    assert sides["winograd"] == {2 + 2, 4 + 2}
    assert sides["conv2d"] == {1, 3}


def test_a_convolution_counts_in_one_way_only(story):
    (weights,) = story.store.networks().values()
    known = story.store.read(["task", "operator"]).to_pylist()
    operators = {row["task"]: row["operator"] for row in known}
    assert {task for task, one in weights.items() if one == 0} == {
        task for task, operator in operators.items() if operator == "winograd"
    }


def test_a_second_one_leaves_the_first_alone(
    story, tmp_path, device_file, child_environment, hetfeat_command
):
    records = Path(shutil.copytree(story.store.path, tmp_path / "records"))
    before = {p: p.read_bytes() for p in records.rglob("*") if p.is_file()}
    with RecordStore.open(records).writing():
        second = start(tmp_path, device_file, child_environment, hetfeat_command, "nets:dense")
        _, errors = second.communicate(timeout=300)
    assert second.returncode == 2
    assert b"to which another process writes" in errors.splitlines()[-1]
    assert {p: p.read_bytes() for p in records.rglob("*") if p.is_file()} == before


def test_every_task_has_its_programs(story):
    counts: dict[str, int] = {}
    for task in story.store.read(["task"])["task"].to_pylist():
        counts[task] = counts.get(task, 0) + 1
    assert PROGRAMS_PER_TASK - story.rejected <= max(counts.values()) <= PROGRAMS_PER_TASK
