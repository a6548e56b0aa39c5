import functools
import json
import uuid

import pytest
from conftest import on_sqlite_only
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED

from hetfeat.errors import WorkFailed
from registry.files.moves import promote, rollback
from registry.files.pull import pull
from registry.maintenance import audit
from registry.maintenance import repair as repairs
from registry.models import aliases, ledger, process
from registry.models.aliases import State
from registry.models.lock import locks_of
from registry.models.stages import history
from registry.models.version import MANIFEST_TAG

diagnose = functools.partial(audit.diagnose, settle_s=0.0)
repair = functools.partial(repairs.repair, settle_s=0.0)


@pytest.fixture
def name(make_version, model_name) -> str:
    for version in (1, 2, 3):
        make_version(model_name)
        if version < 3:
            promote(model_name, version, "production")
    return model_name


GATED = State(production=2, previous=1)


def stage(client, name, version, stage):
    client.transition_model_version_stage(name, str(version), stage)


def second_production(client, name):
    stage(client, name, 3, "Production")


def alias_moved(client, name):
    client.set_registered_model_alias(name, "production", "3")


def alias_deleted(client, name):
    client.delete_registered_model_alias(name, "previous")


def both_moved(client, name):
    alias_moved(client, name)
    stage(client, name, 3, "Production")
    stage(client, name, 2, "Archived")


def staged_by_hand(client, name):
    stage(client, name, 3, "Staging")


EDITS = [second_production, alias_moved, alias_deleted, both_moved, staged_by_hand]


def test_a_sound_registry(client, name):
    assert diagnose(client, [name]) == []


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_past_the_gates_is_undone(client, name, edit):
    edit(client, name)
    (finding,) = diagnose(client, [name])
    assert (finding.code, finding.safe) == ("edited", True)
    assert repair(client, [finding]) == []
    assert aliases.differences(client, name, GATED) == []
    assert pull(name, "production").version.version == 2
    entries, faults = history(name)
    assert (
        faults == []
        and entries[-1]["kind"] == "repair"
        and "past the gates" in entries[-1]["reason"]
    )
    promote(name, 3, "production")


def test_stages_set_before_there_was_a_ledger_are_adopted(client, make_version, model_name):
    make_version(model_name)
    stage(client, model_name, 1, "Production")
    (finding,) = diagnose(client, [model_name])
    assert (finding.code, finding.safe) == ("unrecorded", False)
    assert repair(client, [finding]) == [finding]
    assert repair(client, [finding], to="aliases") == []
    assert aliases.read(client, model_name).aliases == State(production=1)


def test_a_deleted_version_in_production_is_not_papered_over(client, name):
    client.delete_model_version(name, "2")
    (finding,) = diagnose(client, [name])
    assert "version 2 was deleted" in finding.what
    assert repair(client, [finding]) == []
    assert aliases.read(client, name).aliases == State(previous=1)


def test_a_deleted_version_in_production_whose_alias_was_moved_takes_a_person(client, name):
    alias_moved(client, name)
    client.delete_model_version(name, "2")
    (finding,) = diagnose(client, [name])
    assert not finding.safe and finding.action.startswith("promote another version")
    promote(name, 3, "production")
    assert diagnose(client, [name]) == []


def damage_entry(client, name):
    entry = json.loads(aliases.read(client, name).tags[ledger.key(1)])
    changed = entry | {"who": entry["who"] + " or another"}
    client.set_registered_model_tag(name, ledger.key(1), json.dumps(changed))


def cut_entry(client, name):
    client.delete_registered_model_tag(name, ledger.key(2))


def cut_tail_and_head(client, name):
    first = ledger.decode(aliases.read(client, name).tags[ledger.key(1)])
    client.delete_registered_model_tag(name, ledger.key(2))
    client.set_registered_model_tag(name, ledger.HEAD, f"1:{first['digest']}")


def cut_everything(client, name):
    for key in (ledger.key(1), ledger.key(2), ledger.HEAD):
        client.delete_registered_model_tag(name, key)


