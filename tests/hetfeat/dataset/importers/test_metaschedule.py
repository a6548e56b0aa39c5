"""MetaSchedule databases: legacy ones from their JSON, our own through TVM and back."""

import gzip
import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import legacy
import pytest
import stores
from hypothesis import given, settings
from hypothesis import strategies as st

import mlproject
from hetfeat.dataset.export import export_metaschedule
from hetfeat.dataset.importers.import_records import Counts, import_records
from hetfeat.dataset.importers.metaschedule import read
from hetfeat.dataset.schema import from_table, with_stores
from hetfeat.dataset.store import RecordStore
from hetfeat.errors import DataError
from hetfeat.tune.feature_extraction import FeatureExtraction
from registry.cli import app

DATA = Path(os.environ.get("HETFEAT_SHARED_DATA", "../shared/data"))


def imported(folder: Path, store: Path, device: str = "gpu") -> Counts:
    return import_records("metaschedule", device, [folder], store)


def measurements(store: Path):
    return [m for table in RecordStore.open(store).scan() for m in from_table(table)]


class TestLegacy:
    @pytest.fixture
    def database(self, tmp_path):
        return legacy.write_database(tmp_path / "database")

    def test_what_the_json_says_is_kept(self, database, tmp_path):
        counts = imported(database, tmp_path / "s")
        assert (counts.kept, counts.failed, counts.duplicates, counts.skipped) == (2, 1, 1, 0)
        first, second, failed = measurements(tmp_path / "s")
        task = first.program.task
        assert task.hash == f"{legacy.HASH:016x}"
        assert task.operator == "matmul"
        assert task.shapes == ((32, 64), (64, 16), (32, 16))
        assert task.dtype == "float32"
        assert task.flops == 2 * 32 * 64 * 16 + 32 * 16
        assert first.latencies_s == (1e-3, 3e-3, 2e-3)
        assert second.latencies_s == (5e-4,)
        assert (failed.latencies_s, failed.error) == ((), "run")
        assert first.versions == "tvm 0.13.dev0"
        instructions, decisions = json.loads(first.program.trace)
        assert instructions[0] == ["GetSBlock", [], ["T_matmul_NN", "main"], ["b0"]]
        assert decisions == [[2, [2, 16]]]

    def test_the_target_makes_the_device(self, database, tmp_path):
        imported(database, tmp_path / "s")
        profile = RecordStore.open(tmp_path / "s").devices()["gpu"]
        assert (profile.family, profile.warp_size, profile.max_threads_per_block) == (
            *("gpu-nvidia", 32, 1024),
        )
        assert profile.target["arch"] == "sm_80"

    def test_gzip_is_the_same(self, database, tmp_path):
        for name in ("database_tuning_record.json", "database_workload.json"):
            plain = database / name
            (database / f"{name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
        assert imported(database, tmp_path / "s").kept == 2

    @pytest.mark.parametrize("name", ["database_workload.json", "database_workload.json.gz"])
    def test_a_missing_workload_file_is_named(self, database, tmp_path, name):
        (database / "database_workload.json").unlink()
        if name.endswith("gz"):
            plain = database / "database_tuning_record.json"
            plain.rename(plain.with_name(plain.name + ".gz"))
        with pytest.raises(DataError, match=f"without their workloads '{name}'"):
            imported(database, tmp_path / "s")

    def test_open_shapes_are_those_of_the_arguments(self, database, tmp_path):
        lines = legacy.workload_line(legacy.matmul_graph(32, 64, 0))
        (database / "database_workload.json").write_text(lines)
        imported(database, tmp_path / "s")
        task = measurements(tmp_path / "s")[0].program.task
        assert task.shapes == ((32, 64), (64, 16), (32, 16))
        assert task.flops == 0

    def test_networks_come_along(self, database, tmp_path):
        (database / "networks.json").write_text('{"net": [{"workload_index": 0, "weight": 3}]}')
        assert imported(database, tmp_path / "s").skipped == 0
        assert RecordStore.open(tmp_path / "s").networks() == {"net": {f"{legacy.HASH:016x}": 3}}
        (database / "networks.json").write_text('{"net": [{"workload_index": 1, "weight": 3}]}')
        with pytest.raises(DataError, match=r"networks\.json"):
            imported(database, tmp_path / "t")

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("[0, [", "line that is not JSON"),
            ("[" * 100_000, "line that is not JSON"),
            ('[0, "no"]', "line that is no record"),
            (legacy.record_line([2, 16], [1e-3], index=1), "workload that its file lacks"),
            (legacy.record_line([2, 16], [1e-3], index=-1), "workload that its file lacks"),
            (legacy.record_line([2, 16], []), "record without costs"),
            (legacy.record_line([2, 16], ["1"]), "cost that is no number"),
            (legacy.record_line([2, 16], [True]), "cost that is no number"),
            (legacy.record_line([2, 16], [-1e-3]), "cost that is not positive and finite"),
            (legacy.record_line([2, 16], [1e-3, float("nan")]), "cost that is not positive"),
            (legacy.record_line([2, 16], [1e-3]).replace('"GetLoops"', "1"), "trace that is none"),
            (legacy.record_line([2, 16], [1e-3]).replace("[[2, [2", "[[9, [2"), "trace that is"),
            (legacy.record_line([2, 16], [1e-3]).replace("cuda", "vulkan"), "target of another"),
            (legacy.record_line([2, 16], [1e-3]).replace('"cuda"', "[]"), "target of another"),
            (legacy.record_line([2, 16], [1e-3]).replace('"cuda"', '"\\ud800"'), "not JSON"),
            (legacy.record_line([2, 16], [1e-3]).replace("[[2, [2", "[[2, [NaN"), "not finite"),
        ],
    )  # fmt: skip
    def test_a_line_that_is_none_is_counted(self, database, tmp_path, line, reason):
        with (database / "database_tuning_record.json").open("a") as file:
            file.write(line + "\n")
        counts = imported(database, tmp_path / "s")
        assert (counts.read, counts.skipped) == (5, 1)
        assert reason in next(iter(counts.skipped_reasons))

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ('["1", "A"]', "not base64"),
            ('["1", "AAAAAAAAAAAA"]', "not JSON"),
            ('["1", "', "not JSON"),
            (legacy.workload_line({"nodes": None, "attrs": 3}), "no module"),
            ('["one", ""]', "without a hash"),
            ('["1", "x", 2]', "without a hash"),
            (legacy.workload_line({"nodes": []}), "no module"),
            (legacy.workload_line({"root_index": 0, "nodes": []}), "does not read"),
        ],
    )  # fmt: skip
    def test_a_workload_that_is_none_costs_its_records(self, database, tmp_path, line, reason):
        (database / "database_workload.json").write_text(line + "\n")
        counts = imported(database, tmp_path / "s")
        assert counts.skipped == counts.read == 4
        assert reason in next(iter(counts.skipped_reasons))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(legacy.RECORDS),
            st.integers(0, 2000),
            st.sampled_from(
                [b"", b"[", b"]", b"-", b'"', b"NaN", b"null", b"1e999", b"{}", b"\xff"]
            ),
            st.integers(0, 3),
        ),
        min_size=40,
        max_size=40,
    )
)
@settings(max_examples=50, deadline=None)
def test_mutated_lines_are_counted(mutations):
    """2,000 lines, each with a piece replaced."""
    lines = [legacy.RECORDS[0].encode()]
    for line, place, piece, length in mutations:
        data = line.encode()
        place %= len(data)
        lines.append(data[:place] + piece + data[place + length :])
    with tempfile.TemporaryDirectory() as folder:
        database = legacy.write_database(Path(folder))
        (database / "database_tuning_record.json").write_bytes(b"\n".join([*lines, b""]))
        batches = list(read([database / "database_tuning_record.json"], "gpu"))
    assert sum(len(batch.records) + batch.skipped.total() for batch in batches) == len(lines)


