"""The auto-scheduler's records: traces worked out by hand, refusals, and damage of all kinds."""

import gzip
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import ansor_lines
import numpy as np
import pytest
from ansor_lines import CPU, GPU, line
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hetfeat.dataset.importers import ansor, ansor_steps
from hetfeat.dataset.importers.ansor_targets import profile_of
from hetfeat.dataset.importers.ansor_tasks import task_of
from hetfeat.dataset.importers.run import import_records
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.presets import preset
from hetfeat.errors import DataError
from hetfeat.records import Measurement


def read(folder: Path, lines: list[Any]) -> tuple[list[Measurement], Counter[str]]:
    """Records, and skipped lines by reason, of a file of lines: bytes, or what JSON makes."""
    data = [entry if isinstance(entry, bytes) else json.dumps(entry).encode() for entry in lines]
    (folder / "log.json").write_bytes(b"\n".join(data))
    found, skipped = [], Counter()
    for batch in ansor.read([folder / "log.json"], "a"):
        found += from_table(batch.records)
        skipped.update(batch.skipped)
    return found, skipped


def trace_of(folder: Path, *steps: list[Any]) -> list[Any]:
    (found,), skipped = read(folder, [line(list(steps))])
    assert not skipped
    return json.loads(found.program.trace)


class TestTraces:
    """Worked out by hand from what the steps mean."""

    def test_a_tiled_loop_nest(self, tmp_path):
        assert trace_of(
            tmp_path,
            ["SP", 2, 0, 64, [2, 8], 1],
            ["SP", 2, 3, 100, [8], 0],
            ["RE", 2, [0, 3, 1, 2, 4]],
            ["FU", 2, [0, 1]],
            ["AN", 2, 0, 3],
            ["AN", 2, 3, 2],
            ["PR", 2, 0, "auto_unroll_max_step$16"],
        ) == [
            [
                ["GetSBlock", [], ["stage2", "main"], ["b0"]],
                ["GetLoops", ["b0"], [], ["l1", "l8"]],
                ["SamplePerfectTile", ["l1"], [3, 64], ["v2", "v3", "v4"]],
                ["Split", ["l1", "v2", "v3", "v4"], [1, 0], ["l5", "l6", "l7"]],
                ["SamplePerfectTile", ["l8"], [2, 64], ["v9", "v10"]],
                ["Split", ["l8", "v9", "v10"], [1, 0], ["l11", "l12"]],
                ["Reorder", ["l5", "l11", "l6", "l7", "l12"], [], []],
                ["Fuse", ["l5", "l11"], [1], ["l13"]],
                ["Parallel", ["l13"], [], []],
                ["Vectorize", ["l12"], [], []],
                ["Annotate", ["l13", 16], ["pragma_auto_unroll_max_step"], []],
            ],
            # 64 = 4 * 2 * 8; the other from the outside: 8 * 13 covers 100.
            [[2, [4, 2, 8]], [4, [8, 13]]],
        ]

    def test_stages_move_and_splits_are_followed(self, tmp_path):
        assert trace_of(
            tmp_path,
            ["CHW", 1, "local"],
            ["SP", 1, 0, 48, [3, 2, 4], 1],
            ["FSP", 2, 0, 1, 2],
            ["CA", 1, 2, 1],
            ["CHR", 0, "shared", [1]],
            ["FFSP", 1, 0, [1], 2, 1],
            ["FFSP", 1, 2, [1, 1], 0, 0],
            ["AN", 1, 1, 6],
            ["SA", 1, 0, 8, 1],
        ) == [
            [
                ["GetSBlock", [], ["stage1", "main"], ["b0"]],
                ["CacheWrite", ["b0", []], [0, "local"], ["b1"]],
                # The cache computes, now stage 1; what copies has become stage 2.
                ["GetLoops", ["b0"], [], ["l2"]],
                ["SamplePerfectTile", ["l2"], [4, 64], ["v3", "v4", "v5", "v6"]],
                ["Split", ["l2", "v3", "v4", "v5", "v6"], [1, 0], ["l7", "l8", "l9", "l10"]],
                ["GetLoops", ["b1"], [], ["l11"]],
                # Two parts of three: the inner ones as one, 2 * 4.
                ["Split", ["l11", "None", 3, 8], [1, 0], ["l12", "l13", "l14"]],
                ["ComputeAt", ["b0", "l13"], [1, -1], []],
                ["GetSBlock", [], ["stage0", "main"], ["b15"]],
                ["CacheRead", ["b15", ["b0"]], [0, "shared"], ["b16"]],
                ["GetLoops", ["b16"], [], ["l17", "l20"]],
                ["Split", ["l17", "None", 4], [1, 0], ["l18", "l19"]],
                ["Split", ["l20", 9, "None"], [1, 0], ["l21", "l22"]],
                ["Bind", ["l19"], ["threadIdx.x"], []],
                ["StorageAlign", ["b16"], [0, 0, 8, 1], []],
            ],
            [[3, [2, 3, 2, 4]]],
        ]

    def test_reductions_in_parts(self, tmp_path):
        assert trace_of(
            tmp_path,
            ["SP", 1, 1, 64, [8], 1],
            ["RF", 1, 2, 1],
            ["RE", 1, [0, 2, 1]],
            ["CI", 0],
            ["CR", 0],
            ["CA", 1, 2, 0],
        ) == [
            [
                ["GetSBlock", [], ["stage1", "main"], ["b0"]],
                ["GetLoops", ["b0"], [], ["l1", "l2"]],
                ["SamplePerfectTile", ["l2"], [2, 64], ["v3", "v4"]],
                ["Split", ["l2", "v3", "v4"], [1, 0], ["l5", "l6"]],
                ["RFactor", ["l6"], [1], ["b7"]],
                ["GetLoops", ["b7"], [], ["l8", "l9", "l10"]],
                ["Reorder", ["l8", "l10", "l9"], [], []],
                ["GetSBlock", [], ["stage0", "main"], ["b11"]],
                ["ComputeInline", ["b11"], [], []],
                ["ComputeRoot", ["b11"], [], []],
                ["GetLoops", ["b0"], [], ["l12"]],
                ["ComputeAt", ["b7", "l12"], [1, -1], []],
            ],
            [[3 - 1, [8, 8]]],
        ]

    def test_an_extent_that_is_not_given_follows_or_is_zero(self, tmp_path):
        _, decisions = trace_of(
            tmp_path, ["SP", 0, 0, 12, [4], 1], ["SP", 0, 1, 0, [2], 1], ["SP", 0, 3, 0, [5], 1]
        )
        assert [factors for _, factors in decisions] == [[3, 4], [2, 2], [0, 5]]

    def test_programs_of_one_sketch_keep_their_own_numbers(self, tmp_path):
        lines = [
            line([["SP", 0, 0, 2 * n, [n], 1], ["PR", 0, 1, f"auto_unroll_max_step${n}"]])
            for n in range(1, 40)
        ]
        found, _ = read(tmp_path, lines)
        for n, measurement in enumerate(found, 1):
            instructions, decisions = json.loads(measurement.program.trace)
            assert decisions == [[2, [2, n]]]
            assert instructions[-1][1][1] == n

    def test_the_loop_nest_is_known(self):
        steps = [
            ["SP", 0, 0, 64, [2, 8], 1],
            ["FU", 0, [0, 1]],
            ["AN", 0, 0, 5],
            ["AN", 0, 1, 2],
            ["CA", 1, 0, 0],
        ]
        numbers = np.array([[64, 2, 8], [48, 4, 4]], np.float64)
        assert ansor_steps.take_numbers(steps) == [64, 2, 8]
        nest = ansor_steps.Interpreter(numbers)
        nest.run(steps)
        outer, inner = nest.stages[0].loops
        assert (outer.annotation, inner.annotation) == ("blockIdx.x", "vectorize")
        assert (outer.extent.tolist(), inner.extent.tolist()) == ([8, 12], [8, 4])
        assert nest.stages[1].at == (nest.stages[0], outer)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([["SP", 0, 0, 64, [8], 1], ["SP", 0, 1, 9, [3], 1]], "split of another extent"),
        ([["SP", 0, 0, 64, [0], 1]], "split by a factor below one"),
        ([["SP", 0, 0, 64, [-8], 1]], "split by a factor below one"),
        ([["SP", 0, 0, -64, [8], 1]], "split of a negative or boundless extent"),
        ([["SP", 0, 0, 64, [2**40, 2**40], 1]], "extent beyond all bounds"),
        ([["SP", 0, 0, 64, [], 1]], "SP of no parts or too many"),
        ([["SP", 0, 0, 64, [2.0], 1]], "split by what is no whole number"),
        ([["SP", 0, 0, 64, [True], 1]], "split by what is no whole number"),
        ([["SP", 0, 0, 64, ["2"], 1]], "split by what is no whole number"),
        ([["SP", 0, 0, 64, 2, 1]], "steps of another form"),
        ([["SP", 0, 0, 64]], "steps of another form"),
        ([[]], "steps of another form"),
        ("ab", "steps of another form"),
        ([["SP", 600, 0, 64, [2], 1]], "stage that does not exist"),
        ([["AN", 0, -1, 2]], "iterator that does not exist"),
        ([["RE", 0, [1, 0]], ["AN", 0, 2, 2]], "iterator that does not exist"),
        ([["AN", 0, 3, 2], ["RE", 0, [1, 0]]], "RE that is no permutation of the iterators"),
        ([["RE", 0, [0, 2]]], "RE that is no permutation of the iterators"),
        ([["FU", 0, [0, 2]]], "FU of iterators that are not consecutive"),
        ([["FU", 0, []]], "list of ids that is none"),
        ([["FSP", 0, 0, 0, 1]], "split that follows no split"),
        ([["SP", 0, 0, 8, [2], 1], ["FSP", 1, 0, 0, 3]], "FSP of more parts than its split has"),
        (
            [["SP", 0, 0, 8, [2], 1], ["FFSP", 1, 0, [0], 1, 1]],
            "FFSP of a level that its splits have not",
        ),
        ([["SP", 0, 0, 8, [2], 1], ["FFSP", 1, 0, ["0"], 0, 1]], "split that follows no split"),
        ([["AN", 0, 0, 12]], "annotation of an unknown kind"),
        ([["AN", 0, 0]], "AN with other arguments"),
        ([["AN", 0, True, 2]], "AN with other arguments"),
        ([["CI", 0], ["AN", 0, 0, 2]], "step on a stage that was inlined"),
        ([["CA", 0, 0, 0]], "CA of a stage at itself"),
        ([["PR", 0, 0, "auto_unroll_max_step$"]], "PR of an unknown form"),
        ([["PR", 0, 0, "auto_unroll_max_step$N"]], "PR of an unknown form"),
        ([["PR", 0, 0, 'a"b']], "PR of an unknown form"),
        ([["CHR", 0, 'sha"red', [1]]], "memory scope that is none"),
        ([["XX", 0]], "step of an unknown kind"),
        ([[["SP"], 0]], "step of an unknown kind"),
    ],
)
def test_steps_that_do_not_interpret(tmp_path, steps, reason):
    found, skipped = read(tmp_path, [line([["AN", 0, 0, 3]]), line(steps)])
    assert len(found) == 1
    assert skipped == {reason: 1}


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
        (lambda r: r["i"][0].__setitem__(1, "metal"), "task with a target of kind 'metal'"),
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

    def test_batches_lose_no_count(self, tmp_path, monkeypatch):
        monkeypatch.setattr(ansor, "BATCH", 10)
        monkeypatch.setattr("hetfeat.dataset.importers.files.CHUNK_BYTES", 3000)
        lines = ansor_lines.log(60, 2)
        lines[5::7] = [b"torn"] * len(lines[5::7])
        found, skipped = read(tmp_path, lines)
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
        from hetfeat.workloads.tvm import as_target

        as_target(profile_of("x", *given).target)


VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 511, 512, 2**31, 2**63, 2**70, 10**400, 0.5, 1e308, 1e-320),
    *(float("nan"), float("-inf"), "", "x", "SP", "\ud800", "\0", "9" * 5000, "a$b", [], {}, [[]]),
    {"i": []},
]


def mutated(record: Any, rng: random.Random) -> bytes:
    """A line with something wrong, or perhaps not."""
    if rng.random() < 0.6:
        _change(record, rng)
    if rng.random() < 0.05:
        return b"[" * rng.randrange(5000) + json.dumps(record).encode()
    data = bytearray(json.dumps(record, ensure_ascii=rng.random() < 0.5).encode("utf-8", "replace"))
    for _ in range(rng.choice((0, 0, 0, 0, 0, 1, 3))):
        at = rng.randrange(len(data))
        data[at : at + rng.choice((0, 1, 9))] = rng.randbytes(rng.choice((0, 1, 4)))
    if rng.random() < 0.1:
        del data[rng.randrange(len(data)) :]
    return bytes(data).replace(b"\n", b"")


def _change(node: Any, rng: random.Random) -> None:
    """Replaces, removes, repeats or nudges something at a random depth."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    if not keys:
        return
    key = rng.choice(keys)
    child = node[key]
    if isinstance(child, list | dict) and child and rng.random() < 0.9:
        _change(child, rng)
    elif rng.random() < 0.2:
        del node[key]
    elif type(child) is int and rng.random() < 0.5:
        node[key] = child + rng.choice((-1, 1, 2))
    elif isinstance(node, list) and rng.random() < 0.2:
        node.insert(key, child)
    else:
        node[key] = rng.choice(VALUES)


@settings(max_examples=45, deadline=None, phases=[Phase.generate])
@given(seed=st.integers(0, 2**64))
def test_ten_thousand_damaged_lines_are_all_counted(tmp_path_factory, seed):
    rng = random.Random(seed)
    makers = (ansor_lines.on_cpu, ansor_lines.on_gpu)
    lines = [mutated(rng.choice(makers)(64, 32, 128, rng), rng) for _ in range(240)]
    whole = [json.dumps(ansor_lines.on_cpu(32, 16, 8, rng)).encode() for _ in range(3)]
    mixed = lines + whole
    rng.shuffle(mixed)
    found, skipped = read(tmp_path_factory.mktemp("fuzz"), mixed)
    entries = [entry for entry in mixed if entry.strip() and not entry.lstrip().startswith(b"#")]
    assert len(found) + skipped.total() == len(entries)
    hashes = [measurement.program.task.hash for measurement in found]
    assert hashes.count(task_of('["matmul_layer", 32, 16, 8]', "").hash) >= 3
    for measurement in found:  # which `Measurement` itself has checked for its latencies
        instructions, decisions = json.loads(measurement.program.trace)
        assert all(instructions[at][0] == "SamplePerfectTile" for at, _ in decisions)
        assert all(factor >= 1 for _, factors in decisions for factor in factors[1:])


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(seed=st.integers(0, 2**64))
def test_damaged_lines_leave_a_sound_store(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("fuzz")
    rng = random.Random(seed)
    lines = [mutated(ansor_lines.on_cpu(64, 32, 128, rng), rng) for _ in range(200)]
    (folder / "log").write_bytes(b"\n".join([*ansor_lines.log(1, seed), *lines]))
    counts = import_records("ansor", "a", [folder / "log"], folder / "store")
    entries = [entry for entry in lines if entry.strip() and not entry.lstrip().startswith(b"#")]
    assert counts.read == len(entries) + 1
    stored = list(from_table(RecordStore.open(folder / "store").read()))
    assert len(stored) == counts.kept + counts.failed
    assert len({measurement.program.key for measurement in stored}) == len(stored)
    again = import_records("ansor", "a", [folder / "log"], folder / "store")
    assert (again.kept, again.failed) == (0, 0)
