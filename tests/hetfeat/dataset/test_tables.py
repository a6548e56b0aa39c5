"""Records in a table: nothing lost, nothing twice, versions, and whose device is whose."""

import dataclasses
import json
from pathlib import Path

import killed_collectors
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from hetfeat.dataset.sidecar_files import evaluation_tasks, save_evaluation_tasks
from hetfeat.dataset.store import RecordStore
from hetfeat.dataset.tables import engine
from hetfeat.dataset.tables.columns import SHARED_SCHEMA
from hetfeat.dataset.tables.local_copy import local_records
from hetfeat.dataset.tables.shared_store import SharedStore, new_folder, share, store_at
from hetfeat.dataset.tables.table import RecordTable
from hetfeat.dataset.tables.transport import merge, pull, push
from hetfeat.dataset.tables.upkeep import compact, damaged, vacuum
from hetfeat.dataset.tables.uri import as_of, as_place
from hetfeat.errors import DataError, RequestError, WorkFailed
from hetfeat.testing import stores

A = stores.profile("a", threads=1)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(engine.LOCK, raising=False)


@pytest.fixture
def store(tmp_path) -> RecordStore:
    return stores.make_store(tmp_path / "one", tasks=3, per_task=4)


@pytest.fixture
def uri(tmp_path):
    return as_place((tmp_path / "table").as_uri())


@pytest.fixture
def table(uri, store) -> RecordTable:
    made = RecordTable.create(uri)
    push(store, made)
    return RecordTable.open(uri)


def rows(store: RecordStore) -> list[str]:
    return sorted(json.dumps(row) for row in store.read().to_pylist())


def add(store: RecordStore, device: str, seed: int, count: int = 2) -> None:
    programs = stores.programs(stores.task(1), count, seed)
    store.append([stores.measured(program, stores.profile(device)) for program in programs])


def test_what_is_pushed_comes_back_with_what_it_rests_on(store, table, tmp_path):
    save_evaluation_tasks(store.path, ["t"])
    store.add_workloads({stores.task(0).hash: "module"})
    push(store, table)
    back = RecordStore.create(tmp_path / "back")
    assert pull(RecordTable.open(table.uri), back).records == 24
    assert rows(back) == rows(store)
    assert back.networks() == store.networks()
    assert back.workloads() == store.workloads()
    assert evaluation_tasks(back.path) == ["t"]
    assert {n: p.to_dict() for n, p in back.devices().items()} == {
        n: p.to_dict() for n, p in store.devices().items()
    }


def test_nothing_goes_twice_whichever_way_it_comes(store, table, tmp_path):
    version = table.version
    assert push(store, table).records == 0
    back = RecordStore.create(tmp_path / "back")
    pull(table, back)
    assert pull(table, back).records == 0
    assert push(back, table).records == 0
    assert pull(table, store).records == 0
    assert RecordTable.open(table.uri).version == version


def test_of_two_that_commit_a_shard_at_once_one_does(store, uri, monkeypatch):
    """Both have seen that it is not there; the engine refuses the second, which then sees it."""
    table = RecordTable.create(uri)
    shard = {"0" * 32: store.read()}

    def beside(names):
        monkeypatch.undo()
        assert RecordTable.open(uri).add(shard) == 24
        return set()

    monkeypatch.setattr(table, "holds", beside)
    assert table.add(shard) == 0
    assert RecordTable.open(uri).size[1] == 24


def test_a_journal_is_pushed_too_and_only_what_is_new(store, table):
    add(store, "a", seed=9)
    assert push(store, table).records == 2
    assert RecordTable.open(table.uri).size[1] == 26


