import pytest

from hetfeat.errors import GateRefused, RequestError
from registry import ledger, mirror
from registry.lock import locks_of
from registry.mirror import State
from registry.stages import GateResult, history, promote
from registry.versions import resolve


def shown(client, name: str) -> State:
    state = mirror.read(client, name).aliases
    assert mirror.differences(client, name, state) == [], "aliases and stages must agree"
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
    assert ledger.PENDING not in mirror.read(client, model_name).tags


def test_already_there_leaves_no_entry(client, make_version, model_name):
    make_version(model_name)
    promote(model_name, 1, "production")
    outcome = promote(model_name, 1, "production")
    assert outcome.entry is None and outcome.from_ == "production"
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
    return [GateResult("pca", "refused", f"0.8, not over 0.9 of {replaced}")]


def test_a_gate_refuses_and_is_overridden(client, make_version, model_name):
    make_version(model_name)
    with pytest.raises(GateRefused, match=r"pca .*--force true --reason"):
        promote(model_name, 1, "production", gates=refuse)
    assert history(model_name)[0] == []
    with pytest.raises(RequestError, match="reason"):
        promote(model_name, 1, "production", gates=refuse, force=True)
    promote(model_name, 1, "production", gates=refuse, force=True, reason="demo on Monday")
    (entry,) = history(model_name)[0]
    assert entry["forced"] and entry["reason"] == "demo on Monday"
    assert entry["gates"][0]["outcome"] == "overridden"
