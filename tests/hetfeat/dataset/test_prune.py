"""Pruning: what is kept, what never is, and that chance and order of the records play no part."""

import json

import numpy as np
import pyarrow.compute as pc
import pytest
import stores
from hypothesis import given, settings
from hypothesis import strategies as st

import mlproject
from hetfeat.dataset.prune import LEAST_QUOTA, Light, choose, light_of, prune, quotas
from hetfeat.dataset.sidecar_files import evaluation_tasks, save_evaluation_tasks
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import DataError
from hetfeat.records import Measurement
from registry.cli import app


def light(sizes: list[int], failed: float = 0.0, seed: int = 0, devices: int = 1) -> Light:
    """Tasks of so many programs, the same on each device, in random order."""
    rng = np.random.default_rng(seed)
    keys = [(f"d{d}", f"t{t}") for d in range(devices) for t in range(len(sizes))]
    group = np.repeat(np.arange(len(keys)), sizes * devices)
    programs = rng.integers(0, 2**63, sum(sizes)).astype(np.uint64)
    order = rng.permutation(len(group))
    latency_s = rng.lognormal(size=len(group))
    latency_s[rng.random(len(group)) < failed] = np.nan
    return light_of(group[order], keys, np.tile(programs, devices)[order], latency_s)


def at(records: Light, index: np.ndarray) -> Light:
    return Light(
        records.group[index], records.device, records.program[index], records.latency_s[index]
    )


some_sizes = st.lists(st.integers(1, 60), min_size=1, max_size=12)
fractions = st.floats(0.05, 1.0)


@settings(max_examples=100, deadline=None)
@given(some_sizes, fractions, st.integers(0, 3), st.integers(0, 3))
def test_it_keeps_its_share_and_nothing_that_failed(sizes, fraction, seed, data_seed):
    records = light(sizes, 0.3, data_seed)
    kept = choose(records, fraction, seed)
    valid = np.isfinite(records.latency_s)
    assert not kept[~valid].any()
    wanted = min(round(fraction * len(kept)), int(valid.sum()))
    assert abs(int(kept.sum()) - wanted) <= 1
    shuffled = np.random.default_rng(seed).permutation(len(kept))
    np.testing.assert_array_equal(choose(at(records, shuffled), fraction, seed), kept[shuffled])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=30), st.floats(0, 1))
def test_quotas_add_up_and_spare_the_small(sizes, fraction):
    sizes = np.array(sizes)
    total = int(fraction * sizes.sum())
    found = quotas(sizes, total)
    assert abs(int(found.sum()) - total) <= 1
    assert (found >= 0).all()
    assert (found <= sizes).all()
    least = np.minimum(sizes, LEAST_QUOTA)
    if total >= least.sum() + len(sizes):
        assert (found >= least - 1).all()


def test_a_rare_operator_survives():
    records = light([1000, 1000, 5])
    kept = choose(records, 0.1, 0)
    assert np.bincount(records.group[kept]).tolist() == pytest.approx([98, 98, 5], abs=1)


