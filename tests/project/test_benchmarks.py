"""Parts of the benchmarks whose figures the documents quote, by hand or on small data."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import stores

from hetfeat.dataset.splits import split_examples
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.records import Measurement, Program, Task

# At the end: nothing of the project is to be found in another place.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import everywhere
import failures
import figures
import final_figures
import loop_nests
import machine_code
import model_baselines
import model_losses
import quantised_everywhere
import recorded_devices

LEFT, RIGHT, OUT = [64, 16], [16, 32], [64, 32]
MATMUL = [
    ["GetLoops", ["b0"], [], ["i", "j", "k"]],
    ["SamplePerfectTile", ["i"], [2, 64], ["v0", "v1"]],
    ["SamplePerfectTile", ["j"], [3, 32], ["v2", "v3", "v4"]],
    ["SamplePerfectTile", ["k"], [2, 16], ["v5", "v6"]],
    ["Split", ["i", "v0", "v1"], [1], ["i0", "i1"]],
    ["Split", ["j", "v2", "v3", "v4"], [1], ["j0", "j1", "j2"]],
    ["Split", ["k", "v5", "v6"], [1], ["k0", "k1"]],
    ["Reorder", ["i0", "j0", "j1", "k0", "i1", "k1", "j2"], [], []],
    ["Parallel", ["i0"], [], []],
    ["Vectorize", ["j2"], [], []],
    ["Annotate", ["i0", 512], ["pragma_auto_unroll_max_step"], []],
    ["ComputeInline", ["b1"], [], []],
]
TILES = [[1, [8, 8]], [2, [4, 1, 8]], [3, [2, 8]]]
NEST = [
    # extent, iterations outside and inside, floats touched of the left, the right and the output
    (8, 1, 32768, 64 * 16, 16 * 32, 64 * 32),
    (4, 8, 4096, 8 * 16, 16 * 32, 8 * 32),
    (2, 32, 1024, 8 * 16, 16 * 8, 8 * 8),
    (8, 64, 512, 8 * 8, 8 * 8, 8 * 8),
    (8, 512, 64, 8, 8 * 8, 8),
    (8, 4096, 8, 1, 8, 8),
]
"""64 x 32 outputs, 16 products each, in tiles of 8 x 8, by hand; j1 has one round: no loop."""


class TestLoopNests:
    def test_a_tiled_product_by_hand(self):
        nest = loop_nests.Nest(json.dumps([MATMUL, TILES]), OUT)
        levels = nest.levels(nest.blocks["b0"], [LEFT, RIGHT, OUT])
        found = [
            (level.loop.extent, level.outside, level.inside, *level.touched) for level in levels
        ]
        assert found == [(*counts[:3], *(4 * n for n in counts[3:])) for counts in NEST]
        assert [level.loop.kind for level in levels] == [1, 0, 0, 0, 0, 2]
        assert nest.blocks["b0"].unroll == 512

    def test_its_rows_by_hand(self):
        """Arguments from the smallest; the inlined block has no row."""
        blocks, loops = loop_nests.rows_of(json.dumps([MATMUL, TILES]), [LEFT, RIGHT, OUT])
        assert len(loops) == len(NEST)
        extent, outside, inside, left, right, out = NEST[0]
        touched = [4 * right, 4 * left, 4 * out]
        total = sum(touched)
        sizes = [extent, outside, inside, total, total / inside, *touched, 512, 0]
        kinds = [0, 1, 0, 0, 0, 0, 0]
        row = [*kinds, *np.log2(1 + np.array(sizes))]
        assert loops[0] == pytest.approx(row + [0.0] * (loop_nests.WIDTH - len(row)))
        (block,) = blocks
        by_kind = [8, 8, 0, 0, 0, 0]  # parallel, vectorised
        whole = [32768, 512, 6, total]
        innermost = NEST[::-1]
        extents = [level[0] for level in innermost]
        bytes_of = [4 * sum(level[3:]) for level in innermost]
        padding = [0] * (loop_nests.LEVELS - len(NEST))
        expected = [*by_kind, *whole, *extents, *padding, *bytes_of, *padding]
        assert block == pytest.approx(np.log2(1 + np.array(expected)).tolist())

    def test_a_block_that_nobody_tiled_has_the_extents_of_the_output(self):
        trace = [["GetLoops", ["b0"], [], ["i", "j"]]]
        nest = loop_nests.Nest(json.dumps([trace, []]), OUT)
        levels = nest.levels(nest.blocks["b0"], [OUT])
        assert [level.loop.extent for level in levels] == [64, 32]
        assert [level.touched for level in levels] == [[4 * 64 * 32], [4 * 32]]


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    examples = assemble(
        stores.make_store(tmp_path_factory.mktemp("records") / "s", tasks=16)
    ).examples
    split = split_examples(examples, "by_task", 0)
    return [examples.take(side) for side in (split.train, split.valid, split.test)]


@pytest.mark.slow
class TestTunedBaselines:
    def test_the_best_of_so_many_trials_is_trained_again(self, sides):
        tried = []

        class Known(model_baselines.TvmModel):
            """Knows a column that latencies follow from; the less noise, the better."""

            def learn(self, groups):
                tried.append(self.settings["noise"])

            def score(self, features):
                noise = np.random.default_rng(0).normal(size=len(features))
                learnt = [-rows[:, stores.LEARNABLE[2]].sum() for rows in features]
                return np.array(learnt) + self.settings["noise"] * noise

            @staticmethod
            def proposed(trial):
                return {"noise": trial.suggest_float("noise", 0.0, 100.0)}

        tuned = model_baselines.Tuned(Known, 0)
        tuned.fit(sides[0], sides[1])
        assert len(tried) == tuned.trials + 1
        assert tuned.best.settings["noise"] == tried[-1] < 20 < tried[0]
        assert len(tuned.predict(sides[2].batch)) == len(sides[2])

    @pytest.mark.tvm
    @pytest.mark.parametrize("kind", model_baselines.TVM.values())
    def test_what_is_tuned_is_what_tvm_has(self, kind, sides, monkeypatch):
        monkeypatch.setattr(kind, "shipped", {})
        tuned = model_baselines.Tuned(kind, 0, trials=1)
        tuned.fit(sides[0], sides[1])
        assert tuned.best.settings.items() <= held(tuned.best).items()

    @pytest.mark.tvm
    @pytest.mark.parametrize("kind", model_baselines.TVM.values())
    def test_the_first_trial_is_as_shipped(self, kind, sides):
        tuned = model_baselines.Tuned(kind, 0, trials=1)
        tuned.fit(sides[0], sides[1])
        as_it_is = kind(0)
        as_it_is.fit(sides[0], sides[1])
        assert tuned.best.settings == kind.shipped
        assert kind.shipped.items() <= held(as_it_is).items()


def held(model: model_baselines.TvmModel) -> dict:
    """Hyperparameters as the trained model of TVM's itself has them."""
    if isinstance(model, model_baselines.TvmXgb):
        rounds = model.model.early_stopping_rounds
        return model.model.config._asdict() | {"early_stopping_rounds": rounds}
    network = model.trainer.state.model
    return vars(model.trainer) | {
        "hidden_dim": network.decoder.in_features,
        "use_norm": type(network.norm).__name__ == "BatchNorm1d",
        "use_sigmoid": type(network.sigmoid).__name__ == "Sigmoid",
    }


