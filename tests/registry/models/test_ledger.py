"""The ledger in a registry; `test_chain.py` has every way in which one can be damaged."""

import json

import pytest

import mlproject
from hetfeat.errors import DataError
from registry.cli import app
from registry.files.moves import promote
from registry.models import aliases, ledger
from registry.models.aliases import State
from registry.models.stages import history
from registry.models.versions import resolve


def test_the_head_is_on_the_version_in_production(client, make_version, model_name):
    make_version(model_name)
    promote(model_name, 1, "production")
    make_version(model_name)
    promote(model_name, 2, "staging")
    tags = aliases.read(client, model_name).tags
    assert resolve(f"{model_name}/1").tags[ledger.HEAD] == tags[ledger.HEAD]
    assert tags[ledger.HEAD].startswith("2:")


def test_a_damaged_ledger_is_seen_and_stops_promotions(client, make_version, model_name):
    for version in (1, 2):
        make_version(model_name)
        promote(model_name, version, "production")
    entry = json.loads(aliases.read(client, model_name).tags[ledger.key(1)])
    text = json.dumps(entry | {"who": "somebody else"})
    client.set_registered_model_tag(model_name, ledger.key(1), text)
    assert history(model_name)[1] == ["entry 1 was changed"]
    with pytest.raises(DataError, match=r"entry 1 was changed.*hetfeat doctor"):
        promote(model_name, 1, "production")
    assert aliases.read(client, model_name).aliases == State(production=2, previous=1)


def test_a_whole_cut_tail_is_seen_by_the_version_in_production(client, make_version, model_name):
    for version in (1, 2):
        make_version(model_name)
        promote(model_name, version, "production")
    tags = aliases.read(client, model_name).tags
    witness = resolve(f"{model_name}@production").tags[ledger.HEAD]
    first = ledger.decode(tags[ledger.key(1)])
    assert first is not None
    client.delete_registered_model_tag(model_name, ledger.key(2))
    client.set_registered_model_tag(model_name, ledger.HEAD, f"1:{first['digest']}")
    tags = aliases.read(client, model_name).tags
    assert ledger.faults(model_name, tags) == []
    assert ledger.faults(model_name, tags, [witness]) != []
    with pytest.raises(DataError):
        promote(model_name, 1, "production")


def test_an_entry_that_lost_its_keys_is_shown_with_the_fault(
    client, make_version, model_name, capfd
):
    make_version(model_name)
    promote(model_name, 1, "production")
    client.set_registered_model_tag(model_name, ledger.key(1), "{}")
    assert app.run(mlproject.cli, ["history", model_name]) == 0
    assert "not as it was written: entry 1 was changed" in capfd.readouterr().out
