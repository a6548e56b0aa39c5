"""Commands across hosts with addresses of their own, one of which is cut off in the middle."""

import dataclasses
import json
import threading

import pytest
from fleets import wait_until
from hosts import hosts, start_dask

from hetfeat.dataset.store import RecordStore
from hetfeat.devices.profile import load_profile, save_profile

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.tvm, pytest.mark.services]


STORAGE, REGISTRY, TRACKER = 5000, 5001, 9190
"""Ports of the hosts of these names."""
BUCKET = "lab"
MODEL = "costmodel.cpu-x86"
WHO = {
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def cut_when_measured(made, host, records):
    """Cuts a host off once the client's journal has so many records, wherever it is."""

    def is_measured():
        journals = list(made.folder.rglob("journal.jsonl"))
        return sum(path.read_text().count("\n") for path in journals) >= records

    def cut():
        wait_until(is_measured, 240)
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
        cutting = cut_when_measured(made, "second", 4)
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


def start_storage(made):
    """S3 with a bucket; the variables by which a host finds it."""
    address = made.addresses["storage"]
    made.start("storage", "moto.server", "-H", address, "-p", str(STORAGE))
    made.wait_for("storage", "client", STORAGE)
    found = WHO | {"MLFLOW_S3_ENDPOINT_URL": f"http://{address}:{STORAGE}"}
    endpoint = f"endpoint_url='{found['MLFLOW_S3_ENDPOINT_URL']}'"
    made.do(
        "client",
        f"import boto3; boto3.client('s3', {endpoint}).create_bucket(Bucket='{BUCKET}')",
        **found,
    )
    return found


def start_registry(made, storage):
    """MLflow's server, which keeps files in S3; the variable by which a host finds it."""
    address = made.addresses["registry"]
    where = ("--host", address, "--port", str(REGISTRY), "--workers", "1")
    kept = ("--backend-store-uri", f"sqlite:///{made.folder}/mlflow.db")
    files = ("--artifacts-destination", f"s3://{BUCKET}/models")
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    made.start("registry", "mlflow", "server", *where, *kept, *files, **storage, **quiet)
    made.wait_for("registry", "client", REGISTRY)
    return {"MLFLOW_TRACKING_URI": f"http://{address}:{REGISTRY}"}


def start_devices(made, *boards):
    """A tracker, and a server on each board; the file of their profile.

    Hosts share this machine's cores: a board is slower beside others than when it was probed.
    """
    tracker = f"{made.addresses['tracker']}:{TRACKER}"
    made.start(
        "tracker", "mlproject", "fleet", "start-tracker", "--host", made.addresses["tracker"]
    )
    made.wait_for("tracker", "client", TRACKER)
    probe = ("devices", "probe", "--threads", "1", "--tracker", tracker, "--out", "lab.yaml")
    made.run(boards[0], "mlproject", *probe)
    path = made.folder / "lab.yaml"
    profile = load_profile(path)
    save_profile(dataclasses.replace(profile, peak_gflops=0.6 * profile.peak_gflops), path)
    for board in boards:
        server = ("fleet", "start-server", "--device", "lab.yaml")
        made.start(board, "mlproject", *server, "--host", made.addresses[board])
    status = ("mlproject", "fleet", "status", "--tracker", tracker, "--json")
    wait_until(lambda: f'"servers": {len(boards)}' in made.run("client", *status), 120)
    return "lab.yaml"


@pytest.mark.fleet
@pytest.mark.timeout(900)
def test_a_lab_across_hosts(tmp_path):
    """Collect, train, promote and deploy; of two devices one is cut off in the middle.

    Records and models are in S3, builders and trainers on a cluster, models' versions on a server.
    """
    places = ("client", "scheduler", "first", "second", "tracker", "board", "other")
    with hosts(tmp_path, *places, "storage", "registry") as made:
        address = start_dask(made, "first", "second")
        storage = start_storage(made)
        found = storage | start_registry(made, storage)
        device = start_devices(made, "board", "other")
        table = f"s3://{BUCKET}/records"
        builders = ("--builders", f"dask://{address}")

        cutting = cut_when_measured(made, "other", 8)
        wanted = ("--network", "nets:mixed", "--programs-per-task", "8", "--winograd", "false")
        where = ("--device", device, "--out", table, *builders)
        collected = hetfeat(made, "collect", *wanted, *where, **found)
        assert not cutting.is_alive()  # else nothing was cut off while it collected
        stats = hetfeat(made, "records", "stats", table, **found)
        assert stats["records"] + collected["rejected"] == collected["programs"]

        learnt = ("--records", table, "--cluster", f"tcp://{address}", "--effort", "quick")
        trained = hetfeat(made, "train", *learnt, "--model", "xgb", **found)
        assert (trained["model"], trained["version"]) == (MODEL, 1)
        moved = ("--to", "staging", "--force", "true", "--reason", "a lab of tests")
        assert hetfeat(made, "promote", MODEL, "1", *moved, **found)["to"] == "staging"

        tuned = ("--trials", "8", "--model", MODEL, "--stage", "staging", "--out", "bundle")
        report = hetfeat(
            made, "deploy", "nets:mixed", "--device", device, *tuned, *builders, **found
        )
        assert report["trials"] >= 1 and report["model_version"] == f"models:/{MODEL}/1"