class TestFailures:
    def test_each_variant_is_judged_on_the_same_failures(self, tmp_path):
        store = stores.make_store(tmp_path / "s", per_task=24)

        def figures(variant: str) -> dict:
            cell = failures.models.Cell("xgb", "within_task", 0, "", variant, "quick", {})
            return failures.figures_of(cell, store)

        found = [figures(variant) for variant in failures.VARIANTS]
        assert len({each["failed"] for each in found}) == 1
        assert len({each["rmse"] for each in found}) == 3

    def test_failures_in_pairs_are_the_slowest(self, tmp_path):
        examples = failures.assemble(stores.make_store(tmp_path / "s")).examples
        failed = np.isnan(examples.latency_s)
        changed = failures.in_pairs(examples).latency_s
        assert 0 < failed.sum() == len(examples) - len(failures.left_out(examples))
        assert changed[failed].min() > changed[~failed].max()


class TestModelLosses:
    def variants(self, model: str, *groups: str) -> list:
        return [v.parameters or v.fold for v in model_losses.variants(model, groups)]

    def test_networks_are_measured_with_each_loss_that_they_have(self):
        for name in ("mlp", "attention"):
            assert self.variants(name, *model_losses.GROUPS) == [
                "none", {"point_weight": 0.0}, {"point_weight": 1.0}, {"lambda_rank": True},
            ]  # fmt: skip

    def test_trees_have_no_lambda_rank_and_nothing_twice(self):
        found = self.variants("xgb", "loss", "folds")
        assert found[:4] == ["none", *({"point_weight": share} for share in (0.0, 0.5, 1.0))]
        assert len(found) == 8
        assert {"max_depth": 4} in self.variants("xgb", "trees")
        assert {"max_depth": 4} not in self.variants("lgbm", "trees")

    def test_every_variant_becomes_cells_of_one_file(self, monkeypatch, tmp_path):
        asked = []
        monkeypatch.setattr(model_losses.models, "run_missing", lambda g, _: asked.append(vars(g)))
        out = tmp_path / "out"
        command = ["--records", "r", "--out", str(out), "--models", "mlp,xgb", "--only", "loss"]
        monkeypatch.setattr(sys, "argv", ["model_losses.py", *command])
        model_losses.main()
        assert [(each["models"], each["settings"]) for each in asked][2:5] == [
            ("mlp", '{"point_weight": 1.0}'),
            ("mlp", '{"lambda_rank": true}'),
            ("xgb", "{}"),
        ]
        assert {each["out"] for each in asked} == {out}

    def test_a_fold_is_what_the_model_reads(self, tmp_path):
        store = stores.make_store(tmp_path / "s")

        def pca(fold: str) -> float:
            cell = model_losses.models.Cell("xgb", "by_task", 0, "", fold, "quick", {})
            return model_losses.figures_of(cell, store)["pca"]

        assert pca("no store columns") < pca("none") - 0.1


