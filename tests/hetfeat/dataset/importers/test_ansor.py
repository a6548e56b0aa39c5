"""The auto-scheduler's records: lines, tasks, devices, and files that others published."""

import gzip
import json
import os
from pathlib import Path

import ansor_lines
import pytest
from ansor_lines import CPU, GPU, line, read

from hetfeat.dataset.importers import ansor
from hetfeat.dataset.importers.ansor_targets import profile_of
from hetfeat.dataset.importers.ansor_tasks import task_of
from hetfeat.dataset.importers.files import ReadOptions
from hetfeat.dataset.importers.import_records import import_records
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.presets import preset
from hetfeat.errors import DataError


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: r.pop("r"), "record of another form"),
        (lambda r: r.update(input=1, config=2) or r.pop("i"), "AutoTVM record"),
        (lambda r: r.update(v="v0.7"), "record of another version"),
        (lambda r: r.update(v=["v0.6"]), "record of another version"),
        (lambda r: r.update(r=[[-0.5], 0, 1, 1]), "cost that is no positive number"),
        (lambda r: r.update(r=[[0], 0, 1, 1]), "cost that is no positive number"),
        (lambda r: r.update(r=[["1"], 0, 1, 1]), "cost that is no positive number"),
        (lambda r: r.update(r=[[True], 0, 1, 1]), "cost that is no positive number"),
        (lambda r: r.update(r=[[], 0, 1, 1]), "result without costs"),
        (lambda r: r.update(r=[0.5, 0, 1, 1]), "result without costs"),
        (lambda r: r.update(r=[[0.5], 9, 1, 1]), "result of another form"),
        (lambda r: r.update(r=[[0.5], 0, 1, "now"]), "result of another form"),
        (lambda r: r.update(r=[[float("nan")], 0, 1, 1]), "number that is not finite"),
        (lambda r: r.update(r=[[0.5], 0, float("inf"), 1]), "number that is not finite"),
        (lambda r: r["i"][0].__delitem__(slice(1, None)), "task of another form"),
        (lambda r: r["i"][0].__setitem__(0, 5), "task of another form"),
        (lambda r: r["i"][0].__setitem__(0, "["), "task with a workload key that is not JSON"),
        (lambda r: r["i"][0].__setitem__(0, "[5]"), "task with a workload key without a name"),
        (lambda r: r["i"][0].__setitem__(1, "vulkan"), "task with a target of kind 'vulkan'"),
        (lambda r: r["i"][0].__setitem__(2, [1]), "task with hardware that is not eight numbers"),
        (lambda r: r["i"][0].__setitem__(2, ["4"] * 8), None),
    ],
)
def test_lines_that_are_no_records(tmp_path, change, reason):
    changed = line([["AN", 0, 0, 3]])
    change(changed)
    found, skipped = read(tmp_path, [line([["AN", 0, 0, 3]]), changed])
    assert len(found) == 1
    assert skipped == {reason or "task with hardware that is not eight numbers": 1}


class TestRecords:
    @pytest.mark.parametrize("version", ["v0.2", "v0.3", "v0.4", "v0.5", "v0.6"])
    def test_every_version_is_read(self, tmp_path, version):
        (found,), _ = read(tmp_path, [b"# comment", line([["AN", 0, 0, 3]], version=version), b""])
        assert found.versions == f"ansor {version}"
        assert found.device == "a"
        assert found.program.task == task_of('["matmul_layer", 64, 32, 128]', "float32")

    def test_the_key_is_the_programs_own(self, tmp_path):
        (tmp_path / "log").write_bytes(b"\n".join(ansor_lines.log(50, 1)))
        (batch, _) = ansor.read([tmp_path / "log"], "a")
        keys = [measurement.program.key for measurement in from_table(batch.records)]
        assert batch.records["program"].to_pylist() == keys

    def test_all_costs_are_kept_and_failures_are_failures(self, tmp_path):
        results = [
            ([[0.1, 0.3, 0.2], 0, 9, 7], (0.1, 0.3, 0.2), None),
            ([[1e10], 0, 9, 7], (), "run"),
            *(
                ([[1e10], number, 9, 7], (), kind)
                for number, kind in [
                    (1, "schedule"),
                    (2, "build"),
                    (3, "build"),
                    (4, "run"),
                    (5, "wrong"),
                    (6, "timeout"),
                    (7, "timeout"),
                    (8, "run"),
                ]
            ),
        ]
        found, _ = read(tmp_path, [line([["AN", 0, 0, 3]], result=r) for r, _, _ in results])
        assert [(m.latencies_s, m.error) for m in found] == [(c, e) for _, c, e in results]
        assert {m.unix_s for m in found} == {7}

    def test_batches_lose_no_count(self, tmp_path):
        lines = ansor_lines.log(60, 2)
        lines[5::7] = [b"torn"] * len(lines[5::7])
        small = ReadOptions(chunk_bytes=3000)
        found, skipped = read(tmp_path, lines, batch_lines=10, options=small)
        assert skipped == {"not JSON": 8}
        assert len(found) == 52

    def test_gzip_folders_and_two_kinds_of_hardware(self, tmp_path):
        (tmp_path / "logs" / "b").mkdir(parents=True)
        (tmp_path / "logs" / "b" / "gpu").write_bytes(
            gzip.compress(b"\n".join(ansor_lines.log(30, 1, ansor_lines.on_gpu)))
        )
        (tmp_path / "logs" / "a.json").write_bytes(b"\n".join(ansor_lines.log(20, 1)))
        counts = import_records("ansor", "new", [tmp_path / "logs"], tmp_path / "store")
        assert counts.read == 50
        ((reason, skipped),) = counts.skipped_reasons.items()
        assert skipped == 30
        assert reason.startswith("measured on other hardware")
        store = RecordStore.open(tmp_path / "store")
        assert store.devices() == {"new": profile_of("new", *CPU)}
        assert store.read().num_rows == counts.kept + counts.failed

    def test_a_device_with_a_preset_has_its_figures(self, tmp_path):
        (tmp_path / "log").write_bytes(b"\n".join(ansor_lines.log(20, 1, ansor_lines.on_gpu)))
        import_records("ansor", "nvidia-k80", [tmp_path / "log"], tmp_path / "store")
        assert RecordStore.open(tmp_path / "store").devices() == {
            "nvidia-k80": preset("nvidia-k80")
        }


