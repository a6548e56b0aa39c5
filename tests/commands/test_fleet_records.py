"""Collecting records and transferring a model over a tracker, on this machine as the device."""

import dataclasses
from pathlib import Path

import adapting
import fleets
import pytest
import stores

from hetfeat.dataset.store import RecordStore
from hetfeat.devices.profile import save_profile
from hetfeat.features.assemble import assemble
from registry.files.moves import promote

pytestmark = [pytest.mark.fleet, pytest.mark.slow, pytest.mark.tvm]


@pytest.fixture(scope="module")
def there(device):
    """The profile of this machine, as a device behind a tracker with one server."""
    with fleets.fleet(servers=1) as fleet:
        route = {"kind": "rpc", "key": fleet.key, "tracker": str(fleet.tracker)}
        yield dataclasses.replace(device, name="there", route=route, peak_gflops=None)


@pytest.fixture
def folder(there, registry_here, child_environment, monkeypatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", child_environment["PYTHONPATH"])
    save_profile(there, registry_here / "there.yaml")
    return registry_here


NAMED = ("--device", "there.yaml", "--network", "nets:tiny", "--out", "records")


def test_collecting_over_rpc(folder, capfd):
    wanted = ("collect", *NAMED, "--programs-per-task", "4", "--winograd", "false")
    found = adapting.succeed(capfd, *wanted)
    store = RecordStore.open(folder / "records")
    devices = store.read(["device"])["device"].to_pylist()
    assert set(store.devices()) == set(devices) == {"there"}
    assert "winograd" not in store.read(["operator"])["operator"].to_pylist()
    assert len(devices) + found["rejected"] == found["programs"] > 2 * found["tasks"]
    assert found["failed"] <= found["programs"] / 4
    again = adapting.succeed(capfd, *wanted)
    assert (again["programs"], again["known_before"]) == (0, found["programs"])


def test_transferring_over_rpc(folder, capfd):
    known = assemble(stores.make_store(folder / "known", per_task=14)).examples
    source = adapting.registered(adapting.source_model(known), "costmodel.cpu-x86", folder / "m")
    promote(source.name, source.version, "production", gates=lambda *_: [])
    found = adapting.succeed(capfd, "transfer", *NAMED, "--budget-per-task", "4")
    store = RecordStore.open(folder / "records")
    assert set(store.read(["device"])["device"].to_pylist()) == {"there"}
    assert found["device"] == "there" and found["source"] == "models:/costmodel.cpu-x86/1"
    assert found["measured"] > 0 and found["test_records"] > 0
    assert found["measured"] + found["test_records"] <= len(store.read(["program"]))
    assert (found["version"] is None) == (found["gate"] == "dropped")
