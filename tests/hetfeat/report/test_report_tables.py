"""The papers' tables from runs made up by hand: what each cell must be."""

import csv
import dataclasses
import math

import pytest
import report_runs as made
import yaml

from hetfeat.devices.profile import DeviceProfile
from hetfeat.report import deployments, epochs, operators, paper, searches, trainings
from hetfeat.report.cells import Cell, Row, Table, quotient
from hetfeat.report.files import CELL_COLUMNS, as_data, write_csv
from hetfeat.report.scope import DEVICE, PROFILE, UNKNOWN, Device, devices_of

HERE = Device(made.HERE, "cpu", PROFILE)


def row(table: Table, *keys: str) -> dict[str, Cell]:
    (found,) = [r for r in table.rows if set(keys) <= set(r.keys)]
    return dict(zip(table.measures, found.cells, strict=True))


class TestTraining:
    def test_seeds_are_averaged_and_the_newest_of_a_seed_counts(self):
        runs = [
            made.training(1, seed=0, train_s=99.0),
            made.training(2, seed=0, train_s=4.0),
            made.training(3, seed=1, train_s=8.0),
            made.training(4, seed=0, pruned=True, records=600, train_s=3.0),
        ]
        cells = row(trainings.training_table(runs, made.scope()), "CPU", "xgb", "by_task")
        base = cells["s, baseline"]
        assert (base.value, base.low, base.high, base.seeds) == (6.0, 4.0, 8.0, 2)
        assert base.runs == ("train2", "train3")
        assert base.date == "2026-11-23"
        assert base.paper == 1265
        assert base.ratio == pytest.approx(6 / 1265)
        assert cells["records kept"].value == pytest.approx(0.6)
        assert cells["records kept"].paper == pytest.approx(6.8 / 11)
        assert cells["s, pruned / baseline"].value == pytest.approx(0.5)
        assert cells["s, pruned / baseline"].paper == pytest.approx(780 / 1265)

    @pytest.mark.parametrize(
        "other",
        [
            {"digest": "e" * 64},
            {"effort": "quick"},
            {"split": "within_task"},
            {"holdout": "resnet50"},
            {"changed": "max_depth=3"},
        ],
    )
    def test_runs_of_something_else_are_left_out(self, other):
        table = trainings.training_table([made.training(1, train_s=5.0, **other)], made.scope())
        cell = row(table, "CPU", "xgb", "by_task")["s, baseline"]
        assert (cell.value, cell.runs, cell.seeds) == (None, (), 0)
        assert cell.paper == 1265

    def test_other_feature_columns_and_other_commands_are_left_out(self):
        run = made.training(1, train_s=5.0)
        others = [
            dataclasses.replace(run, tags={**run.tags, "feature_version": "1"}),
            dataclasses.replace(run, command="hpo"),
        ]
        table = trainings.training_table(others, made.scope())
        assert row(table, "CPU", "xgb", "by_task")["s, baseline"].value is None

    def test_nothing_run_is_said_and_nothing_filled_in(self):
        table = trainings.training_table([], made.scope())
        assert len(table.rows) == 18
        assert all(cell.value is None for _, _, cell in table.cells())
        assert table.verdict == "108 of 108 cells were not run."

    def test_the_verdict_follows_the_figures(self):
        def verdict(pruned_s: float) -> str:
            runs = [
                made.training(1, train_s=10.0),
                made.training(2, pruned=True, records=500, train_s=pruned_s),
            ]
            return trainings.training_table(runs, made.scope()).verdict

        assert "takes 0.90 of the time (median of 1), the paper's 0.62: ours falls short." in (
            verdict(9.0)
        )
        assert "takes 0.30 of the time (median of 1), the paper's 0.62." in verdict(3.0)

    def test_by_target_takes_the_devices_held_out(self):
        runs = [
            made.training(1, split="by_target", holdout="zen4-avx2-2t", train_s=3.0),
            made.training(2, split="by_target", holdout="someone-else", train_s=50.0),
        ]
        table = trainings.training_table(runs, made.scope())
        assert row(table, "CPU", "xgb", "by_target")["s, baseline"].runs == ("train1",)
        alone = made.scope(devices=(made.HERE,))
        assert alone.holdouts("cpu") == ()
        table = trainings.training_table(runs, alone)
        assert row(table, "CPU", "xgb", "by_target")["s, baseline"].value is None


