"""`hetfeat report` from a record store to a page, at the smallest size there is."""

import base64
import csv
import dataclasses
import os
import re
from types import SimpleNamespace

import pytest
import report_runs as made
import stores
from door import hetfeat

from hetfeat.report import drawings, epochs, searches, trainings
from hetfeat.report.cells import Cell
from hetfeat.report.page import Page, Section, number, render, seeds
from hetfeat.report.scope import SIZES, Device

NAMES = ("table3", "table5", "table6", "table7", "table8", "figure2", "gemm")
FETCHES = re.compile(
    r"(?:src|href|action|data)\s*=\s*(?![\"']?(?:#|data:))|url\(|@import|<script|<link"
)


@pytest.fixture
def here(registry_here, device, project, monkeypatch):
    """A store of one device, this machine already probed, and little to run."""
    from hetfeat.devices.probe import remember

    monkeypatch.setenv("PYTHONPATH", str(project))  # for the children that measure
    remember(device)
    store = stores.make_store(registry_here / "records", devices=("a",), per_task=24)
    small = dataclasses.replace(
        SIZES["quick"],
        tuners=("xgb",),
        gemm="8,8,8",
        gemm_share="0.005",
    )
    monkeypatch.setitem(SIZES, "quick", small)
    return SimpleNamespace(folder=registry_here, store=store)


@pytest.mark.slow
@pytest.mark.tvm
def test_a_report_and_again(here, capfd):
    line = ("--records", "records", "--out", "report")
    first = hetfeat(capfd, "report", *line)
    assert first.code == 0, first.errors
    # One tuner on all and on pruned records, and a search by four strategies.
    assert first.value["ran"] == 3, first.value["left_out"]
    again = hetfeat(capfd, "report", *line)
    assert again.value["ran"] == 0
    assert again.value["tables"] == first.value["tables"]

    tables = {table["name"]: table for table in first.value["tables"]}
    assert tuple(tables) == NAMES
    (xgb,) = [
        row
        for row in tables["table6"]["rows"]
        if (row["device"], row["model"], row["split"]) == ("a", "xgb", "by_task")
    ]
    cell = xgb["cells"]["PCA, baseline"]
    assert 0 < cell["value"] <= 1
    assert cell["seeds"] == 1

    import mlflow

    client = mlflow.MlflowClient()
    (run_id,) = cell["runs"]
    trained = client.get_run(run_id).data
    assert trained.metrics["pca"] == cell["value"]
    assert trained.metrics["pca.low"] == cell["tasks_low"] <= cell["value"] <= cell["tasks_high"]
    assert trained.tags["dataset_digest"] == here.store.digest()

    folder = here.folder / "report"
    for name in NAMES:
        with (folder / "tables" / f"{name}.csv").open(newline="") as file:
            lines = list(csv.DictReader(file))
        rows = tables[name]["rows"]
        assert len(lines) == sum(len(row["cells"]) for row in rows)
        ours = [cell for row in rows for cell in row["cells"].values()]
        assert [line["runs"].split() for line in lines] == [cell["runs"] for cell in ours]
    page = (folder / "report.html").read_text()
    assert not FETCHES.search(page)
    assert "tables 7 and 8" in page
    assert (folder / "figures" / "gemm.png").read_bytes().startswith(b"\x89PNG")
    assert not (folder / "figures" / "table7.png").exists()

    logged = client.get_run(first.value["run_id"])
    assert logged.data.tags["command"] == "report"
    assert logged.data.metrics["cells_not_run"] == sum(
        cell["value"] is None and cell["exists"]
        for table in first.value["tables"]
        for row in table["rows"]
        for cell in row["cells"].values()
    )
    artifacts = {file.path for file in client.list_artifacts(first.value["run_id"])}
    assert artifacts == {"figures", "left_out.json", "report.html", "tables"}


def test_an_empty_store_gives_a_report_of_what_was_not_run(here, capfd):
    made_report = hetfeat(capfd, "report", "--records", "records", "--run-missing", "false")
    assert made_report.code == 0, made_report.errors
    assert made_report.value["ran"] == 0
    assert made_report.value["left_out"]["everything else"].startswith("--run-missing false")
    values = {
        table["name"]: [cell["value"] for row in table["rows"] for cell in row["cells"].values()]
        for table in made_report.value["tables"]
    }
    assert not any(value is not None for name in NAMES[1:] for value in values[name])
    assert any(value is not None for value in values["table3"])


