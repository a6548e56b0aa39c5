"""The record store: what is written is read, whatever interrupts or damages it."""

import dataclasses
import gzip
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import stores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mlproject
from hetfeat.dataset import sidecar_files
from hetfeat.dataset.packaged import packaged_store, packaged_stores
from hetfeat.dataset.schema import (
    SCHEMA,
    amiss,
    from_table,
    stores_of,
    to_row,
    to_table,
    with_stores,
)
from hetfeat.dataset.shards import ShardWriter
from hetfeat.dataset.stats import counts
from hetfeat.dataset.store import RecordStore
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.errors import DataError
from hetfeat.records import Measurement
from registry.cli import app

DEVICE = stores.profile("a")
TASK = stores.task(1)


def measurements(count: int, number: int = 1):
    programs = stores.programs(stores.task(number), count, seed=0)
    return [stores.measured(p, DEVICE, failed=i == 0) for i, p in enumerate(programs)]


def keys(store: RecordStore) -> list[str]:
    return sorted(store.read(["program"])["program"].to_pylist())


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore.create(tmp_path / "store")


@pytest.fixture
def made(tmp_path: Path) -> RecordStore:
    """Four shards, closed."""
    return stores.make_store(tmp_path / "made", tasks=2, per_task=4)


def by_key(measurement: Measurement) -> str:
    return measurement.program.key


def table_of(written: Iterable[Measurement]) -> pa.Table:
    return to_table(map(to_row, written))


def with_writer(store: RecordStore, written: Iterable[Measurement]) -> None:
    writer = store.writer()
    for measurement in written:
        writer.add(table_of([measurement]))
    writer.close()


def hetfeat(*arguments: str) -> int:
    return app.run(mlproject.cli, arguments)


class TestRoundTrip:
    @pytest.mark.parametrize("compacted", [False, True])
    def test_measurements_come_back_whole(self, store, compacted):
        written = measurements(5)
        store.append(written)
        if compacted:
            store.compact()
        found = list(from_table(RecordStore.open(store.path).read()))
        assert found == written
        for back, original in zip(found, written, strict=True):
            np.testing.assert_array_equal(back.program.stores, original.program.stores)

    def test_features_can_be_added_to_a_table(self):
        features = [None, np.ones((2, 164), np.float32), None, np.zeros((1, 164), np.float32)]
        table = with_stores(table_of(measurements(4)), features)
        assert table.schema == SCHEMA
        for added, found in zip(features, stores_of(table), strict=True):
            np.testing.assert_equal(found, added)
        assert [m.program.stores is None for m in from_table(table)] == [True, False, True, False]

    def test_devices_and_networks_come_back(self, store):
        store.add_device(DEVICE)
        store.add_network("net", {"t": 2}, {"t": "module"})
        store.add_network("other", {"t": 1, "u": 1}, {"t": "module", "u": "second"})
        assert store.devices() == {"a": DEVICE}
        assert store.networks() == {"net": {"t": 2}, "other": {"t": 1, "u": 1}}
        assert store.workloads() == {"t": "module", "u": "second"}

    def test_a_network_keeps_the_tasks_it_was_known_to_have(self, store):
        store.add_network("net", {"t": 2, "winograd": 0}, {})
        store.add_network("net", {"t": 3, "u": 1}, {})
        assert store.networks() == {"net": {"t": 3, "winograd": 0, "u": 1}}

    def test_keys_of_the_programs_of_a_device(self, store):
        written = measurements(3)
        store.append(written)
        assert list(store.program_keys("a")) == [[m.program.key for m in written]]
        assert not any(store.program_keys("b"))


def test_a_store_of_schema_1_is_read():
    """The packaged records: one row group a shard, written before there were pieces."""
    store = RecordStore.open(packaged_store())
    assert json.loads((store.path / "store.json").read_text()) == {"schema_version": 1}
    rows = {shard["path"]: shard["rows"] for shard in store.shards()}
    assert sum(len(table) for table in store.scan(["program"])) == sum(rows.values()) > 7000
    first = next(from_table(next(store.scan())))
    assert first.program.stores.shape[1] == 164
    assert (first.latency_s is None) == bool(first.error)