class TestAccuracy:
    def test_each_device_has_its_own_figure(self):
        runs = [
            made.training(1, pca=0.80, **{f"pca_on.{made.HERE}": 0.82, "pca_on.zen4-avx2-2t": 0.7}),
            made.training(2, pruned=True, pca=0.79),
            made.training(3, split="by_target", holdout="zen4-avx2-2t", pca=0.9),
        ]
        table = trainings.accuracy_table(runs, made.scope())
        here = row(table, made.HERE, "xgb", "by_task")
        assert here["PCA, baseline"].value == 0.82
        assert here["PCA, pruned"].value is None  # of two devices together: not this one's
        assert row(table, "zen4-avx2-2t", "xgb", "by_task")["PCA, baseline"].value == 0.7
        assert row(table, "zen4-avx2-2t", "xgb", "by_target")["PCA, baseline"].value == 0.9
        assert row(table, made.HERE, "xgb", "by_target")["PCA, baseline"].value is None

    def test_the_papers_figures_stand_beside_tensets_metric_alone(self):
        on_both = {f"pca_tenset_on.{made.HERE}": 0.83, "pca_tenset_on.zen4-avx2-2t": 0.7}
        table = trainings.accuracy_table([made.training(1, pca=0.9, **on_both)], made.scope())
        here = row(table, made.HERE, "xgb", "by_task")
        tenset = here["PCA as TenSet, baseline"]
        assert (tenset.value, tenset.paper) == (0.83, 0.8651)
        assert here["PCA, baseline"].paper is None
        gpu = row(table, "no GPU", "lgbm", "within_task")
        assert gpu["PCA as TenSet, pruned"].paper == 0.8953
        assert "below the paper's in 2 of 2 cells, by up to 0.165." in table.verdict

    def test_a_figure_has_its_interval_over_tasks(self):
        """Seeds share the tasks: two of them make it no narrower."""
        name = f"pca_on.{made.HERE}"
        runs = [
            made.training(seed, seed=seed, **{name: 0.8, f"{name}.low": low, f"{name}.high": 0.9})
            for seed, low in enumerate((0.7, 0.74))
        ]
        table = trainings.accuracy_table(runs, made.scope())
        cell = row(table, made.HERE, "xgb", "by_task")["PCA, baseline"]
        assert (cell.tasks_low, cell.tasks_high) == (pytest.approx(0.72), pytest.approx(0.9))
        table = trainings.accuracy_table([made.training(1, **{name: 0.8})], made.scope())
        old = row(table, made.HERE, "xgb", "by_task")["PCA, baseline"]
        assert (old.value, old.tasks_low) == (0.8, None)

    def test_tensets_metric_of_earlier_runs_is_not_shown(self):
        """It was a mean over tasks under the same name, and had no figure of each device."""
        run = dataclasses.replace(made.training(1, pca=0.9, pca_tenset=0.76), device=made.HERE)
        table = trainings.accuracy_table([run], made.scope(devices=(made.HERE,)))
        cells = row(table, made.HERE, "xgb", "by_task")
        assert (cells["PCA, baseline"].value, cells["PCA as TenSet, baseline"].value) == (0.9, None)

    def test_pruning_that_costs_is_said(self):
        name = f"pca_tenset_on.{made.HERE}"
        runs = [made.training(1, **{name: 0.9}), made.training(2, pruned=True, **{name: 0.85})]
        verdict = trainings.accuracy_table(runs, made.scope(devices=(made.HERE,))).verdict
        assert "below the paper's in 1 of 2 cells, by up to 0.011." in verdict
        assert (
            "Pruning costs 0.050 in the mean of 1, in the paper it costs 0.004: ours loses more."
            in verdict
        )


