import itertools
from dataclasses import asdict

import pytest
from conftest import on_sqlite_only
from mlflow.exceptions import MlflowException

from hetfeat.errors import GateRefused, RequestError, WorkFailed
from registry.files.moves import promote
from registry.models import aliases, ledger
from registry.models.aliases import State
from registry.models.lock import locks_of
from registry.models.stages import GateResult, check_reason, history
from registry.models.version import MANIFEST_TAG
from registry.models.versions import resolve


def shown(client, name: str) -> State:
    state = aliases.read(client, name).aliases
    assert aliases.differences(client, name, state) == [], "aliases and stages must agree"
    return state


def test_a_version_goes_its_way(client, make_version, model_name):
    for _ in range(2):
        make_version(model_name)
    promote(model_name, 1, "staging")
    assert shown(client, model_name) == State(staging=1)
    outcome = promote(model_name, 1, "production", reason="first")
    assert (outcome.from_, outcome.to, outcome.previous) == ("staging", "production", None)
    assert shown(client, model_name) == State(production=1)
    outcome = promote(model_name, 2, "production")
    assert (outcome.from_, outcome.previous) == ("none", 1)
    assert shown(client, model_name) == State(production=2, previous=1)
    assert resolve(f"{model_name}/1").stage == "archived"
    promote(model_name, 2, "archived")
    assert shown(client, model_name) == State(previous=2)
    entries, faults = history(model_name)
    assert faults == []
    assert [(e["version"], e["from"], e["to"]) for e in entries] == [
        (1, "none", "staging"),
        (1, "staging", "production"),
        (2, "none", "production"),
        (2, "production", "archived"),
    ]
    assert entries[1]["reason"] == "first"
    assert ledger.PENDING not in aliases.read(client, model_name).tags


@on_sqlite_only
def test_out_of_the_archive_and_back_into_it(client, make_version, model_name):
    make_version(model_name)
    way = ["archived", "staging", "archived", "production", "archived"]
    for to in way:
        promote(model_name, 1, to)
    assert [(e["from"], e["to"]) for e in history(model_name)[0]] == list(
        itertools.pairwise(["none", *way])
    )


def test_already_there_leaves_no_entry(client, make_version, model_name):
    make_version(model_name)
    promote(model_name, 1, "production")
    outcome = promote(model_name, 1, "production")
    assert (outcome.entry, outcome.from_, outcome.to) == (None, "production", "production")
    assert len(history(model_name)[0]) == 1


def test_a_new_staged_version_replaces_the_old_one(client, make_version, model_name):
    for version in (1, 2):
        make_version(model_name)
        promote(model_name, version, "staging")
    assert shown(client, model_name) == State(staging=2)
    assert resolve(f"{model_name}/1").stage == "archived"


@pytest.mark.parametrize(("first", "then"), [("production", "staging"), ("production", "nowhere")])
def test_an_unknown_move_is_refused(client, make_version, model_name, first, then):
    make_version(model_name)
    promote(model_name, 1, first)
    with pytest.raises(RequestError):
        promote(model_name, 1, then)
    assert len(history(model_name)[0]) == 1


def test_no_lock_is_left(client, make_version, model_name):
    make_version(model_name)
    promote(model_name, 1, "production")
    with pytest.raises(RequestError):
        promote(model_name, 1, "staging")
    with pytest.raises(RequestError, match="version 9"):
        promote(model_name, 9, "staging")
    assert locks_of(client, model_name) == []


def refuse(version, replaced, to):
    return [
        GateResult("features", "passed", "version 3"),
        GateResult("pca", "refused", "0.8, not over 0.9"),
        GateResult("top1", "refused", "0.1, at least 0.5"),
    ]


def test_a_gate_refuses_and_is_overridden(client, make_version, model_name):
    make_version(model_name)
    with pytest.raises(GateRefused) as caught:
        promote(model_name, 1, "production", gates=refuse)
    assert str(caught.value) == (
        f"version 1 of '{model_name}' for production, refused by pca (0.8, not over 0.9); "
        "top1 (0.1, at least 0.5); expected every gate passed; "
        "train a better one, or override with --force true --reason TEXT"
    )
    assert history(model_name)[0] == []
    with pytest.raises(RequestError, match="reason"):
        promote(model_name, 1, "production", gates=refuse, force=True)
    outcome = promote(model_name, 1, "production", gates=refuse, force=True, reason="demo")
    assert outcome.gates == (
        GateResult("features", "passed", "version 3"),
        GateResult("pca", "overridden", "0.8, not over 0.9"),
        GateResult("top1", "overridden", "0.1, at least 0.5"),
    )
    (entry,) = history(model_name)[0]
    assert outcome.entry == entry
    assert entry["forced"] and entry["reason"] == "demo"
    assert entry["gates"] == [asdict(result) for result in outcome.gates]


