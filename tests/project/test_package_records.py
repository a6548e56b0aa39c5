"""`tools/package_records.py` and `tools/packaged_models.py` on small stores."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
import stores

import hetfeat
from hetfeat.dataset.packaged import packaged_store, packaged_stores
from hetfeat.dataset.store import RecordStore
from hetfeat.records import Measurement

DEVICES = ("a", "b", "c")
BATCH = 4


def tool_of(project: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, project / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tool(project) -> ModuleType:
    return tool_of(project, "package_records")


def latency_s(number: int, device: str, slower: float) -> float:
    """Milliseconds as many as the program's number; the second batch met somebody else on `b`."""
    shared = device == "b" and number // BATCH == 1
    return 1e-3 * (number + 1) * (slower if shared else 1)


def unix_s(number: int) -> float:
    """A program each tenth of a second, two seconds between batches."""
    return 1e9 + 2.0 * (number // BATCH) + 0.1 * (number % BATCH)


@pytest.mark.parametrize(("slower", "found"), [(2.0, [4, 5, 6, 7]), (1.5, []), (0.5, [])])
def test_a_batch_beside_something_else_is_known_by_the_other_devices(tool, slower, found):
    latency = np.log([[latency_s(i, device, slower) for device in DEVICES] for i in range(12)])
    when = np.array([[unix_s(i)] * len(DEVICES) for i in range(12)])
    turned = np.random.default_rng(0).permutation(12)
    bad = tool.slowed(latency[turned], when[turned])
    assert sorted(turned[bad].tolist()) == found


def test_a_balanced_part_of_what_ran_everywhere(tool, tmp_path, monkeypatch):
    whole = RecordStore.create(tmp_path / "whole")
    mine, deployed, other = (stores.task(number) for number in range(3))
    programs = stores.programs(mine, 12, seed=0)
    for device in DEVICES:
        whole.add_device(stores.profile(device))
        whole.append(
            Measurement(program, device, (latency_s(i, device, 2.0),), None, unix_s(i), "tvm")
            for i, program in enumerate(programs)
            if (i, device) != (11, "c")
        )
        for program in stores.programs(deployed, 3, seed=0):
            whole.append([Measurement(program, device, (1e-3,), None, 1e9, "tvm")])
    whole.append([Measurement(programs[11], "c", (), "timeout", 1e9, "tvm")])
    modules = {of.hash: f"module {of.hash}" for of in (mine, deployed)}
    whole.add_network("net", {mine.hash: 2, deployed.hash: 1}, modules)
    whole.add_network("resnet18", {deployed.hash: 3}, {})
    whole.compact()

    earlier = RecordStore.create(tmp_path / "earlier")
    earlier.add_device(stores.profile("a", threads=8))
    (before,) = stores.programs(other, 1, seed=0)
    (left_out,) = stores.programs(deployed, 1, seed=1)
    for program in (before, left_out):
        earlier.append([Measurement(program, "a", (1e-3,), None, 1e9, "tvm")])
    earlier.add_network("old", {other.hash: 1}, {other.hash: "module"})
    earlier.compact()

    elsewhere = RecordStore.create(tmp_path / "elsewhere")
    elsewhere.add_device(stores.profile("d"))
    (there,) = stores.programs(other, 1, seed=1)
    elsewhere.append([Measurement(there, "d", (1e-3,), None, 1e9, "tvm")])
    elsewhere.add_network("net", {other.hash: 5}, {other.hash: "module"})
    elsewhere.compact()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tool, "anchors_of", lambda networks, target: {deployed.anchor})
    arguments = ["whole", "out", "--more", "earlier", "elsewhere", "--programs", "4"]
    monkeypatch.setattr(sys, "argv", ["package_records.py", *arguments])
    tool.main()

    out = RecordStore.open(tmp_path / "out")
    records = out.read(["device", "program"])
    found = set(zip(*(records[name].to_pylist() for name in records.column_names), strict=True))
    # Without the shared batch (4 to 7) and what failed on c (11), evenly by speed: of 0, 1, 2, 3,
    # 8, 9, 10 the first, third, fifth and seventh.
    kept = {(device, programs[i].key) for device in DEVICES for i in (0, 2, 8, 10)}
    assert found == kept | {("a", before.key), ("d", there.key)}
    assert len(records) == len(found)
    assert out.devices() == whole.devices() | elsewhere.devices()
    assert out.networks() == {"net": {mine.hash: 2, other.hash: 5}, "old": {other.hash: 1}}
    assert out.workloads() == {mine.hash: modules[mine.hash], other.hash: "module"}