@pytest.fixture(scope="module")
def through_tvm(device, tmp_path_factory):
    """Random programs of two tasks, with made-up latencies and a failure."""
    import kernels

    from hetfeat.records import Measurement, Program
    from hetfeat.schedules.design_space import TaskSpace
    from hetfeat.workloads.relax import as_target, describe, save_workload

    made = RecordStore.create(tmp_path_factory.mktemp("made") / "s")
    made.add_device(device)
    weights, modules = {}, {}
    for size in (32, 48):
        module = kernels.matmul(size)
        task = describe(module)
        weights[task.hash], modules[task.hash] = size, save_workload(module)
        space = TaskSpace(module, as_target(device.target), device.cache_line_bytes)
        for i, (trace, features) in enumerate(space.sample(5, seed=1)):
            program = Program(task, trace, features)
            latencies = (1e-3 + 1e-4 * i, 1.1e-3) if i else ()
            error = None if i else "build"
            made.append([Measurement(program, device.name, latencies, error, 1.0, "tvm")])
        newer = Measurement(program, device.name, (5e-4,), None, 2.0, "tvm")
        made.append([newer])
    made.add_network("net", weights, modules)
    made.compact()
    return made


@pytest.fixture(scope="module")
def exported(through_tvm, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "database"
    arguments = ["records", "export", str(through_tvm.path), "--format", "metaschedule"]
    code = app.run(mlproject.cli, [*arguments, "--device", "here", "--out", str(out)])
    assert code == 0
    return out


@pytest.mark.slow
@pytest.mark.tvm
class TestThroughTvm:
    def test_plain_tvm_loads_it_and_compiles_the_best(self, through_tvm, exported, device):
        import numpy as np
        import tvm
        import tvm.s_tir.meta_schedule as ms

        from hetfeat.workloads.relax import load_workload

        database = ms.database.JSONDatabase(work_dir=str(exported), module_equality="structural")
        assert len(database) == 10
        target = tvm.target.Target(dict(device.target))
        for module in through_tvm.workloads().values():
            best = database.query_tuning_record(load_workload(module), target, "main")
            assert [float(s) for s in best.run_secs] == [5e-4]
            scheduled = database.query_ir_module(load_workload(module), target, "main")
            function = tvm.compile(scheduled, target).jit()
            size = int(best.as_measure_candidate().args_info[0].shape[0])
            a, b = (np.random.default_rng(i).random((size, size), np.float32) for i in (0, 1))
            c = tvm.runtime.tensor(np.zeros((size, size), np.float32))
            function["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
            np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-5)

    def test_all_devices_have_a_folder_each_and_what_has_no_module_is_counted(
        self, through_tvm, exported, tmp_path
    ):
        shutil.copytree(through_tvm.path, tmp_path / "s")
        store = RecordStore.open(tmp_path / "s")
        foreign = stores.programs(stores.task(1), 3, seed=0)
        store.append(stores.measured(program, stores.profile("here")) for program in foreign)
        (done,) = export_metaschedule(store, tmp_path / "out")
        assert (done.device, done.exported, done.tasks) == ("here", 10, 2)
        assert (done.duplicates, done.without_module) == (2, 3)
        for name in ("database_tuning_record.json", "database_workload.json", "networks.json"):
            assert (tmp_path / "out" / "here" / name).read_text() == (exported / name).read_text()

    def test_it_comes_back_with_features_and_networks(self, through_tvm, exported, tmp_path, capfd):
        again = tmp_path / "again"
        arguments = ["--format", "metaschedule", "--device", "here", "--out", str(again), "--json"]
        assert app.run(mlproject.cli, ["import", str(exported), *arguments]) == 0
        found = json.loads(capfd.readouterr().out)
        assert (found["read"], found["kept"], found["failed"]) == (10, 8, 2)

        def newest(folder):
            by_time = sorted(measurements(folder), key=lambda m: m.unix_s)
            return {m.program.key: m for m in by_time}

        ours, theirs = newest(through_tvm.path), newest(again)
        assert ours.keys() == theirs.keys()
        for key, measured in ours.items():
            back = theirs[key]
            assert back.program == measured.program
            assert back.latencies_s == measured.latencies_s
            assert back.program.stores.tobytes() == measured.program.stores.tobytes()
        returned = RecordStore.open(again)
        assert returned.networks() == through_tvm.networks()
        assert returned.workloads() == through_tvm.workloads()
        profile = returned.devices()["here"]
        assert profile.threads == through_tvm.devices()["here"].threads
        assert profile.vector_unit_bytes == through_tvm.devices()["here"].vector_unit_bytes


@pytest.mark.slow
def test_features_are_extracted_here_of_devices_elsewhere(through_tvm):
    elsewhere = replace(through_tvm.devices()["here"], route={"kind": "rpc", "key": "k"})
    records = through_tvm.read()
    bare = with_stores(records, [None] * len(records))
    with FeatureExtraction() as extraction:
        found = extraction(bare, elsewhere, through_tvm.workloads())
    assert found["stores"].null_count <= records["stores"].null_count < len(records)


class TestExport:
    def export(self, store: RecordStore, out: Path, *more: str) -> int:
        return app.run(
            mlproject.cli,
            ["records", "export", str(store.path), "--out", str(out), *more, "--json"],
        )

    @pytest.fixture
    def store(self, tmp_path):
        imported(legacy.write_database(tmp_path / "database"), tmp_path / "s")
        return RecordStore.open(tmp_path / "s")

    def test_records_without_modules_are_said(self, store, tmp_path, capfd):
        assert self.export(store, tmp_path / "out") == 2
        assert "no TVM module" in capfd.readouterr().err

    def test_an_unknown_device_is_refused(self, store, tmp_path, capfd):
        assert self.export(store, tmp_path / "out", "--device", "cpu") == 2
        assert "'cpu'" in capfd.readouterr().err

    def test_a_database_is_not_written_over(self, store, tmp_path, capfd):
        assert self.export(store, tmp_path / "database", "--device", "gpu") == 2
        assert "with a database in it" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(
    not (DATA / "metaschedule_legacy").is_dir(), reason="no shared data (HETFEAT_SHARED_DATA)"
)
def test_real_legacy_databases_balance(tmp_path):
    metal = imported(DATA / "metaschedule_legacy" / "mlc_llm", tmp_path / "s", "metal")
    assert metal.read == 239
    assert metal.skipped == 1  # an OpenCL device
    a100 = imported(DATA / "metaschedule_legacy" / "a100_resnet34", tmp_path / "s", "a100")
    assert (a100.read, a100.skipped, len(a100.tasks)) == (20_089, 0, 20)
    flops = {
        m.program.task.shapes: m.program.task.flops
        for m in measurements(tmp_path / "s")
        if m.program.task.operator == "conv2d"
    }
    stem = flops[(1, 3, 224, 224), (64, 3, 7, 7), (1, 64, 1, 1), (1, 64, 112, 112)]
    assert stem == pytest.approx(2 * 64 * 112 * 112 * 3 * 7 * 7, rel=0.02)
