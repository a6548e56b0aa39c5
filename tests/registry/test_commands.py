"""Commands of the registry as people type them, each seen to work."""

from pathlib import Path

import pytest
from conftest import on_sqlite_only
from door import hetfeat

import mlproject
from registry.cli import app
from registry.models.version import METRIC_PREFIX

MODEL = "costmodel.cpu-x86"
LINES = [
    f"promote {MODEL} 1 --to production",
    f"promote {MODEL} 2 --to production",
    f"rollback {MODEL}",
    "versions",
    f"versions {MODEL}",
    f"history {MODEL}",
    f"lineage {MODEL}/1",
    f"compare {MODEL}/1 {MODEL}/2",
    f"pull {MODEL} --out out",
    f"retention {MODEL}",
    "doctor",
]


@on_sqlite_only
def test_every_command_works(client, make_version, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        make_version(MODEL)
    for line in LINES:
        assert app.run(mlproject.cli, line.split()) == 0, line
        assert capfd.readouterr().out.strip(), line
    client.set_registered_model_alias(MODEL, "production", "2")
    assert hetfeat(capfd, "doctor").code == 1
    repaired = hetfeat(capfd, "doctor", "--repair", "true")
    assert (repaired.code, repaired.value["left"]) == (0, 0)
    assert [finding["repaired"] for finding in repaired.value["findings"]] == [True]


@on_sqlite_only
def test_a_refused_promotion_says_what_each_gate_said(client, make_version, model_name, capfd):
    folder = client.get_run(make_version(model_name).run_id).info.artifact_uri
    (Path(folder.removeprefix("file://")) / "model" / "model.ubj").write_bytes(b"{")
    refused = hetfeat(capfd, "promote", model_name, "1", "--to", "production")
    assert (refused.code, refused.errors.count("\n")) == (3, 1)
    assert refused.errors.startswith("hetfeat: version 1 of")
    assert (refused.value["from"], refused.value["to"]) == ("none", "production")
    assert not refused.value["changed"]
    assert [g["gate"] for g in refused.value["gates"] if g["outcome"] == "refused"] == ["artifacts"]


@on_sqlite_only
@pytest.mark.parametrize(("pca", "code"), [("0.9", 0), ("0.4", 3)])
def test_a_dry_run_says_what_the_gates_would_and_changes_nothing(
    client, make_version, model_name, capfd, pca, code
):
    make_version(model_name)
    client.set_model_version_tag(model_name, "1", f"{METRIC_PREFIX}pca", pca)
    before = client.get_registered_model(model_name)
    line = ("promote", model_name, "1", "--to", "production")
    asked = hetfeat(capfd, *line, "--dry-run")
    assert (asked.code, asked.value["changed"]) == (code, False)
    assert (asked.value["from"], asked.value["to"]) == ("none", "production")
    after = client.get_registered_model(model_name)
    assert (after.tags, after.aliases) == (before.tags, before.aliases)
    promoted = hetfeat(capfd, *line)
    assert (promoted.code, promoted.value["changed"]) == (code, code == 0)
    assert promoted.value["gates"] == asked.value["gates"]


@on_sqlite_only
def test_retention_lists_unless_it_is_told_to_delete(client, make_version, model_name, capfd):
    for version in ("1", "2", "3", "4"):
        make_version(model_name)
        promoted = hetfeat(capfd, "promote", model_name, version, "--to", "production")
        assert promoted.code == 0, promoted.errors
    line = ("retention", model_name, "--older-than", "0")
    for told, deleted in (((), False), (("--apply", "false"), False), (("--apply", "true"), True)):
        found = hetfeat(capfd, *line, *told).value
        assert (found["deleted"], sorted(found["versions"])) == (deleted, [1, 2])
    assert hetfeat(capfd, *line).value["versions"] == []