def test_recorded_spaces_are_read_as_programs_with_their_devices(tmp_path):
    store = RecordStore.create(tmp_path / "s")
    task = Task("1", "gemm", ((8,),), "float32", 0.0)
    for name, tile_s in (("slow", 2.0), ("fast", 1.0)):
        store.add_device(stores.profile(name, threads=2 if name == "slow" else 4))
        programs = [Program(task, json.dumps({"unroll": 1, "tile": 2**i})) for i in range(5)]
        store.append(
            Measurement(program, name, (tile_s * 2.0**i,), None, 0.0, "kernel tuner")
            for i, program in enumerate(programs)
        )
    read = recorded_devices.examples_of(store, seed=0)
    assert len(read) == 10
    tiles = read.batch.trace[:, 0]  # the parameters by name: tile, unroll
    assert (read.latency_s == tiles * np.where(read.device == "slow", 2, 1)).all()
    threads = read.batch.hardware[:, 0]
    assert (threads == np.where(read.device == "slow", 1, 2)).all()


def test_programs_of_a_target_are_measured_or_tested(tmp_path):
    import transfer_ways

    examples = assemble(stores.make_store(tmp_path / "s", ("a",), tasks=3, per_task=12)).examples
    target = transfer_ways.target_of(examples, 0, most=8, tested=3)  # of each task one failed
    assert (len(target.measurable), len(target.test)) == (3 * 8, 3 * 3)
    assert not set(target.measurable.program.tolist()) & set(target.test.program.tolist())
    assert len(target.first(4).measured) == 3 * 4


