"""The commands that share records: what they take, say and refuse."""

import sys
from pathlib import Path

import pytest
from door import hetfeat

from hetfeat.testing import stores


@pytest.fixture
def lab(tmp_path, monkeypatch) -> str:
    """Two stores in the working folder, and the URI of a table that has the first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "home"))
    stores.make_store(Path("mine"), devices=("a",), tasks=6, per_task=12)
    stores.make_store(Path("yours"), devices=("c", "a"), tasks=3, per_task=12)
    return (tmp_path / "table").as_uri()


@pytest.fixture
def table(lab, capfd) -> str:
    assert hetfeat(capfd, "records", "push", "mine", lab).value["records"] == 72
    return lab


def test_a_table_is_read_as_a_store_is(table, capfd):
    mine = hetfeat(capfd, "records", "stats", "mine").value
    shared = hetfeat(capfd, "records", "stats", table).value
    assert shared["counts"] == mine["counts"]
    assert hetfeat(capfd, "records", "verify", "table").value["damaged"] == {}
    pruned = hetfeat(capfd, "prune", table, "--out", f"{table}2", "--fraction", "0.5").value
    again = hetfeat(capfd, "records", "stats", f"{table}2").value
    assert again["records"] == pruned["kept"]


def test_a_device_with_the_name_of_another_is_refused_and_renamed(table, capfd):
    refused = hetfeat(capfd, "records", "push", "yours", table)
    assert refused.code == 2
    assert "a: threads 2, not 1" in refused.errors
    named = hetfeat(capfd, "records", "push", "yours", table, "--rename", "a=a2").value
    assert named["devices"] == ["a2", "c"]
    old = hetfeat(capfd, "records", "stats", table, "--as-of", "1").value
    assert {row["device"] for row in old["counts"]} == {"a"}


def test_stores_are_merged_and_pulled(table, capfd):
    arguments = ("records", "merge", "mine", "mine", "--out", "ours")
    merged = hetfeat(capfd, *arguments).value
    assert (merged["records"], merged["duplicates"]) == (72, 72)
    pulled = hetfeat(capfd, "records", "pull", table, "--out", "ours").value
    assert (pulled["records"], pulled["duplicates"]) == (0, 0)  # the same shards: not even read


def test_a_damaged_table_is_told_by_its_exit_code(table, capfd):
    next(Path("table").glob("device=a/*.parquet")).write_bytes(b"PAR1")
    found = hetfeat(capfd, "records", "verify", table)
    assert (found.code, len(found.value["damaged"])) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stats", "mine", "--as-of", "1"], "which has versions"),
        (["stats", "TABLE", "--as-of", "9"], "a version of the table"),
        (["push", "mine", "nowhere"], "which is no table"),
        (["push", "mine", "s3://B/x"], "s3://BUCKET/KEY"),
        (["push", "mine", "TABLE", "--rename", "x=y"], "one of a"),
        (["push", "mine", "TABLE", "--rename", "a"], "NAME=NEW"),
        (["compact", "TABLE", "--keep-hours", "1"], "24 at least"),
    ],
)
def test_what_is_refused(table, capfd, arguments, said):
    words = [table if word == "TABLE" else word for word in arguments]
    refused = hetfeat(capfd, "records", *words)
    assert refused.code == 2
    assert said in refused.errors


def test_a_missing_package_is_named(lab, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    refused = hetfeat(capfd, "records", "push", "mine", lab)
    assert refused.code == 1
    assert "'deltalake', which is not installed" in refused.errors