@on_sqlite_only  # the next one mends a ledger on a server, too
@pytest.mark.parametrize("damage", [damage_entry, cut_entry, cut_tail_and_head])
def test_a_damaged_ledger_is_mended_on_record(client, name, damage):
    damage(client, name)
    (finding,) = diagnose(client, [name])
    assert (finding.code, finding.safe) == ("ledger", damage is damage_entry)
    assert repair(client, [finding], to=None if finding.safe else "aliases") == []
    assert aliases.differences(client, name, GATED) == []
    promote(name, 3, "staging")
    entries, faults = history(name)
    assert faults == [] and entries[-2]["kind"] == "repair"
    damage_entry(client, name)
    assert [f.code for f in diagnose(client, [name])] == ["ledger"], (
        "what is left stays under guard"
    )


def test_a_ledger_cut_away_whole_is_seen_by_the_version_in_production(client, name):
    cut_everything(client, name)
    findings = diagnose(client, [name])
    assert [(f.code, f.safe) for f in findings] == [("ledger", False)]
    assert repair(client, findings, to="aliases") == []
    assert aliases.differences(client, name, GATED) == []


@on_sqlite_only
@pytest.mark.parametrize(("to", "state"), [("ledger", GATED), ("aliases", State(production=3))])
def test_a_moved_alias_beside_a_damaged_ledger_is_nothing_to_repair_unasked(
    client, name, to, state
):
    """Whoever moves an alias and damages the ledger is not made official."""
    client.set_registered_model_tag(name, ledger.key(1), "x")
    alias_moved(client, name)
    (finding,) = diagnose(client, [name])
    assert (finding.code, finding.safe) == ("ledger", False)
    assert "production 2, previous 1" in finding.what and "production 3" in finding.what
    assert repair(client, [finding]) == [finding]
    assert len(ledger.numbers(aliases.read(client, name).tags)) == 2
    if to == "aliases":
        alias_deleted(client, name)
    assert repair(client, [finding], to=to) == []
    assert aliases.differences(client, name, state) == []
    (last,) = history(name)[0][-1:]
    digest = client.get_model_version(name, str(state.production)).tags[MANIFEST_TAG]
    assert last["manifests"][str(state.production)] == digest


@on_sqlite_only
def test_no_repair_vouches_for_files_that_were_changed(client, name):
    client.set_registered_model_tag(name, ledger.key(1), "x")
    alias_moved(client, name)
    client.set_model_version_tag(name, "3", MANIFEST_TAG, "0" * 64)
    (left,) = repair(client, diagnose(client, [name]), to="aliases")
    assert not left.safe and left.action.startswith("not done: ")
    assert len(ledger.numbers(aliases.read(client, name).tags)) == 2


def test_an_unfinished_promotion_is_finished(client, name, monkeypatch):
    entry = {}

    def die(*args):
        entry.update(args[3])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("registry.models.transition._finish", die)
        promote(name, 3, "production")
    (finding,) = diagnose(client, [name])
    assert finding.code == "unfinished"
    assert repair(client, [finding]) == []
    assert aliases.differences(client, name, State(production=3, previous=2)) == []
    assert history(name)[0][-1] == entry


