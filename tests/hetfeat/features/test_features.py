import dataclasses
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
import stores
from hypothesis import given, settings
from hypothesis import strategies as st

from hetfeat.dataset.store import RecordStore
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError
from hetfeat.features import columns
from hetfeat.features.assemble import assemble, batch_of
from hetfeat.features.hardware import hardware_vector
from hetfeat.features.task import element_bytes, task_vector
from hetfeat.records import Measurement, Program, Task

KINDS = (columns.STORE, columns.TASK, columns.HARDWARE)


def value(vector, kind, name: str) -> float:
    return float(vector[[column.name for column in kind].index(name)])


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_unique(kind):
    assert len({column.name for column in kind}) == len(kind)


@pytest.mark.parametrize(
    ("position", "name"),
    [
        (0, "float_mad"),
        (13, "int_other"),
        (15, "select"),
        (16, "vectorize_loops"),
        (27, "unroll_loops"),
        (48, "parallel_at_mixed"),
        (49, "is_gpu"),
        (56, "vthread_length"),
        (57, "buffer0_is_read"),
        (146, "buffer4_stride"),
        (147, "intensity_0"),
        (157, "allocated"),
        (161, "outer_product"),
        (163, "auto_unroll"),
    ],
)
def test_per_store_names_lie_where_tvm_writes_them(position, name):
    assert columns.STORE[position].name == name
    assert len(columns.STORE) == 164


def test_other_columns_are_refused_by_name():
    recorded = columns.labels(columns.HARDWARE)
    columns.refuse_other_columns(recorded, columns.HARDWARE, "model")
    newer = (dataclasses.replace(columns.HARDWARE[0], version=2), *columns.HARDWARE[1:])
    with pytest.raises(DataError, match="threads@1, threads@2"):
        columns.refuse_other_columns(recorded, newer, "model")
    with pytest.raises(DataError, match="their order"):
        columns.refuse_other_columns(recorded[::-1], columns.HARDWARE, "model")


def test_task_vector_of_a_matmul():
    matmul = Task("1", "matmul", ((64, 32), (32, 16), (64, 16)), "float16", 2.0 * 64 * 32 * 16)
    vector = task_vector(matmul)
    total_bytes = 2 * (64 * 32 + 32 * 16 + 64 * 16)
    assert value(vector, columns.TASK, "bytes") == pytest.approx(math.log2(1 + total_bytes))
    assert value(vector, columns.TASK, "flops") == pytest.approx(math.log2(65537))
    assert value(vector, columns.TASK, "largest_input_elements") == pytest.approx(math.log2(2049))
    assert value(vector, columns.TASK, "output_last_extent") == pytest.approx(math.log2(17))
    assert value(vector, columns.TASK, "operator_matmul") == 1
    assert value(vector, columns.TASK, "operator_other") == 0


def test_an_operator_without_a_column_is_other():
    vector = task_vector(Task("1", "sort", ((8,), (8,)), "float32", 0.0))
    assert value(vector, columns.TASK, "operator_other") == 1
    assert np.isfinite(vector).all()


def test_a_scalar_and_a_task_without_arguments_have_vectors():
    for shapes in ((), ((),), ((4,), ())):
        assert np.isfinite(task_vector(Task("1", "matmul", shapes, "float32", 1.0))).all()


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("int8", 1), ("bool", 1)])
def test_element_bytes(dtype, size):
    assert element_bytes(dtype) == size


def test_a_parameter_that_a_class_lacks_is_nan():
    cpu = hardware_vector(stores.profile("a"))
    gpu = hardware_vector(
        DeviceProfile("g", "gpu-nvidia", {"kind": "cuda"}, 1, warp_size=32, peak_gflops=1e4)
    )
    assert math.isnan(value(cpu, columns.HARDWARE, "warp_size"))
    assert math.isnan(value(gpu, columns.HARDWARE, "num_cores"))
    assert value(gpu, columns.HARDWARE, "warp_size") == 5
    assert value(cpu, columns.HARDWARE, "threads") == 1
    assert value(cpu, columns.HARDWARE, "lanes") == 3
    assert value(gpu, columns.HARDWARE, "lanes") == 5


def test_the_architecture_of_a_target_tells_of_its_multiprocessors():
    def threads(**target):
        profile = DeviceProfile("g", "gpu-nvidia", {"kind": "cuda", **target}, 1)
        return value(hardware_vector(profile), columns.HARDWARE, "multiprocessor_threads")

    assert threads(arch="sm_75") == 10
    assert threads(arch="sm_90a") == threads(arch="sm_90") == 11
    assert math.isnan(threads(arch="sm_999"))
    assert math.isnan(threads())


