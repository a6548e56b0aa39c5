"""The record store: what is written is read, whatever interrupts or damages it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import stores

import mlproject
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import DataError
from registry.commands import _cli

DEVICE = stores.profile("a")


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


def hetfeat(*arguments: str) -> int:
    return _cli.run(mlproject.cli, arguments)


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

    def test_devices_and_networks_come_back(self, store):
        store.add_device(DEVICE)
        store.add_network("net", {"t": 2}, {"t": "module"})
        store.add_network("other", {"t": 1, "u": 1}, {"t": "module", "u": "second"})
        assert store.devices() == {"a": DEVICE}
        assert store.networks() == {"net": {"t": 2}, "other": {"t": 1, "u": 1}}
        assert store.workloads() == {"t": "module", "u": "second"}

    def test_programs_by_task_and_device(self, store):
        written = measurements(3)
        store.append(written)
        assert store.programs("a") == {stores.task(1).hash: {m.program.key for m in written}}
        assert store.programs("b") == {}


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
                original, calls = RecordStore._add_shard, []

                def add(self, folder, *rest):
                    if calls:
                        stop()
                    calls.append(folder)
                    original(self, folder, *rest)

                patch.setattr(RecordStore, "_add_shard", add)
            with pytest.raises(KeyboardInterrupt):
                store.compact()
        expected = sorted(m.program.key for m in written)
        assert keys(store) == expected
        for _ in range(2):
            store.compact()
            assert keys(store) == expected
        assert not (store.path / "journal.jsonl").exists()
        assert store.damaged() == []

    def test_compacting_nothing_changes_nothing(self, made):
        before = made.digest()
        made.compact()
        assert made.digest() == before


class TestDamage:
    @pytest.mark.parametrize("number", range(4))
    def test_a_flipped_byte_is_found_in_every_shard(self, made, capfd, number):
        shard = made.shards()[number]["path"]
        data = bytearray((made.path / shard).read_bytes())
        data[len(data) // 2] ^= 1
        (made.path / shard).write_bytes(data)
        assert hetfeat("records", "verify", str(made.path), "--json") == 1
        assert json.loads(capfd.readouterr().out) == {"shards": 4, "damaged": [shard]}

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