@pytest.fixture
def packaged(tool, tmp_path, monkeypatch):
    """A data set of CPUs, to which the records of a GPU were added."""
    root = tmp_path / "packaged"
    stores.make_store(root, tasks=2, per_task=4)
    gpus = stores.make_store(tmp_path / "gpus", ("g",), tasks=6, per_task=12, family="gpu-nvidia")
    gpus.add_device(stores.profile("here"))
    (mine,) = stores.programs(stores.task(0), 1, seed=1)
    gpus.append([Measurement(mine, "here", (1e-3,), None, 1e9, "tvm")])
    gpus.compact()
    monkeypatch.setattr(tool, "anchors_of", lambda networks, target: {stores.task(5).anchor})
    command = ["package_records.py", str(gpus.path), "--family", "gpu-nvidia", "--programs", "8"]
    monkeypatch.setattr(sys, "argv", command)
    tool.main(root)
    return root


def test_a_family_is_packaged_beside_the_first(tool, packaged, tmp_path, monkeypatch, capsys):
    added = RecordStore.open(packaged_store("gpu-nvidia", packaged))
    assert set(added.devices()) == {"g"}
    rows = added.read(["device", "task", "latencies_s"])
    assert rows.group_by("task").aggregate([([], "count_all")])["count_all"].to_pylist() == [8] * 5
    assert set(rows["device"].to_pylist()) == {"g"} and all(rows["latencies_s"].to_pylist())
    assert RecordStore.open(packaged).measured_devices() == {"a", "b"}
    assert not added.damaged_shards()
    told = (added.path / "README.md").read_text()
    for said in ("40 records of 5 tasks of 1 networks", "| g | 40 | 5 |", "| float32 | 40 | 5 |"):
        assert said in told
    assert added.digest() in told and "`resnet18`, `resnet50`" in told

    before = added.digest()
    more = ["--more", str(added.path), "--programs", "2"]
    monkeypatch.setattr(sys, "argv", [*sys.argv[:-2], *more])
    tool.main(packaged)
    assert len(RecordStore.open(added.path).read(["task"])) == 40 + 10
    draft = tmp_path / "draft"
    stores.make_store(draft, ("g",), family="gpu-nvidia")
    with pytest.raises(SystemExit, match="fewer --programs"):
        tool.add_family(draft, "gpu-nvidia", (), packaged, most_bytes=20_000)
    assert RecordStore.open(added.path).digest() != before and not draft.exists()


def test_what_ran_is_added_to_a_family(tool, packaged, tmp_path, monkeypatch):
    before = RecordStore.open(packaged).shards()
    new, left_out = stores.task(3), stores.task(5)
    store = RecordStore.create(tmp_path / "new")
    store.add_device(stores.profile("c"))
    for of, error in ((new, None), (new, "timeout"), (left_out, None)):
        (program,) = stores.programs(of, 1, seed=len(error or ""))
        latencies_s = () if error else (1e-3,)
        store.append([Measurement(program, "c", latencies_s, error, 1e9, "tvm")])
    store.add_network("net_int8", {new.hash: 2, left_out.hash: 1}, {new.hash: "module"})
    store.compact()
    command = ["package_records.py", str(store.path), "--append", "cpu-x86"]
    monkeypatch.setattr(sys, "argv", command)
    tool.main(packaged)
    found = RecordStore.open(packaged)
    assert found.shards()[: len(before)] == before and not found.damaged_shards()
    (added,) = pa.concat_tables(found.scan(["device", "task", "error"], "c")).to_pylist()
    assert added == {"device": "c", "task": new.hash, "error": None}
    assert found.networks()["net_int8"] == {new.hash: 2}
    assert found.workloads()[new.hash] == "module" and set(found.devices()) == {"a", "b", "c"}


def test_known_tasks_alone_are_added(tool, packaged, tmp_path, monkeypatch):
    known, new = stores.task(1), stores.task(3)
    RecordStore.open(packaged).add_workloads({known.hash: "module"})
    store = RecordStore.create(tmp_path / "new")
    store.add_device(stores.profile("c"))
    for of in (known, new):
        (program,) = stores.programs(of, 1, seed=1)
        store.append([Measurement(program, "c", (1e-3,), None, 1e9, "tvm")])
    store.add_network("net", {known.hash: 1, new.hash: 2}, {t.hash: "module" for t in (known, new)})
    store.compact()
    command = ["package_records.py", str(store.path), "--append", "cpu-x86", "--known"]
    monkeypatch.setattr(sys, "argv", command)
    tool.main(packaged)
    found = RecordStore.open(packaged)
    assert pa.concat_tables(found.scan(["task"], "c")).to_pylist() == [{"task": known.hash}]
    assert found.workloads() == {known.hash: "module"}


def test_the_model_of_one_family_is_trained_anew(project, packaged, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "records.json").write_text('{"cpu-x86": "earlier"}')
    found = packaged_stores(packaged)
    tool_of(project, "packaged_models").train(["gpu-nvidia"], found, folder)
    assert hetfeat.load_model(folder / "gpu-nvidia").valid_pca is not None
    digest = RecordStore.open(found["gpu-nvidia"]).digest()
    assert json.loads((folder / "records.json").read_text()) == {
        "cpu-x86": "earlier",
        "gpu-nvidia": digest,
    }
    assert sorted(path.name for path in folder.iterdir()) == ["gpu-nvidia", "records.json"]
