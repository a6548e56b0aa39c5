"""What others can write, as it is searched for: quotes, pages, figures, circles."""

import json
import math

import pytest
from conftest import on_sqlite_only

from hetfeat.errors import DataError
from registry.maintenance import audit
from registry.models import aliases, lineage
from registry.models.gates import figure
from registry.models.lineage import as_tree
from registry.models.lock import locks_of
from registry.models.mlflow_client import condition
from registry.models.version import CALIBRATION_TAG, METRIC_PREFIX, PARENT_TAG, figure_of
from registry.models.versions import model_names
from registry.tracking.listing import models

pytestmark = on_sqlite_only


@pytest.mark.parametrize("name", ["bob's", 'a "model"', "50%"])
def test_a_name_with_quotes_is_found(client, name):
    client.create_registered_model(name)
    client.create_model_version(name, "s3://nowhere/model")
    assert [version.name for version in aliases.versions_of(client, name)] == [name]
    assert audit.diagnose(client) == []


@pytest.mark.parametrize("value", ["""both ' and \"""", "ends in \\", "two\nlines"])
def test_what_cannot_be_quoted_is_one_line(tracking_uri, value):
    with pytest.raises(DataError, match="search for") as caught:
        condition("name", value)
    assert "\n" not in str(caught.value)


def in_pages_of_two(search):
    """A search of a server that gives fewer results a page than it is asked for."""
    return lambda *conditions, **page: search(*conditions, **page | {"max_results": 2})


def test_every_page_is_read(client, make_version, model_name, monkeypatch):
    for name in ("search_registered_models", "search_model_versions"):
        monkeypatch.setattr(client, name, in_pages_of_two(getattr(client, name)))
    for _ in range(3):
        make_version(model_name)
    for number in range(1, 4):
        client.create_registered_model(f"lock--{model_name}--{number}")
    for other in range(3):
        client.create_registered_model(f"{model_name}.{other}")
    assert len(aliases.versions_of(client, model_name)) == 3
    assert len(locks_of(client, model_name)) == 3
    assert len(model_names(client)) == len(models(client)) == 4


@pytest.mark.parametrize("text", ["nan", "Infinity", "1e999", "1_0", '"1"', "[" * 4000, ""])
def test_a_figure_is_a_finite_number_or_none(client, make_version, model_name, text):
    version = make_version(model_name, **{f"{METRIC_PREFIX}pca": text})
    assert figure_of(version, "pca") is None
    assert math.isnan(figure(client, version, "pca"))
    json.dumps(figure_of(version, "pca"), allow_nan=False)


def test_a_circle_and_a_long_chain_of_parents_end(client, model_name):
    client.create_registered_model(model_name)
    uris = [f"models:/{model_name}/{number}" for number in range(1, 61)]
    for at in range(60):  # each made from the next, the last from the first
        tags = {PARENT_TAG: uris[(at + 1) % 60]}
        client.create_model_version(model_name, "s3://nowhere/model", tags=tags)
    found = lineage.lineage(uris[0], most_nodes=40, client=client)
    assert len(found.nodes) == 40
    assert len(as_tree(found).splitlines()) >= 40
    whole = lineage.lineage(uris[0], most_nodes=100, client=client)
    assert len(whole.nodes) == 60
    assert as_tree(whole).splitlines()[0].endswith("<-")
    assert "(see above)" in as_tree(whole)


def test_calibration_data_is_shown_beside_the_bundle(client, make_version):
    digest = "ab" * 32
    version = make_version("network.tiny_int8.here", **{CALIBRATION_TAG: digest})
    found = lineage.lineage(version.uri, client=client)
    assert found.edges == [(f"calibration:{digest}", version.uri)]
    tree = as_tree(found)
    assert tree.startswith(f"{digest[:16]} (calibration data)")


def test_a_chain_deeper_than_a_recursion_is_drawn(tracking_uri):
    nodes = {f"n{at}": lineage.Node(f"n{at}", "gone") for at in range(2000)}
    edges = [(f"n{at}", f"n{at + 1}") for at in range(1999)]
    assert len(as_tree(lineage.Lineage("n0", nodes, edges)).splitlines()) == 2000


def test_a_write_does_not_ask_for_the_whole_model_each_time(client, make_version, model_name):
    make_version(model_name)
    client.set_registered_model_tag(model_name, "known", "yes")
    client.get_registered_model = None
    client.set_registered_model_tag(model_name, "other", "yes")