def test_parts_that_end_a_training_hold_whole_tasks():
    import bags

    units = np.repeat(np.arange(40), 5)
    part = bags.parts_of(units, 4, 0)
    assert np.bincount(part).tolist() == [50] * 4
    assert all(len(set(part[units == unit])) == 1 for unit in range(40))


@pytest.mark.tvm
def test_rounds_are_compared_task_by_task():
    import rounds

    theirs = {"search_s": 8.0, "spent_s": 16.0, "latencies_s": [4.0, 2.0, None]}
    lines = [
        {
            "known_s": 4.0,
            "ways": {
                rounds.TVM: theirs,
                **{
                    name: {"search_s": None, "spent_s": 1.0, "latencies_s": [fastest, 3.0]}
                    for name in rounds.OURS
                },
            },
        }
        for fastest in (1.0, 4.0)
    ]
    _, _, tvms, *ours = rounds.summary(lines).splitlines()
    assert tvms.endswith(
        "| 8.00 | 16.00 | 1.000 (1.000 to 1.000) | 1.000 (1.000 to 1.000) "
        "| 0.500 (0.500 to 0.500) | 4 of 6 |"
    )
    # sqrt(0.5 * 1.5), sqrt(2 / 3 * 3.5 / 3), sqrt(0.25 * 0.75)
    assert ours[0].endswith(
        "|  | 1.00 | 0.866 (0.500 to 1.500) | 0.882 (0.667 to 1.167) "
        "| 0.433 (0.250 to 0.750) | 4 of 4 |"
    )


def test_what_is_chosen_on_shares_no_task_with_the_final_networks():
    from hetfeat.dataset.packaged import packaged_store
    from hetfeat.dataset.splits import mask_unseen

    store = RecordStore.open(packaged_store())
    devices = ["amd-epyc-znver4-avx2-2t", "amd-epyc-znver3-avx2-2t"]
    examples, networks = assemble(store, devices=devices).examples, store.networks()
    kept = final_figures.without_final(examples, networks)
    final = {task for name in final_figures.FINAL for task in networks[name]}
    assert 0 < len(kept) < len(examples)
    own = examples.take(np.flatnonzero([task in final for task in examples.task.tolist()]))
    assert len(own) and mask_unseen(own, kept).all()
    assert not set(kept.task.tolist()) & final


def test_a_look_at_the_final_figures_is_shown_with_its_intervals():
    told = {"pca": 0.8, "pca.low": 0.7, "pca.high": 0.9, "top1": 0.5}
    assert final_figures.cell(told, "pca") == "0.800 (0.700 to 0.900)"
    assert final_figures.cell(told, "top1") == "0.500"
    assert final_figures.cell(told, "x.top5") == "no task of 256"


def test_a_table_of_machines_names_the_fastest_peer_that_counts():
    def line(machine, way, latency_ms, restricted_to=None, leaked=0):
        peers_ms = {"torch": 12.0, "openvino": 10.0, "onnxruntime": 8.0, "torch_compile": None}
        report = {"latency_ms": latency_ms, "peers_ms": peers_ms, "leaked_records": leaked}
        return {
            "machine": {"profile": machine, "restricted_to": restricted_to},
            "network": "resnet50",
            "way": way,
            "report": report | {"command_s": 59.6},
        }

    lines = [
        line("zen3", "one-shot", 12.0),
        line("zen5-avx2", "quick", 9.0, "avx2"),  # ONNX Runtime keeps its AVX-512
        line("zen3", "standard", 7.6, None, 3),
    ]
    assert everywhere.table(lines).splitlines()[2:] == [
        "| zen3 | resnet50 | 1.50 (60 s) | not run | 0.95 (60 s, 3 leaked) |",
        "| zen5-avx2 | resnet50 | not run | 0.90 (60 s) | not run |",
    ]