@on_sqlite_only
def test_what_an_entry_says(client, make_version, model_name):
    first, second = (make_version(model_name) for _ in range(2))
    asked = []

    def gates(version, replaced, to):
        asked.append((version.version, replaced and replaced.version, to))
        return [GateResult("pca", "passed", "0.9")]

    promote(model_name, 1, "production", gates=gates)
    promote(model_name, 2, "Production", gates=gates, reason="better")
    assert asked == [(1, None, "production"), (2, 1, "production")]
    entries = history(model_name)[0]
    assert [entry["manifest"] for entry in entries] == [
        version.tags[MANIFEST_TAG] for version in (first, second)
    ]
    assert {name: entries[1][name] for name in set(entries[1]) - {"who", "when"}} == {
        "name": model_name,
        "n": 2,
        "before": entries[0]["digest"],
        "digest": ledger.digest_of(entries[1]),
        "kind": "promote",
        "version": 2,
        "from": "none",
        "to": "production",
        "reason": "better",
        "forced": False,
        "gates": [{"gate": "pca", "outcome": "passed", "figures": "0.9"}],
        "replaced": 1,
        "manifest": second.tags[MANIFEST_TAG],
        "state": asdict(State(production=2, previous=1)),
    }


@on_sqlite_only
def test_artifacts_are_read_before_the_lock_and_not_in_vain(client, make_version, model_name):
    locks = []

    def read(client, version, digest):
        locks.append(locks_of(client, version.name))

    make_version(model_name)
    promote(model_name, 1, "production", read_files=read)
    assert locks == [[]]
    promote(model_name, 1, "production", read_files=read)
    assert locks == [[]]


@on_sqlite_only
def test_a_promotion_to_where_it_is_mends_an_alias_that_was_moved(client, make_version, model_name):
    make_version(model_name)
    promote(model_name, 1, "production")
    client.delete_registered_model_alias(model_name, "production")
    outcome = promote(model_name, 1, "production")
    assert outcome.entry is not None and outcome.from_ == "production"
    assert shown(client, model_name) == State(production=1)


@on_sqlite_only
def test_a_witness_that_is_archived_is_heard(client, make_version, model_name):
    """Whoever cuts the tail must not get away with archiving the version that saw it."""
    make_version(model_name)
    promote(model_name, 1, "production")
    seen = resolve(f"{model_name}/1").tags[ledger.HEAD]
    promote(model_name, 1, "archived")
    tags = aliases.read(client, model_name).tags
    client.set_model_version_tag(model_name, "1", ledger.HEAD, seen.replace("1:", "9:"))
    assert ledger.faults(model_name, tags) == []
    assert history(model_name)[1] == ["entry 9 is not the one that a version in production saw"]


@pytest.mark.parametrize(
    ("reason", "force", "said"),
    [
        ("", True, "--force true without --reason; expected a reason; add --reason TEXT"),
        ("  ", True, "--force true without --reason; expected a reason; add --reason TEXT"),
        ("r" * 501, False, "a reason of 501 characters; expected at most 500; shorten it"),
    ],
)
def test_reasons_that_are_none_or_too_long(reason, force, said):
    for allowed in (("", False), ("because", True), ("r" * 500, True)):
        check_reason(*allowed)
    with pytest.raises(RequestError) as caught:
        check_reason(reason, force)
    assert str(caught.value) == said


@on_sqlite_only
def test_nothing_but_the_client_given_is_asked(
    client, make_version, model_name, monkeypatch, tmp_path
):
    for _ in range(2):
        make_version(model_name)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'no' / 'such.db'}")
    for version in (1, 2):
        promote(model_name, version, "production", client=client)
    assert len(history(model_name, client=client)[0]) == 2


@on_sqlite_only
def test_a_version_that_is_not_of_our_making_has_no_manifest(client, make_version, model_name):
    make_version(model_name)
    client.delete_model_version_tag(model_name, "1", MANIFEST_TAG)
    promote(model_name, 1, "archived")
    assert history(model_name)[0][0]["manifest"] == ""


@on_sqlite_only
def test_a_server_that_fails_is_said_with_what_was_asked_of_it(
    client, make_version, model_name, monkeypatch
):
    def fail(*_, **__):
        raise MlflowException("out of order")

    make_version(model_name)
    for method in ("create_registered_model", "search_model_versions"):
        monkeypatch.setattr(client, method, fail)
    with pytest.raises(WorkFailed, match=f"to promote {model_name} .*out of order"):
        promote(model_name, 1, "staging", client=client)
    with pytest.raises(WorkFailed, match=f"to read the history of {model_name} .*out of order"):
        history(model_name, client=client)


@on_sqlite_only
def test_what_there_is_not_is_said(client, make_version, model_name):
    make_version(model_name)
    for to in ("none", "nowhere"):
        with pytest.raises(RequestError) as caught:
            promote(model_name, 1, to)
        assert str(caught.value) == (
            f"stage '{to}'; expected one of staging, production, archived; correct --to"
        )
    promote(model_name, 1, "production")
    with pytest.raises(RequestError) as caught:
        promote(model_name, 1, "staging")
    assert str(caught.value) == (
        f"version 1 of '{model_name}', in production, to staging; "
        "expected production -> archived; "
        f"`hetfeat rollback {model_name}` undoes the last change of production"
    )
    with pytest.raises(RequestError, match=r"costmodel\.nothing"):
        history("costmodel.nothing")