class TestDeployments:
    def test_time_to_tune_with_and_without(self):
        runs = [
            made.training(1),
            made.training(2, pruned=True),
            made.deployment(1, latency_ms=20.0, tuning_s=1000.0),
            made.deployment(2, effort="quick", source="train1", latency_ms=22.0, tuning_s=200.0),
            made.deployment(3, effort="quick", source="train2", latency_ms=1.0, tuning_s=1.0),
            made.deployment(4, search="random", latency_ms=1.0, tuning_s=1.0),
        ]
        runs[3].metrics["leaked_records"] = 7.0  # type: ignore[index]
        table = deployments.tuning_table(runs, made.scope(), HERE)
        cells = row(table, made.HERE, "resnet50")
        assert (cells["s, without"].value, cells["s, with"].value) == (1000.0, 200.0)
        assert cells["s, with / without"].value == pytest.approx(0.2)
        assert cells["s, with / without"].paper == pytest.approx(86 / 128)
        assert cells["ms, with / without"].value == pytest.approx(1.1)
        assert cells["ms, with"].paper == 12.12
        assert row(table, made.HERE, "inception_v3")["s, with"].value is None
        assert row(table, "no GPU", "inception_v3")["s, with"].paper == 191
        assert "takes 0.20 of the time (median of 1), the paper's 0.67." in table.verdict
        assert "slower in 1 of 1, by up to 10%." in table.verdict
        assert "In 1 the model had seen this device's own records" in table.verdict

    def test_inference_by_batch_and_by_what_the_model_learnt_from(self):
        batches = (1, 2, 4, 8)
        runs = [
            made.training(1),
            made.training(2, pruned=True),
            made.training(3, "mlp", digest="e" * 64),
            made.deployment(1, batches=batches, effort="quick", latency_ms=20.0, batch_8_ms=90.0),
            made.deployment(2, batches=batches, effort="quick", source="train1", latency_ms=18.0),
            made.deployment(3, batches=batches, effort="quick", source="train2", latency_ms=25.0),
            made.deployment(4, batches=batches, effort="quick", source="train3", latency_ms=1.0),
        ]
        table = deployments.inference_table(runs, made.scope(), HERE)
        cells = row(table, made.HERE, "xgb", "1")
        assert [cell.value for cell in cells.values()] == [20, 18, 25, 0.9, 1.25]
        assert [cell.paper for cell in cells.values()][:3] == [91.34, 282.2, 189.25]
        assert cells["pruned / without"].paper == pytest.approx(189.25 / 85.22)
        assert row(table, made.HERE, "xgb", "8")["ms, without"].value == 90.0
        assert row(table, made.HERE, "xgb", "8")["ms, without"].paper is None
        assert row(table, made.HERE, "mlp", "1")["ms, baseline"].value is None
        assert row(table, made.HERE, "mlp", "1")["ms, without"].value == 20.0
        assert "slower in 1 of 2 cells, by up to 25%." in table.verdict

    def test_a_transfer_leads_back_to_the_training(self):
        train = made.training(1)
        transfer = dataclasses.replace(train, id="t", command="transfer", source="train1")
        found = {run.id: run for run in (train, transfer)}
        deployed = made.deployment(1, source="t")
        assert deployments.source_of(deployed, made.scope(), found) == deployments.Source(
            "xgb", False
        )
        around = {"t": dataclasses.replace(transfer, source="t")}
        assert deployments.source_of(deployed, made.scope(), around) is None

    @pytest.mark.parametrize(
        "other",
        [
            {"digest": "e" * 64},
            {"effort": "quick"},
            {"split": "within_task"},
            {"split": "by_target", "holdout": made.HERE},
        ],
    )
    def test_a_model_of_another_training_does_not_count(self, other):
        found = {"train1": made.training(1, **other)}
        deployed = made.deployment(1, source="train1")
        assert deployments.source_of(deployed, made.scope(), found) is None

    def test_a_model_of_other_feature_columns_or_family_does_not_count(self):
        run, deployed = made.training(1), made.deployment(1, source="train1")
        for other in (
            dataclasses.replace(run, tags={**run.tags, "feature_version": "1"}),
            dataclasses.replace(run, params={**run.params, "resolved.family": "cpu-arm"}),
        ):
            assert deployments.source_of(deployed, made.scope(), {run.id: other}) is None


