from pathlib import Path
from typing import get_args

import pytest
from conftest import on_sqlite_only

from hetfeat.errors import DataError, GateRefused
from hetfeat.features.columns import FEATURES_VERSION
from registry.files.moves import promote
from registry.files.pull import fetch
from registry.models.gate_rules import Gate, load_rules
from registry.models.gates import ARTIFACTS, GATES, REFUSED, SKIPPED, StandardGates
from registry.models.stages import history
from registry.models.version import EVALUATION_TAG, FEATURES_TAG, MANIFEST_TAG, PRECISION_TAG
from registry.models.versions import metric_tags, resolve


def judged(client, version, replaced=None, to="production") -> dict[str, str]:
    return {r.gate: r.outcome for r in StandardGates(client, fetch)(version, replaced, to)}


def test_the_first_version_passes(client, make_version, model_name):
    version = make_version(model_name, **{FEATURES_TAG: str(FEATURES_VERSION)})
    assert judged(client, version) == {
        "artifacts": "passed",
        "features": "passed",
        "signature": "passed",
        "pca": "passed",
        "top1": "passed",
    }


# What a gate makes of figures is the same wherever they are kept; the tests without parameters
# read them from a server, too.
@on_sqlite_only
@pytest.mark.parametrize(
    ("new", "refused"),
    [
        ({"pca": 0.92, "top1": 0.75}, set()),
        ({"pca": 0.895, "top1": 0.69}, set()),
        ({"pca": 0.88, "top1": 0.75}, {"pca"}),
        ({"pca": 0.92, "top1": 0.6}, {"top1"}),
        ({"pca": 0.3, "top1": 0.7}, {"pca"}),
        ({"pca": float("nan"), "top1": 0.7}, {"pca"}),
    ],
)
def test_figures_against_the_version_to_replace(client, make_version, model_name, new, refused):
    old = make_version(model_name)
    version = make_version(model_name, **metric_tags(new))
    said = judged(client, version, old)
    assert {gate for gate, outcome in said.items() if outcome == REFUSED} == refused


@on_sqlite_only
@pytest.mark.parametrize(
    ("new", "outcome"), [(["trace"], "passed"), (["other"], REFUSED), (None, REFUSED)]
)
def test_other_inputs_are_refused(client, make_version, model_name, monkeypatch, new, outcome):
    old, version = make_version(model_name), make_version(model_name)
    inputs = {old.uri: ["trace"], version.uri: new}
    monkeypatch.setattr("registry.models.gates._inputs", lambda version: inputs[version.uri])
    assert judged(client, version, old)["signature"] == outcome


@on_sqlite_only
def test_a_version_that_was_never_judged_is_refused(client, make_version, model_name):
    make_version(model_name)
    for figure in ("pca", "top1"):
        client.delete_model_version_tag(model_name, "1", f"metric.{figure}")
    said = judged(client, resolve(f"{model_name}/1", client=client))
    assert (said["pca"], said["top1"]) == (REFUSED, REFUSED)


def test_a_worst_figure_counts_where_it_was_measured(client, make_version, model_name):
    old = make_version(model_name, **metric_tags({"worst_device_pca": 0.8}))
    assert judged(client, make_version(model_name), old)["worst_device_pca"] == REFUSED
    worse = make_version(model_name, **metric_tags({"worst_device_pca": 0.7}))
    assert judged(client, worse, old)["worst_device_pca"] == REFUSED
    assert judged(client, old, worse)["worst_device_pca"] == "passed"


def test_another_evaluation_set_is_not_comparable(client, make_version, model_name, tmp_path):
    old = make_version(model_name)
    version = make_version(model_name, **{EVALUATION_TAG: "e2"})
    (result,) = [
        r for r in StandardGates(client, fetch)(version, old, "production") if r.gate == "pca"
    ]
    assert result.outcome == REFUSED and "another evaluation set" in result.figures
    rules = load_rules().model_copy(update={"not_comparable": "skip"})
    gates = StandardGates(client, fetch, rules)
    (result,) = [r for r in gates(version, old, "production") if r.gate == "pca"]
    assert result.outcome == SKIPPED