def test_an_unfinished_archiving_of_a_version_that_is_gone_is_dropped(client, name, monkeypatch):
    def die(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("registry.models.transition._finish", die)
        promote(name, 3, "archived")
    client.delete_model_version(name, "3")
    (finding,) = diagnose(client, [name])
    assert finding.code == "unfinished"
    assert repair(client, [finding]) == []
    assert aliases.differences(client, name, GATED) == []


def test_a_changed_digest_is_put_back(client, name):
    digest = client.get_model_version(name, "2").tags[MANIFEST_TAG]
    client.set_model_version_tag(name, "2", MANIFEST_TAG, "0" * 64)
    (finding,) = diagnose(client, [name])
    assert finding.code == "digest"
    assert repair(client, [finding]) == []
    assert client.get_model_version(name, "2").tags[MANIFEST_TAG] == digest


@on_sqlite_only
@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("forged", [{"manifest": "0" * 64}, {"state": {"production": 3}}, None])
def test_a_forged_entry_is_never_acted_on(client, name, forged, sealed):
    promote(name, 3, "staging")
    digest = client.get_model_version(name, "2").tags[MANIFEST_TAG]
    entry = json.loads(aliases.read(client, name).tags[ledger.key(2)])
    changed = {} if forged is None else entry | forged
    changed |= {"digest": ledger.digest_of(changed)} if sealed else {}
    client.set_registered_model_tag(name, ledger.key(2), json.dumps(changed))
    assert repair(client, diagnose(client, [name])) == []
    assert diagnose(client, [name]) == []
    assert client.get_model_version(name, "2").tags[MANIFEST_TAG] == digest
    pull(name, "production")
    rollback(name)
    assert aliases.read(client, name).aliases.production == 1


@on_sqlite_only
def test_a_run_and_artifacts_that_are_gone_are_not_repaired(client, name, tmp_path):
    run = client.get_run(client.get_model_version(name, "2").run_id)
    client.delete_run(run.info.run_id)
    for path in sorted((tmp_path / "mlruns").rglob(f"{run.info.run_id}/**/*.*")):
        path.unlink()
    findings = diagnose(client, [name])
    assert [f.code for f in findings] == ["run", "artifacts"]
    assert repair(client, findings) == findings


def test_only_versions_in_use_are_searched_unless_asked(client, name):
    client.delete_run(client.get_model_version(name, "3").run_id)
    assert diagnose(client, [name]) == []
    assert [f.code for f in diagnose(client, [name], every_version=True)] == ["run"]
    alias_deleted(client, name)
    findings = diagnose(client, [name], every_version=True)
    assert [f.code for f in repair(client, findings, every_version=True)] == ["run"]


@on_sqlite_only
def test_a_run_that_cannot_be_read_is_not_said_to_be_gone(client, name, monkeypatch):
    def fail(run_id):
        raise error

    monkeypatch.setattr(client, "get_run", fail)
    error = MlflowException("not for you", PERMISSION_DENIED)
    findings = diagnose(client, [name])
    assert [(f.code, "cannot be read" in f.what) for f in findings] == [("run", True)] * 2
    error = MlflowException("out of order")
    with pytest.raises(WorkFailed, match="out of order"):
        diagnose(client, [name])


def test_a_lock_left_behind_is_deleted(client, name):
    dead = json.loads(process.describe()) | {"started": "1"}
    tags = {"holder": "eve", "owner": json.dumps(dead, sort_keys=True)}
    client.create_registered_model(f"lock--{name}", tags=tags)
    (finding,) = diagnose(client, [name])
    assert finding.code == "lock" and "eve" in finding.what
    assert repair(client, [finding]) == []
    assert locks_of(client, name) == []


def test_a_lock_at_work_is_no_finding(client, name):
    client.create_registered_model(f"lock--{name}", tags={"owner": process.describe()})
    assert diagnose(client, [name]) == []


def test_a_run_whose_process_is_gone_is_ended(client, tracking_uri):
    dead = json.dumps(json.loads(process.describe()) | {"started": "1"})
    elsewhere = json.dumps(json.loads(dead) | {"host": "elsewhere"})
    experiment = client.create_experiment(f"runs-{uuid.uuid4().hex[:8]}")
    owners = {"gone": dead, "here": process.describe(), "elsewhere": elsewhere, "older": "["}
    runs = {
        said: client.create_run(experiment, tags={"process": owner}).info.run_id
        for said, owner in owners.items()
    }
    shared = client.create_run(experiment, tags={"process": dead}).info.run_id
    part = {"process": process.describe(), "mlflow.parentRunId": shared}
    client.create_run(experiment, tags=part)
    found = [finding for finding in diagnose(client) if finding.code == "running"]
    assert [finding.model for finding in found] == [f"run {runs['gone']}"]
    assert repair(client, found) == []
    states = {said: client.get_run(run_id).info.status for said, run_id in runs.items()}
    assert states == dict.fromkeys(owners, "RUNNING") | {"gone": "KILLED"}


def test_findings_of_many_models_share_one_wait(client, make_version, monkeypatch):
    names = [f"costmodel.cpu-x86.{uuid.uuid4().hex[:8]}" for _ in range(3)]
    for name in names:
        make_version(name)
        stage(client, name, 1, "Production")
    waits = []
    monkeypatch.setattr("registry.maintenance.audit.time.sleep", waits.append)
    assert len(diagnose(client, names)) == 3
    assert len(waits) == 1