def test_gemm_searches_against_xgboost_and_rnn():
    runs = [
        made.search("gbfs", 8.0),
        made.search("gbfs", 10.0, seed=1),
        made.search("xgb", 12.0),
        made.search("rnn", 18.0),
        made.search("na2c", 1.0, budget=100),
    ]
    table = searches.gemm_table(runs, made.scope(), HERE, 484)
    assert row(table, "G-BFS")["best ms"].value == 9.0
    assert row(table, "G-BFS")["best ms"].seeds == 2
    assert row(table, "G-BFS")["explored, %"].value == pytest.approx(0.1)
    assert row(table, "G-BFS")["s"].value == 42.0
    assert row(table, "XGBoost")["saved by G-BFS, %"].value == pytest.approx(25.0)
    assert row(table, "XGBoost")["saved by G-BFS, %"].paper == 24
    assert row(table, "N-A2C")["best ms"].value is None  # of another budget
    assert row(table, "RNN")["saved by N-A2C, %"].value is None
    said = "G-BFS saves 25.0 % over XGBoost (paper: saves 24 %) and saves 50.0 % over RNN"
    assert said in table.verdict
    assert row(table, "G-BFS")["saved by G-BFS, %"].words == "-"
    assert row(table, "N-A2C")["best ms"].words == "not run"
    assert "short of the paper" not in table.verdict
    slower = searches.gemm_table([*runs[:2], made.search("xgb", 6.0)], made.scope(), HERE, 484)
    assert "G-BFS needs 50.0 % more than XGBoost" in slower.verdict
    assert "short of the paper" in slower.verdict


def test_errors_by_epoch():
    runs = [made.training(1, pca=0.8), made.training(2, "attention", pca=0.7)]
    histories = {"train1": [(0, 0.5), (1, 0.2), (2, 0.3)], "train2": [(0, 0.3), (1, 0.15)]}
    table = epochs.error_table(runs, made.scope(), histories)
    cells = row(table, "xgb", "baseline")
    assert [cell.value for cell in cells.values()] == [3, 0.2, 0.3, 0.8, *[None] * 4]
    assert cells["least RMSE"].paper == 0.08
    assert row(table, "mlp", "baseline")["least RMSE"].paper is None
    assert "is 0.75 of the better trees', the paper's 0.50: ours falls short." in table.verdict
    drawn = epochs.curves(runs, made.scope(), histories)
    assert [(curve.model, len(curve.points)) for curve in drawn] == [("xgb", 3), ("attention", 2)]