def test_measurements_that_are_there_are_told_and_left_out(store, table, tmp_path):
    other = RecordStore.create(tmp_path / "other")
    other.add_device(A)
    copied = store.read().filter(pc.field("device") == "a")
    again = copied.slice(1, 1).set_column(10, SHARED_SCHEMA.field(10), pa.array([7.0]))
    writer = other.writer()
    writer.add(pa.concat_tables([copied, again]))
    writer.close()
    joined = push(other, table)
    assert (joined.records, joined.duplicates, joined.measured_again) == (
        1,
        4,
        1,
    )  # whole shards are known by name
    merged = merge([store, other], RecordStore.create(tmp_path / "merged"))
    assert (merged.records, merged.duplicates, merged.measured_again) == (25, 12, 1)


@pytest.mark.parametrize("how", ["push", "pull", "merge"])
def test_a_device_with_the_name_of_another_is_refused_until_it_has_its_own(
    how, store, table, tmp_path
):
    other = RecordStore.create(tmp_path / "other")
    other.add_device(dataclasses.replace(A, num_cores=64))
    add(other, "a", seed=5)
    other.compact()
    join = {
        "push": lambda names: push(other, table, names),
        "pull": lambda names: pull(table, other, rename=names),
        "merge": lambda names: merge([store, other], RecordStore.create(tmp_path / "m"), names),
    }[how]
    with pytest.raises(DataError, match=r"a: num_cores (64, not 1|1, not 64)"):
        join({})
    if how != "merge":  # which renames the device of both
        assert "x" in join({"a": "x"}).devices


def test_figures_that_were_measured_anew_make_no_other_device(table, tmp_path):
    other = RecordStore.create(tmp_path / "other")
    other.add_device(dataclasses.replace(A, peak_gflops=123.0))
    add(other, "a", seed=5)
    assert push(other, table).records == 2
    back = RecordStore.open(local_records(table.uri))
    assert back.devices()["a"].peak_gflops == A.peak_gflops


def test_an_older_version_has_its_own_records_and_facts(store, table):
    add(store, "a", seed=9)
    store.add_network("later", {stores.task(1).hash: 1}, {})
    push(store, table)
    old = RecordStore.open(local_records(table.uri, as_of=table.version - 1))
    new = RecordStore.open(local_records(table.uri))
    assert (old.read().num_rows, new.read().num_rows) == (24, 26)
    assert ("later" in old.networks(), "later" in new.networks()) == (False, True)


def test_a_copy_has_the_digest_of_its_version_wherever_it_is(table, tmp_path, monkeypatch):
    here = RecordStore.open(local_records(table.uri)).digest()
    assert local_records(table.uri) == local_records(table.uri)
    monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "elsewhere"))
    assert RecordStore.open(local_records(table.uri)).digest() == here


def test_compacting_changes_no_record_and_vacuum_keeps_facts(store, table, tmp_path):
    add(store, "a", seed=9)
    push(store, table)
    table = RecordTable.open(table.uri)
    before, files = RecordStore.open(local_records(table.uri)), table.size[0]
    compact(table)
    assert vacuum(RecordTable.open(table.uri), 24) == []
    after = RecordTable.open(table.uri)
    assert after.size[0] < files
    assert not damaged(after)
    assert rows(RecordStore.open(local_records(after.uri))) == rows(before)
    assert push(before, after).records == 0
    with pytest.raises(DataError, match="24 at least"):
        vacuum(table, 3)


def test_a_column_of_a_newer_hetfeat_disturbs_neither_readers_nor_writers(store, table):
    more = store.read().slice(0, 1).append_column("joules", pa.array([1.5]))
    more = more.append_column("shard", pa.array(["f" * 32]))
    write_deltalake(str(table.uri), more, mode="append", schema_mode="merge")
    add(store, "a", seed=9)
    assert push(store, RecordTable.open(table.uri)).records == 2
    assert RecordTable.open(table.uri).size[1] == 27
    assert not damaged(RecordTable.open(table.uri))


def test_a_table_of_an_older_hetfeat_gets_the_column_that_it_lacks(store, uri):
    RecordTable.create(uri)
    old = store.read().slice(0, 2).drop(["stores"]).append_column("shard", pa.array(["e" * 32] * 2))
    write_deltalake(str(uri), old, mode="overwrite", schema_mode="overwrite", partition_by="device")
    assert push(store, RecordTable.open(uri)).records == 22
    found = RecordStore.open(local_records(uri)).read()
    assert (found.num_rows, found["stores"].null_count) == (24, 2)


