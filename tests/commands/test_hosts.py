"""Commands across hosts with addresses of their own, one of which is cut off in the middle."""

import json
import threading

import pytest
from fleets import wait_until
from hosts import hosts, start_dask

from hetfeat.dataset.store import RecordStore
from hetfeat.devices.profile import save_profile

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.tvm, pytest.mark.services]


def cut_when_measured(made, host, store, records):
    """Cuts a host off once a store has so many records."""

    def cut():
        journal = made.folder / store / "journal.jsonl"
        wait_until(lambda: journal.exists() and journal.read_text().count("\n") >= records, 240)
        made.cut(host)

    thread = threading.Thread(target=cut, daemon=True)
    thread.start()
    return thread


def hetfeat(made, *words, **environment):
    return json.loads(made.run("client", "mlproject", *words, "--json", **environment))


def test_a_builder_that_is_cut_off_costs_its_builds(tmp_path, device):
    """The client is the device: two hosts build for it."""
    save_profile(device, tmp_path / "here.yaml")
    with hosts(tmp_path, "client", "scheduler", "first", "second") as made:
        address = start_dask(made, "first", "second")
        cutting = cut_when_measured(made, "second", "records", 4)
        wanted = ("--network", "nets:dense", "--programs-per-task", "24", "--winograd", "false")
        where = ("--device", "here.yaml", "--out", "records", "--builders", f"dask://{address}")
        found = hetfeat(made, "collect", *wanted, *where, **registry(tmp_path))
        cutting.join()
        store = RecordStore.open(tmp_path / "records")
        kept = set(store.read(["program"])["program"].to_pylist())
        assert len(kept) + found["rejected"] == found["programs"] == 24
        assert found["failed"] <= 4


def registry(folder):
    return {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