def test_each_family_has_packaged_records_of_its_own(tmp_path):
    stores.make_store(tmp_path, tasks=2, per_task=2)
    assert packaged_stores(tmp_path) == {"cpu-x86": tmp_path}
    gpus = stores.make_store(tmp_path / "gpu-nvidia", tasks=2, per_task=2, family="gpu-nvidia").path
    assert packaged_stores(tmp_path) == {"cpu-x86": tmp_path, "gpu-nvidia": gpus}
    for family in (None, "cpu-x86", "cpu", "cpu-arm", "no family"):
        assert packaged_store(family, tmp_path) == tmp_path
    for family in ("gpu-nvidia", "gpu"):
        assert packaged_store(family, tmp_path) == gpus
    assert RecordStore.open(tmp_path).measured_devices() == {"a", "b"}


class TestPieces:
    """Small limits stand for large stores."""

    SMALL = StoreConfig(buffer_bytes=20_000, shard_rows=30, journal_bytes=10_000)

    @pytest.fixture
    def store(self, tmp_path):
        return RecordStore.create(tmp_path / "store", self.SMALL)

    @pytest.fixture
    def made(self, tmp_path):
        return stores.make_store(tmp_path / "made", tasks=2, per_task=4, options=self.SMALL)

    @given(
        tasks=st.lists(st.integers(0, 5), min_size=1, max_size=8),
        compacted=st.integers(0, 8),
    )
    @settings(max_examples=20, deadline=None)
    def test_whatever_is_written_is_read_once(self, tasks, compacted):
        with tempfile.TemporaryDirectory() as folder:
            store = RecordStore.create(Path(folder) / "s", self.SMALL)
            written = []
            for turn, number in enumerate(tasks):
                programs = stores.programs(stores.task(number), 9, seed=turn)
                written += [
                    stores.measured(p, DEVICE, failed=i == 0) for i, p in enumerate(programs)
                ]
                store.append(written[-9:])
                if turn == compacted:
                    store.compact()
            found = [m for table in store.scan() for m in from_table(table)]
            assert sorted(found, key=by_key) == sorted(written, key=by_key)
            assert store.damaged_shards() == []

    def test_a_partition_has_shards_of_row_groups(self, store):
        with_writer(store, [stores.measured(p, DEVICE) for p in stores.programs(TASK, 100, 0)])
        rows = [shard["rows"] for shard in store.shards()]
        assert sum(rows) == 100
        assert len(rows) > 1
        assert all(30 <= n < 60 for n in rows[:-1])
        found = list(store.pieces())
        assert len(found) > len(rows)
        assert max(piece.read().nbytes for piece in found) < 40_000

    def test_a_scan_names_device_columns_and_condition(self, made):
        (program,) = stores.programs(stores.task(1), 1, seed=0)
        wanted = (pc.field("program") == program.key) & (pc.field("task") == program.task.hash)
        found = [t for t in made.scan(["device", "task"], "b", wanted) if len(t)]
        assert [t.to_pylist() for t in found] == [[{"device": "b", "task": stores.task(1).hash}]]
        assert len(list(made.pieces("b", wanted))) < len(list(made.pieces("b")))

    def test_a_shard_is_listed_once_it_is_complete(self, store):
        writer = store.writer()
        for program in stores.programs(TASK, 100, 0):
            writer.add(table_of([stores.measured(program, DEVICE)]))
        before = len(keys(store))
        writer.close()
        assert 0 < before < len(keys(store)) == 100

    @pytest.mark.parametrize("name", ["../../outside", "a/b", "."])
    def test_a_foreign_name_stays_inside(self, store, name):
        task = dataclasses.replace(TASK, operator=name)
        with_writer(store, [stores.measured(stores.programs(task, 1, 0)[0], DEVICE)])
        (shard,) = store.shards()
        folder = (store.path / shard["path"]).resolve().parent
        assert folder.parent == store.path.resolve() / "device=a"
        assert store.read(["operator"])["operator"].to_pylist() == [name]


class TestDigest:
    def test_stays_and_changes_with_what_is_appended(self, store):
        store.append(measurements(3))
        store.compact()
        first = store.digest()
        assert RecordStore.open(store.path).digest() == first
        store.append(measurements(2, number=2))
        second = store.digest()
        store.compact()
        assert len({first, second, store.digest()}) == 3

    def test_is_that_of_the_same_records_elsewhere(self, made, tmp_path):
        again = stores.make_store(tmp_path / "again", tasks=2, per_task=4)
        assert again.digest() == made.digest()


