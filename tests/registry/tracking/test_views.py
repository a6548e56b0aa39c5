"""What is read from the registry for people: lineage, lists, cards, comparisons."""

import itertools
import secrets

import pytest

from hetfeat.errors import RequestError
from registry.files.moves import promote
from registry.models.lineage import as_tree, lineage
from registry.models.version import DATASET_TAG, METRIC_PREFIX
from registry.tracking import listing
from registry.tracking.compare import compare


@pytest.fixture
def data() -> str:
    """The digest of a data set."""
    return secrets.token_hex(32)


@pytest.fixture
def family(make_version, model_name, data):
    """A data set, a source model, its transfer-tuned child and the child's bundle."""
    source = make_version(model_name, **{DATASET_TAG: data})
    child = make_version(f"{model_name}.laptop", parent=source.uri)
    bundle = make_version(f"network.resnet18.{model_name[-8:]}", parent=child.uri)
    promote(model_name, 1, "production")
    return source, child, bundle


def test_lineage_goes_both_ways(family, data):
    ids = [f"dataset:{data}", *(version.uri for version in family)]
    for asked, version in enumerate(family):
        found = lineage(version.uri)
        assert set(found.nodes) == set(ids)
        assert set(found.edges) == set(itertools.pairwise(ids))
        lines = as_tree(found).splitlines()
        assert lines[0] == f"{data[:16]} (data set)"
        assert lines[1].startswith("└─ costmodel") and "source model, production" in lines[1]
        assert lines[2].startswith("   └─ costmodel") and "transfer-tuned model" in lines[2]
        assert lines[3].startswith("      └─ network") and "bundle" in lines[3]
        assert lines[asked + 1].endswith("<-")


def test_lineage_of_a_data_set(family, data):
    assert len(lineage(f"dataset:{data}").nodes) == 4
    assert lineage(f"dataset:{data[:8]}").asked == f"dataset:{data}"
    for wrong in ("dataset:00", "dataset:00000000", "dataset:x' OR '1'='1", "nowhere/1"):
        with pytest.raises(RequestError):
            lineage(wrong)


def test_a_deleted_ancestor_is_shown_as_gone(client, family):
    client.delete_model_version(family[0].name, "1")
    found = lineage(family[1].uri)
    assert found.nodes[family[0].uri].kind == "gone"


def test_lists(client, family):
    client.create_registered_model(f"lock--{family[0].name}")
    rows = {row["name"]: row for row in listing.models()}
    assert {version.name for version in family} <= set(rows)
    assert not any(name.startswith("lock--") for name in rows)
    assert rows[family[0].name]["production"] == 1
    (row,) = listing.versions(family[0].name)
    assert (row["stage"], row["aliases"], row["pca"]) == ("production", ["production"], 0.9)
    (row,) = listing.versions(family[1].name)
    assert row["parent"] == f"{family[0].name}/1"
    client.delete_registered_model(f"lock--{family[0].name}")
    with pytest.raises(RequestError):
        listing.versions("costmodel.none")


def test_a_figure_that_is_none_hides_no_other(make_version, model_name):
    make_version(model_name)
    make_version(model_name, **{f"{METRIC_PREFIX}pca": "n/a"})
    assert [row["pca"] for row in listing.versions(model_name)] == [None, 0.9]


def test_a_version_is_described_by_a_card(client, family):
    text = client.get_model_version(family[1].name, "1").description
    assert text.startswith(f"# {family[1].name}, version 1")
    assert f"**Made from**: {family[0].uri}" in text
    assert "| pca | 0.9 |" in text
    assert f"hetfeat pull {family[1].uri}" in text


def test_a_card_takes_no_markup_from_tags(client, make_version, model_name):
    version = make_version(model_name, devices="<script>\n# x")
    text = client.get_model_version(model_name, str(version.version)).description
    assert "<script>" not in text and "\n# x" not in text


def test_runs_side_by_side(client, family):
    runs = [version.run_id for version in family]
    client.log_metric(runs[0], "pca", 0.9)
    client.log_metric(runs[1], "pca", 0.95)
    client.log_param(runs[0], "model", "xgb")
    client.log_param(runs[1], "model", "mlp")
    for run in runs[:2]:
        client.log_param(run, "split", "by_task")
        client.log_metric(run, "system/cpu_utilization_percentage", 12.5)
        client.log_metric(run, "decides/pca", 0.9)
        client.log_metric(run, "progress/programs_per_s", 3.0)
    found = compare([runs[0], family[1].uri])
    assert found.metrics == {"pca": [0.9, 0.95]}
    assert found.parameters == {"model": ["xgb", "mlp"]}
    whole = compare(runs[:2], system=True)
    assert set(whole.metrics) == {"pca", "system/cpu_utilization_percentage"}
    for wrong in ([runs[0]], [runs[0], "0" * 32], [runs[0], "costmodel.cpu-x86"]):
        with pytest.raises(RequestError):
            compare(wrong)
