"""`hetfeat cache prune`: what goes, what stays."""

import errno
import json
import os
import time
from pathlib import Path

import pytest

import mlproject
from registry.cli import app
from registry.files import cache
from registry.files.manifest import write_manifest
from registry.files.pull import pull

HOUR = 3600.0


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "models"


def copy(models: Path, name: str, kilobytes: int, hours_ago: float) -> Path:
    folder = models / name / "inner"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(1000 * kilobytes))
    then = time.time() - HOUR * hours_ago
    os.utime(models / name, (then, then))
    return models / name


def pruned(capfd, gb: str) -> dict:
    capfd.readouterr()  # MLflow names each run of a server
    assert app.run(mlproject.cli, ["cache", "prune", "--max-gb", gb, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def test_what_was_used_longest_ago_goes_first(models, capfd):
    old, older, recent = (copy(models, *c) for c in [("b", 4, 5), ("a", 4, 9), ("c", 4, 2)])
    found = pruned(capfd, "0.000009")  # 9 kB of 12
    assert (found["removed"], found["freed_bytes"]) == (1, 4000)
    assert (found["kept"], found["kept_bytes"]) == (2, 8000)
    assert not older.exists() and old.exists() and recent.exists()


def test_what_is_in_use_stays(models, capfd):
    copy(models, "a", 4, 0.1)
    assert pruned(capfd, "0")["kept_bytes"] == 4000


def test_leftovers_of_interrupted_pulls_go_whatever_fits(models, capfd):
    copy(models, ".draft-x", 4, 30)
    copy(models, ".draft-under-way", 4, 0.1)
    found = pruned(capfd, "5")
    assert (found["removed"], found["kept"]) == (1, 0)
    assert [path.name for path in models.iterdir()] == [".draft-under-way"]


def test_what_another_process_removes_meanwhile_is_no_trouble(models, capfd, monkeypatch):
    def gone(path):
        raise FileNotFoundError(errno.ENOENT, "gone")

    copy(models, "a", 4, 2)
    monkeypatch.setattr(Path, "lstat", gone)
    assert pruned(capfd, "5")["kept_bytes"] == 0


def test_nothing_there_is_nothing_to_do(capfd):
    assert pruned(capfd, "5")["removed"] == 0


def test_it_may_be_below_the_users_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HETFEAT_HOME", "~/mine")
    assert cache.models_folder() == tmp_path / "mine" / "models"


def test_finding_a_copy_is_using_it(models):
    models.mkdir(parents=True)
    draft = models / "draft"
    draft.mkdir()
    (draft / "weights").write_bytes(b"1")
    digest = write_manifest(draft)
    kept = cache.keep(draft, digest)
    os.utime(kept, (0, 0))
    assert cache.find(digest) == kept
    assert kept.stat().st_mtime > time.time() - HOUR


def test_what_went_is_fetched_again(models, client, make_version, model_name, capfd):
    version = make_version(model_name)
    first = pull(version.uri, client=client)
    os.utime(first.folder, (0, 0))
    assert pruned(capfd, "0")["removed"] == 1
    assert pull(version.uri, client=client).source == "registry"