def test_operators_beside_the_papers():
    rows = [
        {
            "operator": "conv2d",
            "device": made.HERE,
            "kernel_shapes": 30,
            "max_gflop": 0.6,
            "tensor_shape": [1, 8, 8, 4],
            "mean_ms": 4.0,
            "records": 9,
            "failed": 0,
        },
        {
            "operator": "matmul",
            "device": made.HERE,
            "kernel_shapes": 2,
            "max_gflop": 0.1,
            "tensor_shape": [],
            "mean_ms": math.nan,
            "records": 9,
            "failed": 9,
        },
    ]
    rows.append({**rows[0], "operator": "Xgemm", "device": "gtx"})
    table = operators.operators_table(rows, {made.HERE: HERE})
    conv = row(table, "conv2d")
    assert conv["kernel shapes"].ratio == 0.5
    assert (conv["mean ms"].value, conv["mean ms"].paper) == (4.0, 19.11)
    assert row(table, "matmul")["mean ms"].words == "-"  # all of them failed
    assert row(table, "gtx", UNKNOWN)["mean ms"] == Cell(4.0)
    assert row(table, "T_add", "no CPU")["mean ms"].paper == 92.86
    assert row(table, "Conv2dOutput", "no GPU")["mean ms"].paper == 2.07
    assert "1 of the paper's 9 operators is in these records." in table.verdict


def test_the_papers_own_device_is_preferred():
    assert paper.device_for("table3", "aws-graviton2", "cpu") == "aws-graviton2"
    assert paper.device_for("table3", made.HERE, "cpu") == "intel-xeon-platinum-8272cl"
    assert paper.shown("table7", "nvidia-rtx-2080") == "RTX 2080"


def test_every_figure_of_the_papers_can_be_reached():
    """A misspelt key would silently show no figure."""
    numbers = yaml.safe_load((paper.Path(paper.__file__).parent / "paper.yaml").read_text())
    for name in ("table3", "table5", "table6", "table7", "table8"):
        table = numbers[name]
        assert set(table["reference"].values()) <= set(table["hardware"])
    for name, figures in (("table6", "pca"), ("table7", "ms"), ("table8", "networks")):
        assert set(numbers[name][figures]) <= set(numbers[name]["hardware"])
    for operator in numbers["table3"]["operators"].values():
        assert set(operator["ms"]) <= set(numbers["table3"]["hardware"])
    assert set(numbers["table3"]["same"].values()) <= set(numbers["table3"]["operators"])


def test_profiles_of_one_cpu_are_called_that():
    def profile(name: str, source: str, family: str = "cpu-x86") -> DeviceProfile:
        return DeviceProfile(name, family, {"kind": "llvm"}, 2, source=source)

    found = devices_of(
        {
            "a": profile("a", "probed on AMD EPYC, tvm 0.27"),
            "b": profile("b", "probed on AMD EPYC, tvm 0.28"),
            "c": profile("c", "probed on Intel Xeon, tvm 0.27"),
            "d": profile("d", "", "gpu-nvidia"),
            "e": profile("e", "", "gpu-nvidia"),
        }
    )
    assert [found[name].kind for name in "abcde"] == [PROFILE, PROFILE, DEVICE, DEVICE, DEVICE]
    assert found["d"].hardware == "gpu"


def test_a_quotient_needs_both():
    assert quotient(Cell(4.0, 2.0), Cell(2.0, 4.0)) == Cell(2.0, 0.5)
    assert quotient(Cell(None, 2.0), Cell(2.0, 4.0)) == Cell(None, 0.5)
    assert quotient(Cell(4.0), Cell(None)) == Cell()


def test_csv_has_a_line_for_each_cell(tmp_path):
    ran = Cell(1.5, 3.0, 1.0, 2.0, 2, ("r1", "r2"), "2026-11-20")
    table = Table(
        "t", "T", "s", "a", ("device",), ("x", "y"), (Row(("d, e",), (ran, Cell()), "Xeon"),)
    )
    write_csv(table, tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        head, first, second = csv.reader(file)
    assert head == ["device", *CELL_COLUMNS]
    assert first == [
        *("d, e", "x", "1.5", "1.0", "2.0", "2", "3.0", "Xeon", "0.5", "2026-11-20", "r1 r2"),
        *("", ""),
    ]
    assert second == ["d, e", "y", "not run", "", "", "0", "", "", "", "", "", "", ""]
    (plain,) = as_data(table)["rows"]
    assert plain["cells"]["x"]["ratio"] == 0.5
