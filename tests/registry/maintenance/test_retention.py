import math
import time
from pathlib import Path

import pytest
from conftest import on_sqlite_only
from mlflow.exceptions import MlflowException

from hetfeat.errors import RequestError, WorkFailed
from registry.files.artifacts import is_own
from registry.files.moves import promote, rollback
from registry.maintenance import retention
from registry.maintenance.audit import diagnose
from registry.maintenance.retention import candidates, prune
from registry.models.stages import history
from registry.models.version import Version


def numbers(versions) -> list[int]:
    return sorted(version.version for version in versions)


pytestmark = on_sqlite_only


@pytest.fixture
def name(make_version, model_name) -> str:
    """Versions 1 to 4 were in production in turn, 5 never was."""
    for version in range(1, 6):
        make_version(model_name)
        if version < 5:
            promote(model_name, version, "production")
    return model_name


def test_archived_versions_go_with_their_artifacts(client, name):
    run = client.get_run(client.get_model_version(name, "1").run_id)
    folder = Path(run.info.artifact_uri.removeprefix("file://")) / "model"
    assert folder.is_dir()
    assert numbers(candidates(name, 0)) == [1, 2]
    assert numbers(prune(name, 0)) == [1, 2]
    assert not folder.is_dir()
    assert numbers(candidates(name, 0)) == []
    entries, faults = history(name)
    assert faults == [] and [e["kind"] for e in entries[-2:]] == ["prune", "prune"]
    assert diagnose(client, [name]) == []
    rollback(name)
    with pytest.raises(RequestError):
        rollback(name)


def test_a_parent_stays(make_version, name):
    make_version(f"{name}.laptop", parent=f"{name}/1")
    assert numbers(prune(name, 0)) == [2]


def test_young_ones_stay(name):
    assert candidates(name, 1) == []
    with pytest.raises(RequestError):
        candidates(name, -1)


def test_days_are_days(name, monkeypatch):
    now = time.time()
    for days, gone in ((0.9, []), (1.1, [1, 2])):
        monkeypatch.setattr(retention.time, "time", lambda at=now + 86400 * days: at)
        assert numbers(candidates(name, 1)) == gone


def test_what_is_promoted_meanwhile_stays(name, monkeypatch):
    taken, promoted = retention.locked, []

    def after_a_promotion(client, model):
        if not promoted:
            promoted.append(promote(name, 1, "production"))
        return taken(client, model)

    monkeypatch.setattr(retention, "locked", after_a_promotion)
    assert numbers(prune(name, 0)) == [2]


def test_a_version_that_cannot_be_deleted_is_said(client, name, monkeypatch):
    def fail(*_):
        raise MlflowException("out of order")

    monkeypatch.setattr(client, "delete_model_version", fail)
    with pytest.raises(WorkFailed, match="out of order"):
        prune(name, 0, client=client)


def test_files_that_another_version_uses_stay(client, name):
    first = client.get_model_version(name, "1")
    client.create_model_version(f"{name}", first.source, first.run_id)
    run = client.get_run(first.run_id)
    prune(name, 0)
    folder = Path(run.info.artifact_uri.removeprefix("file://")) / "model"
    assert folder.is_dir()


def test_the_requests_grow_with_the_versions_and_no_faster(
    client, make_version, model_name, monkeypatch
):
    """One search for the children of all, and one turn at the lock."""
    for version in range(1, 7):
        make_version(model_name)
        promote(model_name, version, "production")
    searches, turns, search, taken = [], [], client.search_model_versions, retention.locked
    monkeypatch.setattr(
        client, "search_model_versions", lambda *a, **k: searches.append(a) or search(*a, **k)
    )
    assert numbers(candidates(model_name, 0, client=client)) == [1, 2, 3, 4]
    assert len(searches) == 2
    monkeypatch.setattr(retention, "locked", lambda *a: turns.append(a) or taken(*a))
    assert numbers(prune(model_name, 0, client=client)) == [1, 2, 3, 4]
    assert len(turns) == 1


def test_a_version_asks_for_the_whole_model_once_in_a_turn(client, make_version, model_name):
    """MLflow answers with every version and entry: a request for each would be quadratic."""
    for version in range(1, 7):
        make_version(model_name)
        promote(model_name, version, "production", client=client)
    left, ask = candidates(model_name, 0, client=client), client.get_registered_model
    counts = []
    for versions in (left[:1], left[1:]):
        asked: list[str] = []
        client.get_registered_model = lambda name, to=asked: to.append(name) or ask(name)
        with retention.locked(client, model_name) as lock:
            now = retention.situation(client, model_name, lock)
            retention._Turn(now, math.inf, math.inf).prune(versions)
        counts.append(asked.count(model_name))
    assert len(left) == 4 and counts[0] == counts[1]


def test_what_another_deleted_meanwhile_is_passed_over(client, name, monkeypatch):
    taken = retention.locked

    def after_another(client, model):
        if numbers(candidates(name, 0)) == [1, 2]:
            client.delete_model_version(name, "1")
        return taken(client, model)

    monkeypatch.setattr(retention, "locked", after_another)
    assert numbers(prune(name, 0, client=client)) == [2]


def test_a_long_turn_at_the_lock_is_taken_in_parts(client, name):
    held_s: list[float] = []
    assert numbers(prune(name, 0, turn_s=0.0, on_turn=held_s.append)) == [1, 2]
    assert history(name)[1] == []
    assert len(held_s) == 2 and min(held_s) > 0


def test_no_more_than_asked_for_go(client, name):
    assert len(prune(name, 0, most=1)) == 1
    assert len(candidates(name, 0)) == 1


@pytest.mark.parametrize("below", ["", "/../../../precious"])
def test_what_a_version_names_as_its_source_is_no_reason_to_delete_it(
    client, make_version, model_name, tmp_path, below
):
    """Whoever may make versions may name any folder of whoever prunes them."""
    precious = tmp_path / "precious"
    precious.mkdir()
    run = client.get_run(make_version(model_name).run_id)
    source = run.info.artifact_uri + below if below else f"file://{precious}"
    client.create_model_version(model_name, source, run.info.run_id)
    promote(model_name, 2, "archived")
    assert numbers(prune(model_name, 0)) == [2]
    assert precious.is_dir()


def test_the_files_of_a_logged_model_go_with_its_version(client, model_name, tmp_path):
    made = client.create_logged_model(client.create_experiment("logged"), name="model")
    run = client.create_run(made.experiment_id)
    (tmp_path / "weights").write_text("")
    client.log_model_artifact(made.model_id, str(tmp_path / "weights"))
    client.create_registered_model(model_name)
    client.create_model_version(model_name, f"models:/{made.model_id}", run.info.run_id)
    version = Version.of(client.get_model_version(model_name, "1"))
    assert is_own(client, version)
    folder = Path(made.artifact_location.removeprefix("file://"))
    assert any(folder.iterdir())
    promote(model_name, 1, "archived")
    prune(model_name, 0)
    assert not folder.exists()