def test_what_fails_is_left_out_and_said(here, capfd, monkeypatch):
    from hetfeat.errors import WorkFailed
    from registry.jobs import report
    from registry.jobs.report_plan import ReportStep

    def fail() -> None:
        raise WorkFailed("a network that is wrong", "a right one", "mend it")

    for name in ("missing_trainings", "missing_searches", "missing_deployments"):
        monkeypatch.setattr(report, name, lambda plan, runs: [])
    monkeypatch.setattr(
        report, "missing_deployments", lambda plan, runs: [ReportStep("deploy it", fail)]
    )
    found = hetfeat(capfd, "report", "--records", "records")
    assert found.code == 0
    assert found.value["left_out"]["deploy it"].startswith("a network that is wrong")
    assert "a network that is wrong" in (here.folder / "report" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--records", "nowhere"), 2, "record store 'nowhere'"),
        (("--out", "records/store.json"), 2, "--out 'records/store.json'"),
        (("--effort", "heroic"), 2, "heroic"),
        (("--run-missing", "maybe"), 2, "true or false"),
    ],
)
def test_wrong_requests_are_one_line(here, capfd, arguments, code, said):
    found = hetfeat(capfd, "report", *arguments)
    assert (found.code, found.value) == (code, None)
    assert said in found.errors.splitlines()[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(here, capfd):
    (here.folder / "locked").mkdir(mode=0o500)
    found = hetfeat(capfd, "report", "--out", "locked/report")
    assert found.code == 2
    assert "Permission denied" in found.errors


def test_a_tracking_store_that_does_not_answer(here, capfd, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    mlflow.set_tracking_uri("http://127.0.0.1:9")
    found = hetfeat(capfd, "report", "--records", "records")
    assert found.code == 1
    assert "MLFLOW_TRACKING_URI" in found.errors.splitlines()[-1]


class TestPage:
    @pytest.fixture
    def page(self) -> str:
        runs = [
            made.training(1, train_s=4.0, pca=0.8, **{"pca.low": 0.71, "pca.high": 0.89}),
            made.training(2, train_s=6.0, pca=0.8, seed=1),
            made.search("gbfs", 2.0),
            made.search("xgb", 4.0),
        ]
        histories = {"train1": [(0, 0.5), (1, 0.2)], "train2": [(0, 0.4), (1, 0.3)]}
        scope = made.scope()
        tables = [
            trainings.training_table(runs, scope),
            epochs.error_table(runs, scope, histories),
            searches.gemm_table(runs, scope, Device(made.HERE, "cpu", "device"), 484),
        ]
        curves = epochs.curves(runs, scope, histories)
        sections = []
        for table in tables:
            figure = drawings.of_table(table, curves)
            svg = drawings.drawn(figure, "svg") if figure else None
            sections.append(Section(table, svg, "2 runs."))
        facts = {"records": "<script>alert(1)</script>"}
        return render(Page("standard", facts, {"a GPU": "there is none"}), sections)

    def test_needs_nothing_but_itself(self, page):
        assert "<script>" not in page  # what was given is escaped
        assert "&lt;script&gt;" in page
        assert not FETCHES.search(page)
        assert "http:" not in page
        assert "https:" not in page
        assert 'name="viewport"' in page
        assert "prefers-color-scheme: dark" in page
        assert "@media print" in page

    def test_shows_ours_the_papers_and_what_was_not_run(self, page):
        text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
        assert "5 4 to 6, 2 seeds paper 1,265, &times;0.004" in text
        assert "not run" in text
        assert "a GPU there is none" in text

    def test_shows_how_far_a_mean_over_tasks_may_be_off(self, page):
        assert page.count("95 %: 0.71 to 0.89") == 1

    def test_figures_are_inside(self, page):
        found = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
        assert len(found) == 2  # nothing to draw of table 5: no pruned training
        assert all(b"<svg" in base64.b64decode(data) for data in found)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (5000.0, "5,000"), (12.0, "12"), (0.55, "0.55"), (1.23456, "1.235")]
    + [(0.00012, "0.0001"), (-0.31416, "-0.3142"), (123.456, "123.5"), (999.99, "1000")],
)
def test_numbers(value, shown):
    assert number(value) == shown


def test_seeds():
    assert seeds(Cell()) == ""
    assert seeds(Cell(1.0, runs=("r",), seeds=1)) == "1 seed"
    assert seeds(Cell(1.0, low=0.5, high=1.5, runs=("r", "s"), seeds=2)) == "0.5 to 1.5, 2 seeds"
