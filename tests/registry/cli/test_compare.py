"""What `hetfeat compare` says for people: figures, the best of each, what the gates would say."""

import re

import pytest
from conftest import on_sqlite_only
from door import hetfeat

import mlproject
from registry.cli import app
from registry.cli.compare import _as_text
from registry.models.version import METRIC_PREFIX
from registry.tracking.compare import Judged, judged

NOBODYS = "<b>x</b>"
"""A parameter's value that a page must show, and not obey."""


@pytest.mark.parametrize(
    ("metric", "figures", "said"),
    [
        ("pca", [0.75, 0.5], Judged("higher", 0, -0.25)),
        ("valid.top1", [0.5, 0.75], Judged("higher", 1, 0.25)),
        ("rmse", [0.5, 0.25], Judged("lower", 1, -0.25)),
        ("latency_ms", [3.0, None], Judged("lower", None, None)),
        ("train_s", [3.0, 3.0], Judged("lower", None, 0.0)),
        ("pca_new_tasks", [0.5, 0.75, 0.75], Judged("higher", None, 0.25)),
        ("model.columns_per_tree", [1.0, 0.5], Judged(None, None, -0.5)),
    ],
)
def test_the_best_the_direction_and_the_difference_of_a_metric(metric, figures, said):
    assert judged(metric, figures) == said


def test_the_tables_say_them_and_what_the_gates_would():
    gate = {"gate": "pca", "outcome": "refused", "figures": "0.81, 0.83 of version 1"}
    value = {
        "columns": ["m/1", "m/2"],
        "metrics": {"pca": [0.83, 0.81]},
        "judged": {"pca": {"better": "higher", "best": 0, "difference": -0.02}},
        "parameters": {"seed": ["0", "1"]},
        "promotion": {"verdict": "the gates would refuse", "gates": [gate]},
        "html": None,
    }
    head, row, *rest = _as_text(value).splitlines()
    assert head.endswith("last - first  better is  best")
    assert row.split() == ["pca", "0.83", "0.81", "-0.02", "higher", "m/1"]
    assert "the gates would refuse" in rest
    assert rest[-1].split()[:2] == ["pca", "refused"]


@pytest.fixture
def two_versions(client, make_version, model_name):
    """Versions of one model with runs that differ, the second worse."""
    made = [make_version(model_name) for _ in range(2)]
    for version, pca, model in zip(made, (0.9, 0.8), ("xgb", NOBODYS), strict=True):
        client.log_metric(version.run_id, "pca", pca)
        client.log_param(version.run_id, "model", model)
        client.set_model_version_tag(
            model_name, str(version.version), f"{METRIC_PREFIX}pca", str(pca)
        )
    return made


@on_sqlite_only
@pytest.mark.parametrize(("order", "passed"), [((0, 1), False), ((1, 0), True)])
def test_the_gates_are_asked_of_the_last_over_the_first(
    two_versions, client, model_name, capfd, order, passed
):
    uris, runs = ([getattr(two_versions[n], what) for n in order] for what in ("uri", "run_id"))
    for names in (uris, runs):
        found = hetfeat(capfd, "compare", *names)
        assert found.code == 0, found.errors
        said = found.value["promotion"]
        assert said["passed"] is passed
        assert f"{uris[1]} in the place of {uris[0]} in production" in said["verdict"]
        refused = [gate["gate"] for gate in said["gates"] if gate["outcome"] == "refused"]
        assert refused == ([] if passed else ["pca"])
    assert dict(client.get_registered_model(model_name).aliases) == {}


@on_sqlite_only
def test_gates_that_cannot_be_asked_say_why(two_versions, client, make_version, model_name, capfd):
    run = client.create_run(client.create_experiment(f"plain-{model_name}")).info.run_id
    other = make_version(f"{model_name}.laptop")
    first = two_versions[0].uri
    for name, why in ((run, "made no version"), (first, "both are"), (other.uri, "of two models")):
        said = hetfeat(capfd, "compare", first, name).value["promotion"]
        assert (said["passed"], said["gates"]) == (None, [])
        assert why in said["verdict"]


@on_sqlite_only
def test_the_page_needs_nothing_else_and_obeys_nobody(two_versions, capfd, tmp_path):
    path = tmp_path / "pages" / "compared.html"
    uris = [version.uri for version in two_versions]
    assert app.run(mlproject.cli, ["compare", *uris, "--html", str(path)]) == 0
    assert f"page {path}" in capfd.readouterr().out
    page = path.read_text()
    assert not re.search(r"(src|href)=\"|<script|<b>", page)
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert f'<td data-label="{uris[0]}" class="ours">0.9</td>' in page
    assert "the gates would refuse" in page and "<td" in page.split("Gates</h2>")[1]


@on_sqlite_only
def test_a_folder_is_no_place_for_a_page(tracking_uri, capfd, tmp_path):
    refused = hetfeat(capfd, "compare", "a", "b", "--html", str(tmp_path))
    assert refused.code == 2 and "a file for the page" in refused.errors