def test_figures_of_the_run_stand_in_for_tags(client, model_name, make_version):
    version = make_version(model_name)
    client.log_metric(version.run_id, "worst_operator_pca", 0.77)
    assert judged(client, version)["worst_operator_pca"] == "passed"


def test_features_of_another_version(client, make_version, model_name):
    version = make_version(model_name, **{FEATURES_TAG: str(FEATURES_VERSION + 1)})
    assert judged(client, version)["features"] == REFUSED


@on_sqlite_only
@pytest.mark.parametrize(
    ("figures", "outcome"),
    [
        ({}, REFUSED),
        ({"pca_source": 0.8, "pca_transfer": 0.79}, REFUSED),
        ({"pca_source": 0.8, "pca_transfer": 0.8}, "passed"),
    ],
)
def test_no_negative_transfer(client, make_version, model_name, figures, outcome):
    source = make_version(model_name)
    child = make_version(f"{model_name}.laptop", parent=source.uri, **metric_tags(figures))
    assert judged(client, child)["transfer"] == outcome


BUNDLE = {"max_abs_error": 1e-6, "tolerance": 1e-4, "latency_ms": 10.0}


@on_sqlite_only
@pytest.mark.parametrize(
    ("figures", "refused"),
    [
        (BUNDLE, set()),
        (BUNDLE | {"latency_ms": 10.25}, set()),
        (BUNDLE | {"latency_ms": 10.4}, {"latency"}),
        (BUNDLE | {"max_abs_error": 1e-3}, {"numerics"}),
        ({"latency_ms": 9.0}, {"numerics"}),
    ],
)
def test_bundles(client, make_version, model_name, figures, refused):
    name = f"network.resnet18.{model_name.rsplit('.')[-1]}"
    old = make_version(name, **metric_tags(BUNDLE))
    said = judged(client, make_version(name, **metric_tags(figures)), old)
    assert {gate for gate, outcome in said.items() if outcome == REFUSED} == refused
    assert set(said) == {"artifacts", "numerics", "latency"}


@on_sqlite_only
@pytest.mark.parametrize(
    ("figures", "outcomes"),
    [
        ({"snr_db": 25.0, "top1_agreement": 0.95}, {"passed"}),
        ({"snr_db": 9.0, "top1_agreement": 0.95}, {"passed", REFUSED}),
        ({"snr_db": 25.0, "top1_agreement": 0.8}, {"passed", REFUSED}),
        ({"snr_db": 25.0, "top1_agreement": 1.5}, {"passed", REFUSED}),
        ({"snr_db": 25.0}, {"passed"}),
        ({}, {REFUSED}),
    ],
)
def test_what_was_quantised_is_near_enough(client, make_version, model_name, figures, outcomes):
    name = f"network.resnet18_int8.{model_name.rsplit('.')[-1]}"
    tags = metric_tags(BUNDLE | figures) | {PRECISION_TAG: "int8"}
    said = StandardGates(client, fetch)(make_version(name, **tags), None, "staging")
    assert {result.outcome for result in said if result.gate == "accuracy"} == outcomes


@on_sqlite_only
@pytest.mark.parametrize(
    ("name", "gate", "values"),
    [
        ("latency_ms", "latency", ["nan", "-1", "0", "inf", "fast"]),
        ("max_abs_error", "numerics", ["nan", "-1", "inf"]),
        ("tolerance", "numerics", ["inf", "nan", "-1"]),
    ],
)
def test_figures_of_a_bundle_that_cannot_be(client, make_version, model_name, name, gate, values):
    """They are refused, and where they are in the registry already they bar nothing."""
    bundle = f"network.resnet18.{model_name.rsplit('.')[-1]}"
    honest = make_version(bundle, **metric_tags(BUNDLE))
    for value in values:
        tags = metric_tags(BUNDLE) | {f"metric.{name}": value}
        odd = make_version(bundle, **tags)
        assert judged(client, odd)[gate] == REFUSED, value
        assert judged(client, honest, odd)[gate] == "passed", value


