"""Commands across hosts with addresses of their own, one of which is cut off in the middle."""

import dataclasses
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


@pytest.mark.fleet
def test_collecting_training_and_deploying_across_ten_hosts(tmp_path, device):
    """A device is cut off while records are collected, a builder while a network is tuned."""
    names = ("client", "scheduler", "first", "second", "tracker", "left", "right", "s3", "mlflow")
    with hosts(tmp_path, *names) as made:
        address = start_dask(made, "first", "second")
        tracking = start_mlflow(made)
        save_profile(start_devices(made, device), tmp_path / "there.yaml")
        cutting = cut_when_measured(made, "right", "records", 10)
        wanted = ("--network", "nets:tiny", "--programs-per-task", "16", "--winograd", "false")
        where = ("--device", "there.yaml", "--out", "records", "--builders", f"dask://{address}")
        found = hetfeat(made, "collect", *wanted, *where, **tracking)
        cutting.join()
        kept = RecordStore.open(tmp_path / "records").read().num_rows
        assert kept + found["rejected"] == found["programs"] > 16
        where = ("--records", "records", "--split", "within_task", "--effort", "quick")
        trained = hetfeat(made, "train", *where, "--cluster", f"tcp://{address}", **tracking)
        assert trained["train_records"] > 0
        cutting = cut_when_measured(made, "second", "bundle.journal", 4)
        where = ("--device", "there.yaml", "--builders", f"dask://{address}", "--out", "bundle")
        model = f"models:/{trained['model']}/{trained['version']}"
        wanted = ("nets:tiny", "--model", model, "--trials", "24", *where)
        deployed = hetfeat(made, "deploy", *wanted, **tracking)
        cutting.join()
        assert deployed["trials"] == 24
        assert deployed["max_abs_error"] <= deployed["tolerance"]


def registry(folder):
    return {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}


def start_mlflow(made):
    """MLflow whose artifacts lie in the S3 of another host; what clients need to know."""
    keys = {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    storage = keys | {"MLFLOW_S3_ENDPOINT_URL": f"http://{made.addresses['s3']}:5000"}
    made.start("s3", "moto.server", "--host", made.addresses["s3"], "--port", "5000")
    made.wait_for("s3", "mlflow", 5000)
    make = (
        "import boto3, sys; boto3.client('s3', endpoint_url=sys.argv[1])"
        ".create_bucket(Bucket='artifacts')"
    )
    (made.folder / "make_bucket.py").write_text(make)
    made.run("mlflow", "make_bucket", storage["MLFLOW_S3_ENDPOINT_URL"], **keys)
    command = ("mlflow", "server", "--host", made.addresses["mlflow"], "--port", "5001")
    kept = ("--artifacts-destination", "s3://artifacts", "--allowed-hosts", "*", "--workers", "1")
    database = ("--backend-store-uri", registry(made.folder)["MLFLOW_TRACKING_URI"])
    made.start("mlflow", *command, *kept, *database, **storage)
    made.wait_for("mlflow", "client", 5001)
    return {"MLFLOW_TRACKING_URI": f"http://{made.addresses['mlflow']}:5001"}


def start_devices(made, device):
    """A tracker and two servers; the profile of the device that both are."""
    tracker = made.addresses["tracker"]
    made.start("tracker", "hetfeat.devices.fleet.tracker", tracker, "9190")
    made.wait_for("tracker", "client", 9190)
    for host in ("left", "right"):
        settings = {
            "address": [made.addresses[host], 9090],
            "tracker": [tracker, 9190],
            "key": "lab",
            "threads": device.threads,
            "advertise": made.addresses[host],
        }
        made.start(host, "hetfeat.devices.fleet.server", json.dumps(settings))
        made.wait_for(host, "client", 9090)
    route = {"kind": "rpc", "key": "lab", "tracker": f"{tracker}:9190"}
    return dataclasses.replace(device, name="there", route=route, peak_gflops=None)
