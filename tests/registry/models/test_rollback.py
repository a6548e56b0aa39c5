import uuid
from pathlib import Path

import pytest
from conftest import on_sqlite_only

from hetfeat.errors import DataError, RequestError
from registry.files.manifest import write_manifest
from registry.files.moves import promote, rollback
from registry.files.pull import pull
from registry.models import aliases
from registry.models.aliases import State
from registry.models.rollback import earlier
from registry.models.stages import history
from registry.models.version import MANIFEST_TAG
from registry.models.versions import metric_tags


def shown(client, name: str) -> State:
    state = aliases.read(client, name).aliases
    assert aliases.differences(client, name, state) == []
    return state


@pytest.fixture
def three_in_turn(make_version, model_name) -> str:
    for version in (1, 2, 3):
        make_version(model_name)
        promote(model_name, version, "production")
    return model_name


def test_it_goes_back_one_and_then_further(client, three_in_turn):
    outcome = rollback(three_in_turn, reason="slow on the lab's boards")
    assert (outcome.from_, outcome.to, outcome.previous) == ("archived", "production", 3)
    assert shown(client, three_in_turn) == State(production=2, previous=1)
    rollback(three_in_turn)
    assert shown(client, three_in_turn) == State(production=1)
    with pytest.raises(RequestError, match="hetfeat promote"):
        rollback(three_in_turn)
    assert [e["kind"] for e in history(three_in_turn)[0]] == ["promote"] * 3 + ["rollback"] * 2


def test_a_promotion_after_it_can_be_undone_in_turn(client, three_in_turn):
    rollback(three_in_turn)
    promote(three_in_turn, 3, "production", reason="fixed")
    assert shown(client, three_in_turn) == State(production=3, previous=2)
    rollback(three_in_turn)
    assert shown(client, three_in_turn) == State(production=2, previous=1)


def test_it_undoes_an_archived_production(client, three_in_turn):
    promote(three_in_turn, 3, "archived")
    assert shown(client, three_in_turn) == State(previous=3)
    rollback(three_in_turn)
    assert shown(client, three_in_turn) == State(production=3, previous=2)


def test_it_leaps_over_a_version_that_is_gone(client, three_in_turn):
    client.delete_model_version(three_in_turn, "2")
    rollback(three_in_turn)
    assert shown(client, three_in_turn) == State(production=1)


def test_nothing_to_go_back_to(make_version, model_name):
    make_version(model_name)
    with pytest.raises(RequestError):
        rollback(model_name)
    promote(model_name, 1, "production")
    with pytest.raises(RequestError):
        rollback(model_name)
    with pytest.raises(RequestError, match=model_name):
        rollback(f"{model_name}x")


def test_what_is_pulled_after_a_rollback_is_the_bundle_before(client, make_version):
    name = f"network.tiny.{uuid.uuid4().hex[:8]}"
    figures = metric_tags({"latency_ms": 1.0, "max_abs_error": 0.0, "tolerance": 1.0})
    bundles = [{"bundle.json": b"{}", "lib_1.so": code} for code in (b"before", b"after")]
    for version, files in enumerate(bundles, 1):
        make_version(name, files, **figures)
        for stage in ("staging", "production"):
            promote(name, version, stage)
    assert (pull(name, "production").folder / "lib_1.so").read_bytes() == b"after"
    rollback(name)
    pulled = pull(name, "production")
    assert pulled.version.version == 1
    assert (pulled.folder / "lib_1.so").read_bytes() == b"before"


@on_sqlite_only
def test_it_records_no_files_that_were_changed(client, three_in_turn):
    """Whoever changes the files and the tag of what it goes back to is not helped by it."""
    run = client.get_run(client.get_model_version(three_in_turn, "2").run_id)
    folder = Path(run.info.artifact_uri.removeprefix("file://")) / "model"
    tag = client.get_model_version(three_in_turn, "2").tags[MANIFEST_TAG]
    (folder / "model.ubj").write_bytes(b"{evil")
    with pytest.raises(DataError, match=r"changed content|of another size"):
        rollback(three_in_turn)
    client.set_model_version_tag(three_in_turn, "2", MANIFEST_TAG, write_manifest(folder))
    with pytest.raises(DataError, match="changed after it was promoted"):
        rollback(three_in_turn)
    assert shown(client, three_in_turn) == State(production=3, previous=2)
    entries = history(three_in_turn)[0]
    assert len(entries) == 3 and entries[1]["manifest"] == tag


def test_a_repeated_version_counts_once():
    def entry(production, kind="promote", replaced=None):
        state = {"production": production}
        return {"kind": kind, "state": state, "to": "production", "replaced": replaced}

    assert earlier([]) == []
    assert earlier([entry(1), entry(1), entry(2)]) == [1]
    assert earlier([entry(2, replaced=1)]) == [1]
    assert earlier([entry(1), entry(2), entry(1, "rollback")]) == []
    assert earlier([entry(1), entry(2), entry(None), entry(3)]) == [2, 1]
