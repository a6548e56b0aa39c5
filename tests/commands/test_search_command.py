"""`hetfeat search` as it is typed, and what it leaves in MLflow."""

import json

import pytest
import spaces

import mlproject
from registry.cli import app


def run(*arguments: str) -> int:
    return app.run(mlproject.cli, ["search", *map(str, arguments)])


@pytest.fixture
def cache_file(tmp_path):
    return spaces.write(tmp_path / "cache.json.gz", spaces.whole())


def test_strategies_are_compared_and_logged(cache_file, registry_here, capsys):
    code = run(
        *("--space", cache_file, "--strategy", "random,gbfs", "--budget", "0.25"),
        *("--repeats", "3", "--json"),
    )
    assert code == 0
    result = json.loads(capsys.readouterr().out)
    assert result["space_size"] == 120
    assert result["optimum_ms"] == pytest.approx(1.0)
    assert set(result["strategies"]) == {"random", "gbfs"}
    for found in result["strategies"].values():
        times = sorted(repeat["best_ms"] for repeat in found["repeats"])
        assert found["best_ms"] == times[1] >= result["optimum_ms"]
        assert [repeat["evaluations"] for repeat in found["repeats"]] == [30, 30, 30]
        assert all(repeat["seconds"] >= 0 for repeat in found["repeats"])

    from mlflow import MlflowClient

    client = MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("hetfeat").experiment_id])
    (parent,) = [r for r in runs if "mlflow.parentRunId" not in r.data.tags]
    nested = {r.info.run_name: r for r in runs if r is not parent}
    assert set(nested) == {"random", "gbfs"}
    for name, child in nested.items():
        assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
        curve = client.get_metric_history(child.info.run_id, "best_ms")
        values = [metric.value for metric in sorted(curve, key=lambda metric: metric.step)]
        assert values == sorted(values, reverse=True)
        assert values[-1] == result["strategies"][name]["best_ms"]
        assert curve[-1].step == 30
        assert child.data.metrics["excess"] == pytest.approx(values[-1] / 1.0 - 1)


def test_people_get_a_table_with_the_ratio_and_the_parameters_names(
    cache_file, registry_here, capsys
):
    line = ("--space", cache_file, "--strategy", "random,gbfs", "--budget", "1.0")
    assert run(*line) == 0
    printed = capsys.readouterr().out
    head, first = printed.splitlines()[:2]
    assert head.split("  ")[0] == "strategy" and "times the optimum" in head
    assert first.split()[2] == "1"  # all states were measured, and the optimum is among them
    assert run(*line, "--json") == 0
    best = json.loads(capsys.readouterr().out)["best_parameters"]
    assert len(best) > 1
    assert printed.splitlines()[-1] == "fastest: " + " ".join(f"{n}={v}" for n, v in best.items())


def test_a_prior_is_measured_first(cache_file, tmp_path, registry_here, capsys):
    code = run(
        *("--space", cache_file, "--prior", cache_file, "--strategy", "gbfs", "--budget", "1"),
        "--json",
    )
    assert code == 0
    assert json.loads(capsys.readouterr().out)["strategies"]["gbfs"]["best_ms"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "neither --space nor --gemm"),
        (["--space", "FILE", "--gemm", "8,8,8"], "both --space and --gemm"),
        (["--space", "missing.json"], "no file"),
        (["--space", "FILE", "--strategy", "greedy"], "'greedy'"),
        (["--space", "FILE", "--budget", "0"], "--budget 0"),
        (["--space", "FILE", "--budget", "1.5"], "--budget 1.5"),
        (["--space", "FILE", "--budget", "0.001"], "--budget 0.001"),
        (["--gemm", "8,8"], "--gemm 8,8"),
        (["--gemm", "0,8,8"], "--gemm 0,8,8"),
        (["--gemm", "8,8,8", "--prior", "FILE"], "--prior with --gemm"),
        (["--gemm", "8,8,8", "--budget", "0"], "--budget 0"),
    ],
)
def test_wrong_requests_are_one_line(arguments, says, cache_file, registry_here, capsys):
    given = [str(cache_file) if argument == "FILE" else argument for argument in arguments]
    assert run(*given) == 2
    errors = capsys.readouterr().err.strip()
    assert says in errors
    assert "\n" not in errors
    assert not (registry_here / "mlruns").exists()