def test_seeds_of_one_day_stand_together_and_older_ones_are_gone():
    lines = [
        {"seed": 2, "unix_s": 0},
        {"unix_s": 90_000},
        {"seed": 1, "unix_s": 100_000},
        {"seed": 1, "unix_s": 120_000},
    ]
    assert figures.newest_runs(lines) == [lines[1], lines[3]]


LOOP = """main:
\tvxorps\t%xmm0, %xmm0, %xmm0
.LBB0_1:
\tvmovups\t(%rsi), %ymm8
\tvfmadd231ps\t(%rdi){1to8}, %ymm8, %ymm0
\tvfmadd231ps\t%ymm9, %ymm8, %ymm1
\tvmulss\t%xmm2, %xmm3, %xmm3
\tvmovups\t%ymm1, 32(%rsp)
\taddq\t$32, %rsi
\tjne\t.LBB0_1
.LBB0_2:
\tvmulps\t%zmm2, %zmm3, %zmm3
\tretq
"""


def test_machine_code_is_counted_in_all_and_in_the_loop_that_multiplies_most():
    found = dict(zip(machine_code.NAMES, machine_code.columns_of(LOOP), strict=True))
    counts = {name: round(np.expm1(value)) for name, value in found.items() if ": " in name}
    assert counts["in all: instructions"] == 10
    assert counts["in all: products"] == 4
    assert counts["hot: products"] == 3  # three in the loop, though the block after it is wider
    assert counts["hot: by the stack"] == 1
    assert counts["hot: loads"] == 2 and counts["hot: stores"] == 1
    assert counts["hot: broadcast loads"] == 1
    assert found["hot: registers summed in"] == 3
    assert found["hot: lanes a product"] == pytest.approx((8 + 8 + 1) / 3)
    assert found["hot: share of all products"] == 0.75
    assert (found["blocks"], found["blocks that repeat themselves"]) == (3, 1)


def test_a_table_of_quantised_networks_has_ratios_in_turns():
    def engine(error, *turns_ms):
        return {"median_ms": turns_ms[1], "turns_ms": turns_ms, "error": error}

    line = {
        "machine": {"profile": "zen4", "restricted_to": None},
        "network": "resnet50",
        "way": "quick",
        "engines": {
            "hetfeat, float32": engine(None, 40.0, 50.0, 30.0),
            "hetfeat, int8": engine(None, 20.0, 20.0, 21.0),
            "onnxruntime, int8": engine(0.0, 25.0, 40.0, 42.0),
            "openvino, int8": None,
        },
    }
    assert quantised_everywhere.table([line]).splitlines()[2:] == [
        "| zen4 | resnet50 | quick | 20.00 | 0.50 (0.40 to 0.70) | 0.50 (0.50 to 0.80), exact "
        "| does not run |"
    ]
    line["engines"]["openvino, int8"] = engine(0.125, 10.0, 10.0, 10.5)
    assert quantised_everywhere.table([line]).endswith("| 2.00 (2.00 to 2.00), off by 0.12 |")
    line["machine"]["restricted_to"] = "avx2"
    assert "| not kept to it | 2.00 " in quantised_everywhere.table([line])


def test_calibration_rows_are_like_the_inputs_of_a_network():
    tokens, pixels = np.array([[3, 7]]), np.zeros((1, 3, 4, 4), np.float32)
    drawn_tokens, drawn_pixels = quantised_everywhere.calibration_rows([tokens, pixels], 6, seed=1)
    assert drawn_tokens.shape == (6, 2) and drawn_tokens.dtype == tokens.dtype
    assert drawn_tokens.min() >= 3 and drawn_tokens.max() <= 7
    assert drawn_pixels.shape == (6, 3, 4, 4) and drawn_pixels.dtype == np.float32
