"""Commands whose work a Dask cluster shares: the same results as alone."""

import adapting
import ansor_lines
import pyarrow.parquet as pq
import pytest
import stores

from hetfeat.dataset.store import RecordStore
from hetfeat.models.aggregate import table_names

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def records(registry_here):
    return stores.make_store(registry_here / "records", tasks=12)


def test_prune(records, address, registry_here, capfd):
    alone, shared = (
        adapting.succeed(capfd, "prune", "records", "--out", out, *more)
        for out, more in (("alone", ()), ("shared", ("--cluster", address)))
    )
    assert alone == shared
    assert alone["kept"] == round(0.55 * alone["records"])


def test_import(address, registry_here, capfd):
    for number in range(3):
        lines = ansor_lines.log(20, seed=number)
        (registry_here / f"{number}.json").write_bytes(b"\n".join(lines) + b"\n")
    files = ("0.json", "1.json", "2.json", "--format", "ansor", "--device", "board")
    alone, shared = (
        adapting.succeed(capfd, "import", *files, "--out", out, *more)
        for out, more in (("alone", ()), ("shared", ("--cluster", address)))
    )
    kept = ("read", "kept", "failed", "skipped", "duplicates", "tasks")
    assert [alone[key] for key in kept] == [shared[key] for key in kept]
    ours, theirs = (RecordStore.open(registry_here / out).read() for out in ("alone", "shared"))
    assert ours.sort_by("program").equals(theirs.sort_by("program"))


def test_features(records, address, registry_here, capfd):
    alone, shared = (
        adapting.succeed(capfd, "records", "features", "records", "--out", out, *more)
        for out, more in (("alone", ()), ("shared", ("--cluster", address)))
    )
    assert alone | {"out": ""} == shared | {"out": ""}
    ours, theirs = (pq.read_table(registry_here / out) for out in ("alone", "shared"))
    assert ours.num_rows == alone["records"] == 12 * 12 * 2
    assert ours.column_names == ["device", "task", "operator", "program", "latency_s"] + (
        table_names("flat")
    )
    assert ours.to_pandas().equals(theirs.to_pandas())
    refused = adapting.refuse(capfd, "records", "features", "records", "--out", "alone")
    assert "a new folder" in refused


def test_train_evaluate_and_study(records, address, capfd):
    where, on = ("--records", "records"), ("--cluster", address)
    trained = adapting.succeed(capfd, "train", *where, "--effort", "quick", *on)
    assert trained["metrics"]["pca"] > trained["baselines"]["random"]["pca"] + 0.1
    judge = ("evaluate", "--model", "models:/costmodel.cpu-x86/1", *where)
    assert adapting.succeed(capfd, *judge) == adapting.succeed(capfd, *judge, *on)
    study = adapting.succeed(capfd, "records", "study", "records", *on)
    assert len(study["columns"]) == 20


def test_networks_are_trained_by_the_workers(records, address, capfd):
    given = ("--records", "records", "--model", "mlp", "--effort", "quick")
    alone = adapting.succeed(capfd, "train", *given)
    by_one = adapting.succeed(capfd, "train", *given, "--cluster", "local:1")
    # Threads of torch add up in an order of their own.
    assert by_one["metrics"] == pytest.approx(alone["metrics"], rel=1e-3)
    by_all = adapting.succeed(capfd, "train", *given, "--cluster", address)
    assert by_all["metrics"].keys() == alone["metrics"].keys()
    assert by_all["metrics"]["pca"] == pytest.approx(alone["metrics"]["pca"], abs=0.1)


def test_a_wrong_address_is_refused_before_anything_is_done(records, capfd):
    where = ("--records", "records", "--cluster", "host:1")
    assert "tcp://HOST:PORT or local:N" in adapting.refuse(capfd, "train", *where)
    builders = ("--builders", "tcp://host:1")
    assert "dask://HOST:PORT or local:N" in adapting.refuse(capfd, "collect", *builders)