def test_a_store_and_its_programs_give_the_same_features(tmp_path):
    store = stores.make_store(tmp_path / "s", devices=("a",), tasks=3, per_task=4)
    examples = assemble(store).examples
    expected = {p.key: p for n in range(3) for p in stores.programs(stores.task(n), 4, seed=0)}
    batch = batch_of([expected[key] for key in examples.program], store.devices()["a"])
    np.testing.assert_array_equal(batch.stores, examples.batch.stores)
    np.testing.assert_array_equal(batch.offsets, examples.batch.offsets)
    np.testing.assert_array_equal(batch.task, examples.batch.task)
    np.testing.assert_array_equal(batch.hardware, examples.batch.hardware)


def test_latency_is_the_median_and_a_failure_is_nan(tmp_path):
    store = RecordStore.create(tmp_path / "s")
    device = stores.profile("a")
    store.add_device(device)
    odd, even, failed = stores.programs(stores.task(0), 3, seed=0)
    store.append(
        [
            Measurement(odd, "a", (3.0, 1.0, 2.0), None, 1.0, ""),
            Measurement(even, "a", (4.0, 1.0), None, 1.0, ""),
            Measurement(failed, "a", (), "timeout", 1.0, ""),
        ]
    )
    examples = assemble(store).examples
    found = dict(zip(examples.program, examples.latency_s, strict=True))
    assert found[odd.key] == 2.0
    assert found[even.key] == 2.5
    assert math.isnan(found[failed.key])


def test_the_newest_of_two_measurements_counts(tmp_path):
    store = RecordStore.create(tmp_path / "s")
    store.add_device(stores.profile("a"))
    (program,) = stores.programs(stores.task(0), 1, seed=0)
    store.append(
        Measurement(program, "a", (latency,), None, when, "")
        for latency, when in ((2.0, 20.0), (1.0, 10.0))
    )
    assembled = assemble(store)
    assert assembled.examples.latency_s.tolist() == [2.0]
    assert assembled.duplicates == 1


@given(
    written=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, 9))),
    compact_after=st.integers(0, 20),
)
@settings(max_examples=20, deadline=None)
def test_the_newest_of_any_measurements_counts(written, compact_after):
    programs = [p for n in (0, 1) for p in stores.programs(stores.task(n), 3, seed=0)]
    with tempfile.TemporaryDirectory() as folder:
        store = RecordStore.create(Path(folder) / "s")
        expected = {}
        for i, (device, number, when) in enumerate(written):
            name, program = "ab"[device], programs[number]
            store.add_device(stores.profile(name))
            store.append([Measurement(program, name, (1.0 + i,), None, float(when), "")])
            if i == compact_after:
                store.compact()
            expected.setdefault((name, program.key), []).append((when, 1.0 + i))
        if not written:
            return
        found = assemble(store)
    examples = found.examples
    assert found.duplicates == len(written) - len(expected) == len(written) - len(examples)
    for name, key, latency in zip(
        examples.device, examples.program, examples.latency_s, strict=True
    ):
        measured = expected[name, key]
        newest = max(when for when, _ in measured)
        assert latency in {s for when, s in measured if when == newest}


@pytest.mark.parametrize("compacts", [False, True])
def test_programs_without_features_are_left_out_and_counted(tmp_path, compacts):
    store = stores.make_store(tmp_path / "s", devices=("a",), tasks=2, per_task=3)
    bare = Program(stores.task(0), "[[],[[9,9]]]")
    store.append([Measurement(bare, "a", (), "schedule", 1.0, "")])
    if compacts:
        store.compact()
    assembled = assemble(store)
    assert assembled.without_features == 1
    assert bare.key not in assembled.examples.program


def test_records_of_which_none_has_features_have_their_traces(tmp_path):
    store = stores.make_traced_store(tmp_path / "s", tasks=3, per_task=4)
    assembled = assemble(store)
    assert assembled.without_features == 0
    batch = assembled.examples.batch
    assert len(batch.stores) == 0
    np.testing.assert_array_equal(np.diff(batch.step_offsets), 1)  # a split each
    factors = [column.name for column in columns.TRACE].index("split0_factor0")
    assert len(set(batch.trace[:, factors].tolist())) > 1
    some = np.array([7, 2, 2])
    taken = batch.take(some)
    np.testing.assert_array_equal(taken.steps, batch.steps[some])
    np.testing.assert_array_equal(taken.trace, batch.trace[some])


def test_an_empty_store_is_refused(tmp_path):
    with pytest.raises(DataError, match="without records"):
        assemble(RecordStore.create(tmp_path / "s"))


def test_records_of_an_unknown_device_are_refused(tmp_path):
    store = stores.make_store(tmp_path / "s", devices=("a",), tasks=2, per_task=3)
    (store.path / "devices" / "a.yaml").unlink()
    with pytest.raises(DataError, match="without a profile of a"):
        assemble(store)


def test_no_programs_give_an_empty_batch():
    batch = batch_of([], stores.profile("a"))
    assert len(batch) == 0
    assert batch.task.shape == (0, len(columns.TASK))
    assert batch.hardware.shape == (0, len(columns.HARDWARE))