@pytest.fixture
def shared(project: Path) -> Path:
    """The public files beside the project."""
    folder = Path(os.environ.get("HETFEAT_SHARED_DATA") or project.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no public records at '{folder}'; HETFEAT_SHARED_DATA names them")
    return folder


class TestPublicFiles:
    """All of them are in `benchmarks/importing.py`; these take a second."""

    @pytest.mark.parametrize(
        ("name", "read", "skipped"),
        [
            ("tlcbench_ansor", 152, {"whole file: an AutoTVM log": 2}),
            ("tvm_ci_ansor/resnet-18-NHWC-B1-cuda.json", 24, {}),
            ("tvm_ci_ansor/sparse_dense.json", 1, {}),
            ("tvm_ci_ansor/matmul.hist2.json", 1, {}),
        ],
    )
    def test_are_read_whole(self, shared, tmp_path, name, read, skipped):
        counts = import_records("ansor", "a", [shared / name], tmp_path / "store")
        assert (counts.read, counts.skipped_reasons) == (read, skipped)

    def test_an_autotvm_log_is_refused(self, shared, tmp_path):
        (log,) = (shared / "tlcbench_ansor").glob("autotvm_t4*")
        with pytest.raises(DataError, match=r"AutoTVM log.*ansor"):
            import_records("ansor", "a", [log], tmp_path / "store")


class TestTasks:
    @pytest.mark.parametrize(
        ("key", "operator", "shapes", "flops"),
        [
            ('["matmul_layer", 4, 5, 6]', "matmul", ((4, 5), (5, 6), (4, 6)), 240),
            (
                '["batch_matmul_layer", 2, 3, 4, 5, 6]',
                "matmul",
                ((2, 3, 4, 5), (2, 3, 5, 6), (2, 3, 4, 6)),
                1440,
            ),
            # 8 x 8, padded by 1, kernel 3, stride 2: 4 x 4 outputs of 2 * 3 * 9 FLOPs.
            (
                '["conv2d_layer", 1, 3, 8, 8, 5, 3, 3, 2, 1]',
                "conv2d",
                ((1, 3, 8, 8), (5, 3, 3, 3), (1, 5, 4, 4)),
                5 * 16 * 54,
            ),
            (
                '["conv2d_layer", 1, 9, 9, 5, 3, 3, 3, [1, 1], [0, 0]]',
                "conv2d",
                ((1, 3, 9, 9), (5, 3, 3, 3), (1, 5, 7, 7)),
                5 * 49 * 54,
            ),
            (
                '["depthwise_conv2d_layer", 1, 4, 9, 9, 3, 3, 2, "SAME"]',
                "group_conv2d",
                ((1, 4, 9, 9), (4, 1, 3, 3), (1, 4, 5, 5)),
                100 * 18,
            ),
            (
                '["pool_layer", "max", 1, 4, 9, 9, 3, 3, 2, "VALID"]',
                "max_pool2d",
                ((1, 4, 9, 9), (1, 4, 4, 4)),
                64 * 9,
            ),
            ('["reduction_layer", [4, 5, 6], [1, 2], false]', "reduction", ((4, 5, 6), (4,)), 120),
            ('["relu_layer", 4, 5]', "elementwise", ((4, 5), (4, 5)), 20),
            ('["0f", [4, 5], [5, 6]]', "unknown", ((4, 5), (5, 6)), 0),
            ('["0f", 1, 1000]', "unknown", ((1, 1000),), 0),
            ('["0f"]', "unknown", (), 0),
            ('["matmul_layer", 4, 5]', "matmul", None, None),
            ('["matmul_layer", -4, 5, 6]', "unknown", ((-4, 5, 6),), 0),
            ('["conv2d_layer", 1, 3, 8, 8, 5, 9, 9, 2, 0]', "unknown", None, 0),
            ('["pool_layer", "min", 1, 4, 9, 9, 3, 3, 2, "VALID"]', "unknown", None, 0),
        ],
    )
    def test_keys_that_tell(self, key, operator, shapes, flops):
        task = task_of(key, "float32")
        if shapes is not None:
            assert task.shapes == shapes
        if flops is not None:
            assert (task.operator, task.flops) == (operator, flops)

    def test_type_by_key_or_file(self, tmp_path):
        assert task_of('["matmul", 4, 5, 6, "int8"]', "float32").dtype == "int8"
        (tmp_path / "MHA1-B32-int8.json").write_text(json.dumps(line([["AN", 0, 0, 3]])))
        (batch, _) = ansor.read([tmp_path / "MHA1-B32-int8.json"], "a")
        assert batch.records["dtype"].to_pylist() == ["int8"]

    def test_the_hash_leaves_the_device_out(self, tmp_path):
        found, _ = read(
            tmp_path, [ansor_lines.log(1, 1)[0], ansor_lines.log(1, 1, ansor_lines.on_gpu)[0]]
        )
        assert len({m.program.task.hash for m in found}) == 1


class TestDevices:
    def test_a_gpu(self):
        profile = profile_of("t", *GPU)
        assert (profile.family, profile.threads, profile.num_cores) == ("gpu-nvidia", 1, None)
        assert (profile.warp_size, profile.max_threads_per_block) == (32, 1024)
        assert profile.max_shared_memory_per_block_bytes == 49152
        assert profile.max_local_memory_per_block_bytes is None
        assert profile.target["arch"] == "sm_75"

    def test_a_cpu(self):
        profile = profile_of("x", *CPU)
        assert (profile.family, profile.threads, profile.num_cores) == ("cpu-x86", 4, 4)
        assert (profile.vector_unit_bytes, profile.warp_size) == (32, None)
        assert profile_of("a", "llvm -mtriple=aarch64-linux-gnu", None).family == "cpu-arm"

    @pytest.mark.tvm
    @pytest.mark.parametrize("given", [CPU, GPU, ("llvm -keys=cpu -link-params=0 ", None)])
    def test_tvm_knows_the_targets(self, given):
        from hetfeat.workloads.relax import as_target

        as_target(profile_of("x", *given).target)


class TestOperators:
    """Keys that are a hash alone, as TLCBench's are: the tiled loops tell."""

    def operator(self, folder, *steps_of_lines):
        lines = [ansor_lines.line(steps, '["0a"]') for steps in steps_of_lines]
        found, skipped = ansor_lines.read(folder, lines)
        assert not skipped
        (operator,) = {m.program.task.operator for m in found}
        return operator

    def tiled(self, outputs, sums, stage=2, levels=(3, 1)):
        extents = [(levels[0], 8)] * outputs + [(levels[1], 4)] * sums
        splits, loops = [], 0
        for count, extent in extents:
            splits.append(["SP", stage, loops, extent, [1] * count, 1])
            loops += count + 1
        return [*splits, ["RE", stage, list(range(loops))]]

    @pytest.mark.parametrize("levels", [(3, 1), (4, 2)])
    @pytest.mark.parametrize(
        ("outputs", "sums", "operator"),
        [
            (2, 1, "matmul"),
            (3, 1, "matmul"),
            (4, 3, "conv2d"),
            (4, 2, "group_conv2d"),
            (4, 1, "unknown"),
            (2, 0, "unknown"),
        ],
    )
    def test_by_the_loops_of_the_tiled_stage(self, tmp_path, outputs, sums, operator, levels):
        assert self.operator(tmp_path, self.tiled(outputs, sums, levels=levels)) == operator

    def test_a_task_has_one_whatever_its_sketches(self, tmp_path):
        plain = [["FU", 2, [0, 1]], ["SP", 2, 0, 64, [8], 1], ["AN", 2, 0, 3]]
        assert self.operator(tmp_path, plain, self.tiled(2, 1)) == "matmul"
        assert self.operator(tmp_path, plain) == "unknown"

    def test_stages_that_differ_tell_nothing(self, tmp_path):
        both = [*self.tiled(4, 2), *self.tiled(2, 1, stage=3)]
        assert self.operator(tmp_path, both) == "unknown"


def test_metal_is_apples(tmp_path):
    metal = (
        "metal -keys=metal,gpu -max_num_threads=256",
        [-1, 16, 64, 32768, 2**31 - 1, 1024, 8, 8],
    )
    assert profile_of("m1", *metal).family == "gpu-apple"


def test_steps_that_name_more_loops_than_a_program_has(tmp_path):
    steps = [["CHR", 0, "local", [1]], ["AN", 1, 511, 0]] * 200
    found, skipped = ansor_lines.read(tmp_path, [ansor_lines.line(steps)])
    assert (found, dict(skipped)) == ([], {"more loops than a program has": 1})