def test_counts_by_device_and_operator(made):
    """Tasks 0 and 1 are a conv2d and a matmul of four programs each, of which the first failed."""
    made.append([dataclasses.replace(m, device="b") for m in measurements(3)])
    rows = {(row["device"], row["operator"]): row for row in counts(made)}
    assert list(rows) == [("a", "conv2d"), ("a", "matmul"), ("b", "conv2d"), ("b", "matmul")]
    assert rows["a", "conv2d"] == {
        "device": "a",
        "operator": "conv2d",
        "records": 4,
        "tasks": 1,
        "failed": 1,
    }
    assert (rows["b", "matmul"]["records"], rows["b", "matmul"]["failed"]) == (7, 2)


class TestInterrupts:
    def test_a_torn_line_is_cut_off(self, store):
        first, second = measurements(2)
        store.append([first])
        journal = store.path / "journal.jsonl"
        whole = journal.read_bytes()
        journal.write_bytes(whole + whole[: len(whole) // 2])
        assert keys(store) == [first.program.key]
        store.append([second])
        assert len(keys(store)) == 2
        assert all(json.loads(line) for line in journal.read_text().splitlines())

    def test_a_torn_list_of_shards_is_mended_by_the_next(self, store):
        store.append(measurements(2))
        store.compact()
        with (store.path / "shards.jsonl").open("a") as file:
            file.write('{"path": "device=a/oper')
        store.append(measurements(3, number=2))
        store.compact()
        assert len(keys(RecordStore.open(store.path))) == 5

    @pytest.mark.parametrize("stage", ["before the journal goes", "between two shards"])
    def test_compacting_can_stop_anywhere(self, store, monkeypatch, stage):
        written = [*measurements(3, number=1), *measurements(3, number=0)]
        store.append(written)

        def stop(*_, **__):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            if stage == "before the journal goes":
                patch.setattr(Path, "unlink", stop)
            else:
                original, calls = ShardWriter._close, []

                def close(self, folder):
                    if calls:
                        stop()
                    calls.append(folder)
                    original(self, folder)

                patch.setattr(ShardWriter, "_close", close)
            with pytest.raises(KeyboardInterrupt):
                store.compact()
        expected = sorted(m.program.key for m in written)
        assert keys(store) == expected
        for _ in range(2):
            store.compact()
            assert keys(store) == expected
        assert not (store.path / "journal.jsonl").exists()
        assert store.damaged_shards() == []

    def test_what_comes_after_an_interrupted_compacting_is_kept_once(self, store, monkeypatch):
        written = measurements(6)
        store.append(written[:3])
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", lambda *_, **__: exec("raise KeyboardInterrupt"))
            with pytest.raises(KeyboardInterrupt):
                store.compact()
        store.append(written[3:])
        assert keys(store) == sorted(m.program.key for m in written)
        store.compact()
        assert keys(store) == sorted(m.program.key for m in written)
        assert sorted(p.name for p in store.path.iterdir() if p.is_file()) == [
            "shards.jsonl",
            "store.json",
        ]

    def test_a_program_measured_again_is_kept_twice(self, store):
        (first,) = measurements(1)
        store.append([first])
        store.compact()
        store.append([dataclasses.replace(first, unix_s=first.unix_s + 1)])
        assert len(keys(store)) == 2
        store.compact()
        assert len(keys(store)) == 2

    def test_compacting_nothing_changes_nothing(self, made):
        before = made.digest()
        made.compact()
        assert made.digest() == before


def _write_once(job: tuple[Path, float, int]) -> int:
    """Makes a store, or finds it made, and adds a record as soon as nobody else is inside."""
    path, start_s, who = job
    while time.monotonic() < start_s:
        pass
    store = RecordStore.create(path)
    for _ in range(2000):
        with suppress(DataError), store.writing():
            (path / "inside").touch(exist_ok=False)  # FileExistsError: two are
            store.append([measurements(2)[who]])
            (path / "inside").unlink()
            return who
        time.sleep(0.005)
    return -1


class TestDurability:
    @pytest.fixture
    def flushed(self, monkeypatch) -> list[str]:
        """Names of what was flushed to the disk, in order."""
        names, flush = [], os.fsync

        def fsync(descriptor: int) -> None:
            names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
            flush(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        return names

    def test_a_record_is_on_the_disk_when_append_returns(self, store, flushed):
        store.append(measurements(3))
        assert flushed == ["journal.jsonl", "store"]  # its name, too
        store.append(measurements(2, number=2))
        assert flushed[2:] == ["journal.jsonl"]

    def test_a_shard_is_flushed_before_it_is_listed_and_its_journal_gone(self, store, flushed):
        store.append(measurements(3))
        del flushed[:]
        store.compact()
        assert flushed[:5] == ["store", ".draft", "operator=matmul", "device=a", "store"]
        assert flushed[5].startswith(".shards.jsonl.")
        assert flushed[6:] == ["store"]

    def test_what_lies_beside_is_flushed(self, store, flushed):
        store.add_device(DEVICE)
        store.add_network("net", {"t": 1}, {"t": "module"})
        sidecar_files.append_measurement(store.path, sidecar_files.REJECTED, measurements(1)[0])
        sidecar_files.save_spent_s(store.path, "a", 1.0)
        told = {name.split(".")[1] for name in flushed if name.startswith(".")}
        assert told == {"a", "networks", "workloads", "spent"}
        assert "rejected.jsonl" in flushed


class TestWriters:
    def test_there_is_one_at_a_time(self, store):
        with store.writing():
            with (
                pytest.raises(DataError, match="to which another process writes"),
                RecordStore.open(store.path).writing(),
            ):
                pass
            assert RecordStore.open(store.path).read().num_rows == 0
        with RecordStore.open(store.path).writing():
            store.append(measurements(2))

    def test_two_that_make_one_store_are_never_both_inside(self, tmp_path):
        """Each of 40 new stores is made by two processes that meet at its first bytes."""
        count, rounds = 2, 40
        with multiprocessing.get_context("fork").Pool(count) as pool:
            for number in range(rounds):
                path, start_s = tmp_path / str(number), time.monotonic() + 0.02
                jobs = [(path, start_s, who) for who in range(count)]
                assert sorted(pool.map(_write_once, jobs, chunksize=1)) == [0, 1]
                assert len(keys(RecordStore.open(path))) == count
                found = sorted(entry.name for entry in path.iterdir())
                assert found == ["journal.jsonl", "store.json"]

    def test_a_lock_of_a_store_that_was_replaced_is_none(self, store, tmp_path):
        with store.writing():
            shutil.copytree(store.path, tmp_path / "again")
            store.path.rename(tmp_path / "gone")
            (tmp_path / "again").rename(store.path)
            with store.writing():
                pass
        (store.path / "store.json").unlink()
        with pytest.raises(DataError, match="has just gone"), store.writing():
            pass

    def test_a_killed_one_leaves_the_store_free(self, store):
        hold = "import sys; from pathlib import Path\n"
        hold += "from hetfeat.dataset.store import RecordStore\n"
        hold += "with RecordStore(Path(sys.argv[1])).writing(): print('held', flush=True), input()"
        line = [sys.executable, "-c", hold, str(store.path)]
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout.readline() == b"held\n"
            with pytest.raises(DataError), store.writing():
                pass
            other.kill()
            other.wait(timeout=20)
        with store.writing():
            pass


class TestDamage:
    @given(data=st.data())
    @settings(
        max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @pytest.mark.parametrize("number", range(4))
    def test_a_flipped_bit_is_found_in_every_shard(self, made, number, data):
        shard = made.shards()[number]["path"]
        spoilt = bytearray(whole := (made.path / shard).read_bytes())
        spoilt[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        (made.path / shard).write_bytes(spoilt)
        assert made.damaged_shards() == [shard]
        (made.path / shard).write_bytes(whole)
        assert made.damaged_shards() == []

    def test_shards_that_are_damaged_or_gone_are_named(self, made, capfd):
        gone, shard = (made.shards()[number]["path"] for number in (1, 2))
        (made.path / shard).write_bytes(b"?" + (made.path / shard).read_bytes()[1:])
        (made.path / gone).unlink()
        assert hetfeat("records", "verify", str(made.path), "--json") == 1
        assert json.loads(capfd.readouterr().out) == {"shards": 4, "damaged": [gone, shard]}

    def test_an_intact_store_is_said_to_be_so(self, made, capfd):
        assert hetfeat("records", "verify", str(made.path), "--json") == 0
        assert json.loads(capfd.readouterr().out) == {"shards": 4, "damaged": []}

    @pytest.mark.parametrize(
        ("spoil", "said"),
        [
            (lambda p, s: (p / s).unlink(), "without its shard"),
            (lambda p, s: (p / s).write_bytes((p / s).read_bytes()[:-9]), "cannot be read"),
            (lambda p, s: (p / s).write_bytes(b""), "cannot be read"),
            (lambda p, s: (p / "store.json").write_text('{"schema_version": 2}'), "of schema 2"),
            (lambda p, s: (p / "store.json").write_text("{}"), "schema_version"),
            (lambda p, s: (p / "store.json").write_text("no JSON"), "schema_version"),
            (lambda p, s: (p / "store.json").unlink(), "store.json"),
            (lambda p, s: shutil.rmtree(p), "hetfeat collect"),
            (lambda p, s: (p / "shards.jsonl").write_text("what\n"), "not JSON"),
            (lambda p, s: (p / "networks.json").write_text("{"), "not JSON"),
        ],
    )
    def test_a_damaged_store_is_one_line(self, made, capfd, spoil, said):
        spoil(made.path, made.shards()[0]["path"])
        assert hetfeat("records", "stats", str(made.path)) == 2
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert said in err

    @pytest.mark.parametrize(
        "change",
        [
            {"device": None},
            {"device": 5},
            {"program": "no digits"},
            {"program": "0" * 15},
            {"program": "0" * 65},
            *({"program": "0" * 23 + near} for near in "/:`gA\0\u0661"),
            {"latencies_s": [1.0, None]},
            {"latencies_s": [float("inf")]},
            {"flops": float("-inf")},
            {"stores": [1.0] * 163 + [None]},
            {"latencies_s": [-1.0]},
            {"latencies_s": [float("nan")]},
            {"latencies_s": "fast"},
            {"stores": [1.0]},
            {"shapes": "[["},
            {"shapes": "3"},
            {"unix_s": None},
            {"trace": "\ud800"},
        ],
    )
    def test_a_line_that_is_no_record_is_told(self, store, change):
        row = to_row(measurements(2)[1]) | change
        (store.path / "journal.jsonl").write_text(json.dumps(row) + "\n")
        for told in (lambda: list(store.scan()), store.compact):
            with pytest.raises(DataError, match="no record"):
                told()

    def test_any_part_of_records_is_records(self):
        """A table that was cut or joined begins anywhere in its memory."""
        table = table_of(measurements(9))
        table = with_stores(table, [None, *list(stores_of(table))[1:]])
        for start in range(9):
            part = table.slice(start, 3)
            assert amiss(part) is amiss(pa.concat_tables([part, part])) is None
            spoilt = part.set_column(6, "program", pa.array(["?" * 20] * len(part)))
            assert amiss(pa.concat_tables([part, spoilt])) == "program"

    @pytest.mark.parametrize("line", ["3", "null", "[]", '"text"', "[" * 9000 + "]" * 9000])
    @pytest.mark.parametrize("name", ["journal.jsonl", "shards.jsonl", "workloads.jsonl.gz"])
    def test_a_line_of_another_kind_is_told(self, store, name, line):
        data = (line + "\n").encode()
        (store.path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        with pytest.raises(DataError, match=name):
            store.workloads() if name.endswith("gz") else list(store.scan())

    @pytest.mark.parametrize("path", ["../a.parquet", "/etc/passwd", "device=a/../../a.parquet"])
    def test_a_shard_outside_the_store_is_none(self, store, path):
        line = {"path": path, "sha256": "0" * 64, "rows": 1}
        (store.path / "shards.jsonl").write_text(json.dumps(line) + "\n")
        with pytest.raises(DataError, match="no shard"):
            store.shards()

    @pytest.mark.parametrize("keep", [0.5, 0.9])
    def test_damaged_workloads_are_told(self, store, keep):
        store.add_network("net", {"t": 1}, {str(i): "module" * i for i in range(200)})
        path = store.path / "workloads.jsonl.gz"
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * keep)])
        with pytest.raises(DataError, match="workloads"):
            store.workloads()


class TestPlaces:
    def test_an_empty_folder_becomes_a_store(self, tmp_path):
        (tmp_path / "new").mkdir()
        assert keys(RecordStore.create(tmp_path / "new")) == []

    def test_a_store_is_opened_again(self, made):
        assert len(keys(RecordStore.create(made.path))) == 16

    def test_a_folder_of_something_else_is_left_alone(self, tmp_path):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "letter").write_text("dear")
        with pytest.raises(DataError, match="--out"):
            RecordStore.create(tmp_path / "mine")
        assert [p.name for p in (tmp_path / "mine").iterdir()] == ["letter"]
        (tmp_path / "file").write_text("")
        with pytest.raises(DataError, match="--out"):
            RecordStore.create(tmp_path / "file")