@pytest.mark.parametrize(
    ("column", "value"),
    [("program", "no digits"), ("flops", float("nan")), ("shard", "../x"), ("shapes", "[1")],
)
def test_rows_of_others_that_are_no_records_are_refused(store, table, column, value):
    row = store.read().slice(0, 1).append_column("shard", pa.array(["f" * 32]))
    at = row.column_names.index(column)
    row = row.set_column(at, row.field(at), pa.array([value], row.field(at).type))
    write_deltalake(str(table.uri), row, mode="append")
    broken = RecordTable.open(table.uri)
    assert len(damaged(broken)) == 1
    with pytest.raises(DataError, match=f"no record .*{column}"):
        local_records(table.uri)


def test_a_table_of_something_else_is_refused(tmp_path):
    write_deltalake(tmp_path / "other", pa.table({"x": [1]}))
    with pytest.raises(DataError, match="without device, dtype"):
        RecordTable.open(as_place(tmp_path / "other"))


def test_a_missing_file_shows(table):
    (path,) = [Path(p) for p in DeltaTable(str(table.uri)).file_uris() if "device=a" in p][:1]
    path.unlink()
    assert list(damaged(table)) == [path.relative_to(table.uri.path).as_posix()]


def test_places(tmp_path, table):
    assert as_place("records") == Path("records")
    assert as_place(table.uri.path) == table.uri
    assert as_place("file:///a/../b/") == "file:///b"
    assert as_place("s3://lab-1/a/b.c/").is_s3


@pytest.mark.parametrize(
    "text", ["s3://b/../x", "s3://lab", "s3://lab/a b", "http://x/y", "s3://LAB/x", "s3://lab/x?y"]
)
def test_what_is_no_place(text):
    with pytest.raises(DataError):
        as_place(text)


def test_moments():
    assert as_of("12") == 12
    assert as_of("2026-11-28T12:00+00:00").utcoffset() is not None
    with pytest.raises(RequestError):
        as_of("yesterday")


def test_a_secret_is_in_no_message(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    with pytest.raises(WorkFailed) as caught, engine.translated("read"):
        raise OSError("a server that says hush-hush\nand more")
    assert "hush-hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_who_has_no_lock_writes_to_no_table_that_needs_it(store, uri, monkeypatch):
    monkeypatch.setattr("hetfeat.dataset.tables.table.committing", engine.committing)
    table = RecordTable.create(uri)
    table.handle.alter.set_table_properties({"hetfeat.locked": "true"}, False)
    with pytest.raises(DataError, match=engine.LOCK):
        push(store, RecordTable.open(uri))


def test_what_cannot_be_shared_now_is_safe_and_shared_later(uri, monkeypatch):
    store = store_at(uri, ["a"])
    assert isinstance(store, SharedStore)
    store.add_device(A)
    add(store, "a", seed=1)
    with monkeypatch.context() as cut:
        cut.setattr(RecordTable, "newest_facts", lambda self: raise_(OSError("no network")))
        store.compact()
        with pytest.raises(WorkFailed, match="the records are in"):
            share(store)
    assert RecordTable.open(uri).size[1] == 0
    share(store_at(uri, ["a"]))
    assert RecordTable.open(uri).size[1] == 2


def raise_(error: Exception) -> None:
    with engine.translated("read"):
        raise error


def test_a_new_store_goes_to_a_new_table_alone(uri, table):
    with pytest.raises(DataError, match="which has records"), new_folder(uri):
        pass


@pytest.mark.slow
def test_collectors_killed_at_random_lose_nothing_and_repeat_nothing(uri, tmp_path):
    assert killed_collectors.run(str(uri), tmp_path, collectors=4, count=12, kills=4)
    killed_collectors.check(str(uri), tmp_path, collectors=4, count=12)