@on_sqlite_only
@pytest.mark.parametrize("value", ["17", "inf", "-0.1", "nan", "high"])
def test_figures_of_a_model_that_cannot_be(client, make_version, model_name, value):
    odd = make_version(model_name, **{"metric.pca": value, "metric.top1": value})
    honest = make_version(model_name)
    said = judged(client, odd)
    assert (said["pca"], said["top1"]) == (REFUSED, REFUSED)
    said = judged(client, honest, odd)
    assert (said["pca"], said["top1"]) == (SKIPPED, SKIPPED)
    assert REFUSED not in said.values()


@on_sqlite_only
def test_no_force_passes_the_gate_of_the_artifacts(client, make_version, model_name):
    version = make_version(model_name)
    folder = Path(client.get_run(version.run_id).info.artifact_uri.removeprefix("file://"))
    (folder / "model" / "model.ubj").write_bytes(b"{")
    with pytest.raises(GateRefused, match="nothing overrides"):
        promote(model_name, 1, "production", force=True, reason="haste")
    assert history(model_name)[0] == []


@on_sqlite_only
def test_a_tag_that_changes_once_the_files_were_read_is_not_recorded(
    client, make_version, model_name, monkeypatch
):
    make_version(model_name)
    prepare = StandardGates.prepare

    def then_changed(self, version, to):
        prepare(self, version, to)
        client.set_model_version_tag(model_name, "1", MANIFEST_TAG, "0" * 64)

    monkeypatch.setattr(StandardGates, "prepare", then_changed)
    with pytest.raises(GateRefused, match="artifacts"):
        promote(model_name, 1, "production")
    assert history(model_name)[0] == []


@on_sqlite_only
def test_changed_artifacts_are_refused_with_3(client, make_version, model_name):
    version = make_version(model_name)
    folder = Path(client.get_run(version.run_id).info.artifact_uri.removeprefix("file://"))
    (folder / "model" / "model.ubj").write_bytes(b"{")
    with pytest.raises(GateRefused, match="artifacts") as caught:
        promote(model_name, 1, "production")
    assert caught.value.exit_code == 3
    promote(model_name, 1, "archived")
    assert [e["to"] for e in history(model_name)[0]] == ["archived"]


def test_the_ledger_keeps_figures_and_digest(client, make_version, model_name):
    version = make_version(model_name)
    promote(model_name, 1, "production")
    (entry,) = history(model_name)[0]
    assert entry["manifest"] == version.tags[MANIFEST_TAG]
    said = {gate["gate"]: gate["figures"] for gate in entry["gates"]}
    assert said["pca"] == "0.9000, nothing to replace"


def test_there_is_a_gate_of_every_name():
    assert sorted(get_args(Gate)) == sorted([ARTIFACTS, *GATES])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "format: 2",
        "format: 1\ngate: {}",
        "format: 1\ngates: {cost_model: {production: [luck]}}",
        "format: 1\ngates: {cost_model: {live: [artifacts]}}",
        "format: 1\nfigures: {pca: {atleast: 1}}",
        "format: 1\nnot_comparable: maybe",
        "format: 1\nlatency_ratio: fast",
        "format: 1\nfigures: {pca: {at_least: high}}",
        "format: 1\nfigures: {pca: {may_fall_by: [1]}}",
        "format: 1\nfigures: {pca: {required: 'false'}}",
        "format: 1\ngates: [1]",
    ],
)
def test_a_gates_file_that_is_wrong_is_refused(tmp_path, monkeypatch, text):
    path = tmp_path / "gates.yaml"
    path.write_text(text)
    monkeypatch.setenv("HETFEAT_GATES", str(path))
    with pytest.raises(DataError, match="gates file"):
        load_rules()


def test_a_gates_file_of_ones_own(tmp_path, client, make_version, model_name, monkeypatch):
    path = tmp_path / "gates.yaml"
    path.write_text(
        "format: 1\ngates: {cost_model: {production: [figures]}}\n"
        "figures: {r2: {required: true, at_least: '0.9'}}\nlatency_ratio: '1.1'\n"
    )
    monkeypatch.setenv("HETFEAT_GATES", str(path))
    assert judged(client, make_version(model_name)) == {"r2": REFUSED}
    assert load_rules().latency_ratio == 1.1
