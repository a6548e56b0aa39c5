"""`tools/package_records.py` on three devices, one of which was shared for a while."""

import importlib.util
import sys
from types import ModuleType

import numpy as np
import pytest
import stores

from hetfeat.dataset.store import RecordStore
from hetfeat.records import Measurement

DEVICES = ("a", "b", "c")
BATCH = 4


@pytest.fixture(scope="module")
def tool(project) -> ModuleType:
    path = project / "tools" / "package_records.py"
    spec = importlib.util.spec_from_file_location("package_records", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