def test_slow_and_fast_survive_alike():
    records = light([400])
    kept = choose(records, 0.25, 0)
    ranks = np.argsort(np.argsort(records.latency_s))[kept]
    quarters = np.bincount(ranks // 100)
    assert quarters.tolist() == [25, 25, 25, 25]


def test_what_one_device_drops_another_keeps():
    records = light([200, 200], devices=2)
    kept = choose(records, 0.5, 0)
    covered = len(set(records.program[kept].tolist()))
    assert kept.sum() == 400
    assert covered > 350  # of 400; 300 if the devices chose independently


def test_another_seed_keeps_others():
    records = light([100])
    assert (choose(records, 0.5, 0) != choose(records, 0.5, 1)).any()


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> RecordStore:
    """Two devices, failures, older duplicates of a task's programs, a journal, a lone module."""
    store = stores.make_store(tmp_path_factory.mktemp("source") / "s", tasks=6, per_task=20)
    store.add_workloads({stores.task(9).hash: "of no network"})
    device = stores.profile("a", threads=1)
    again = [stores.measured(p, device) for p in stores.programs(stores.task(0), 20, 0)]
    store.append(
        Measurement(m.program, m.device, m.latencies_s, m.error, 2.0, m.versions) for m in again
    )
    return store


def rows_of(store: RecordStore) -> list[str]:
    return [json.dumps(row) for row in store.read().to_pylist()]


class TestStore:
    def test_a_pruned_store_is_a_store_of_unchanged_records(self, source, tmp_path):
        found = prune(source, tmp_path / "out", 0.5)
        pruned = RecordStore.open(tmp_path / "out")
        rows = rows_of(pruned)
        assert set(rows) < set(rows_of(source))
        assert len(rows) == sum(found.after.values()) == pytest.approx(0.5 * 260, abs=1)
        assert found.before == {"conv2d": 100, "matmul": 80, "softmax": 80}
        assert not pruned.damaged_shards()
        assert pruned.devices() == source.devices()
        assert pruned.networks() == source.networks()
        assert pruned.workloads() == source.workloads()
        assert pruned.read()["error"].null_count == len(rows)
        newest = [row for row in map(json.loads, rows) if row["task"] == stores.task(0).hash]
        assert {row["unix_s"] for row in newest if row["device"] == "a"} == {2.0}

    def test_the_same_seed_gives_the_same_store_whatever_the_shards(self, source, tmp_path):
        prune(source, tmp_path / "one", 0.4, seed=3)
        copy = RecordStore.create(tmp_path / "copy")
        writer = copy.writer()
        for table in reversed(list(source.scan())):
            writer.add(table)
        writer.close()
        prune(copy, tmp_path / "two", 0.4, seed=3)
        one, two = (rows_of(RecordStore.open(tmp_path / name)) for name in ("one", "two"))
        assert sorted(one) == sorted(two)

    def test_the_test_side_is_copied_whole_and_not_looked_at(self, source, tmp_path):
        copy = RecordStore.create(tmp_path / "copy")
        for device in source.devices().values():
            copy.add_device(device)
        writer = copy.writer()
        for table in source.scan():
            writer.add(table)
        writer.close()
        save_evaluation_tasks(copy.path, [stores.task(2).hash])
        found = prune(copy, tmp_path / "out", 0.5)
        pruned = RecordStore.open(tmp_path / "out")
        assert evaluation_tasks(pruned.path) == [stores.task(2).hash]
        of_task = pc.field("task") == stores.task(2).hash
        assert pruned.read().filter(of_task).num_rows == found.tested == 40
        assert sum(found.before.values()) == 220
        assert sum(found.after.values()) == pytest.approx(110, abs=1)

    def test_equal_latencies_are_no_matter_of_shards(self, source, tmp_path):
        def store(name, records):
            made = RecordStore.create(tmp_path / name)
            made.add_device(stores.profile("a"))
            made.append(records)
            made.compact()
            out = tmp_path / f"{name} pruned"
            prune(made, out, 0.5)
            return sorted(RecordStore.open(out).read()["program"].to_pylist())

        programs = stores.programs(stores.task(0), 40, seed=0)
        records = [Measurement(p, "a", (1e-3,), None, 1.0, "x") for p in programs]
        assert store("first", records) == store("second", records[::-1])

    def test_an_interrupted_one_can_be_repeated(self, source, tmp_path, monkeypatch):
        out = tmp_path / "out"

        def interrupted(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(RecordStore, "add_workloads", interrupted)
            prune(source, out, 0.5)
        assert list(tmp_path.iterdir()) == [out]
        assert list(out.iterdir()) == []
        prune(source, out, 0.5)
        assert RecordStore.open(out).damaged_shards() == []

    def test_a_folder_with_records_is_refused(self, source):
        with pytest.raises(DataError, match="--out"):
            prune(source, source.path, 0.5)

    def test_the_command_counts_by_operator(self, source, tmp_path, capfd):
        line = f"prune {source.path} --out {tmp_path / 'out'} --fraction 0.5 --json"
        assert app.run(mlproject.cli, line.split()) == 0
        value = json.loads(capfd.readouterr().out)
        assert value["records"] == sum(value["before"].values()) == 260
        assert value["kept"] == sum(value["after"].values())
        assert set(value["after"]) == {"conv2d", "matmul", "softmax"}

    @pytest.mark.parametrize("fraction", ["0", "1.5", "nan"])
    def test_no_other_fraction(self, source, tmp_path, capfd, fraction):
        line = f"prune {source.path} --out {tmp_path / 'out'} --fraction {fraction}"
        assert app.run(mlproject.cli, line.split()) == 2
        assert "a share" in capfd.readouterr().err
        assert not (tmp_path / "out").exists()
