import json
import os
from pathlib import Path

import pytest
from conftest import on_sqlite_only

from hetfeat.errors import DataError, HetfeatError, RequestError, WorkFailed
from registry import cache
from registry.manifest import MANIFEST, write_manifest
from registry.pull import pull
from registry.stages import promote
from registry.versions import MANIFEST_TAG

pytestmark = on_sqlite_only

FILES = {"model.ubj": b"{weights", "meta/columns.json": b"[]"}


@pytest.fixture
def name(make_version, model_name) -> str:
    make_version(model_name, FILES)
    promote(model_name, 1, "production")
    forget()
    return model_name


def forget() -> None:
    for folder in cache.models_folder().glob("*"):
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()


def stored(client, name: str) -> Path:
    """The folder in which MLflow keeps the artifacts of version 1, on this machine's disk."""
    run = client.get_run(client.get_model_version(name, "1").run_id)
    return Path(run.info.artifact_uri.removeprefix("file://")) / "model"


def test_a_staged_version_comes_whole(client, name, tmp_path):
    pulled = pull(name, "production", out=tmp_path / "out")
    found = {p.relative_to(pulled.folder).as_posix() for p in pulled.folder.rglob("*.*")}
    assert found == {*FILES, MANIFEST}
    assert (pulled.folder / "model.ubj").read_bytes() == FILES["model.ubj"]
    assert pulled.version.version == 1
    assert pulled.source == "registry"
    assert pull(f"{name}@production", out=tmp_path / "again").source == "cache"


def test_the_folder_may_lie_inside_a_logged_model(client, make_version, model_name):
    """As `log_model` arranges it: MLflow's own files around ours."""
    digest = make_version(model_name, FILES).tags[MANIFEST_TAG]
    outer, inner = stored(client, model_name), "artifacts/costmodel"
    outer.rename(outer.with_name("moved"))
    (outer / "artifacts").mkdir(parents=True)
    (outer.with_name("moved")).rename(outer / inner)
    (outer / "MLmodel").write_text("flavors: {}")
    assert pull(f"{model_name}/1").manifest_sha256 == digest


def test_a_folder_in_use_is_left_alone(name, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("")
    with pytest.raises(RequestError, match="in use"):
        pull(name, "production", out=tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine.txt"]


def changed_byte(folder: Path):
    (folder / "model.ubj").write_bytes(b"{weightz")


def rewritten_manifest(folder: Path):
    changed_byte(folder)
    write_manifest(folder)


def added_file(folder: Path):
    (folder / "extra.txt").write_text("")


def missing_file(folder: Path):
    (folder / "meta" / "columns.json").unlink()


def added_pickle(folder: Path):
    (folder / "model.pkl").write_bytes(b"\x80\x04N.")


def link(folder: Path):
    (folder / "model.ubj").rename(folder.parent / "elsewhere")
    (folder / "model.ubj").symlink_to("../elsewhere")


def leading_outside(folder: Path):
    content = json.loads((folder / MANIFEST).read_text())
    content["files"][0]["path"] = "../../outside"
    (folder / MANIFEST).write_text(json.dumps(content))


def clashing_names(folder: Path):
    (folder / "MODEL.UBJ").write_bytes(FILES["model.ubj"])


def over_size(folder: Path):
    with (folder / "model.ubj").open("r+b") as file:
        os.truncate(file.fileno(), 5 << 30)


def nothing_left(folder: Path):
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


DAMAGE = [
    changed_byte,
    rewritten_manifest,
    added_file,
    missing_file,
    added_pickle,
    link,
    leading_outside,
    clashing_names,
    over_size,
    nothing_left,
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_was_changed_is_refused_and_nothing_is_kept(client, name, tmp_path, damage):
    damage(stored(client, name))
    with pytest.raises(HetfeatError) as caught:
        pull(name, "production", out=tmp_path / "out")
    assert caught.value.exit_code == 2
    assert not (tmp_path / "out").exists()
    assert list(cache.models_folder().glob("*")) == []
    assert list(cache.models_folder().glob(".*")) == []


def test_a_changed_tag_is_found_out_by_the_ledger(client, name):
    folder = stored(client, name)
    changed_byte(folder)
    client.set_model_version_tag(name, "1", MANIFEST_TAG, write_manifest(folder))
    with pytest.raises(DataError, match="changed after it was promoted"):
        pull(name, "production")


def test_a_damaged_copy_in_the_cache_is_fetched_again(name):
    folder = pull(name, "production").folder
    (folder / "model.ubj").write_bytes(b"")
    pulled = pull(name, "production")
    assert pulled.source == "registry"
    assert (pulled.folder / "model.ubj").read_bytes() == FILES["model.ubj"]


@pytest.fixture
def unreachable(monkeypatch):
    def gone(*args, **kwargs):
        raise WorkFailed("no way to look up", "a registry that answers", "repeat the command")

    return lambda: monkeypatch.setattr("registry.pull.resolve", gone)


def test_what_was_pulled_is_there_offline(name, unreachable):
    online = pull(name, "production")
    unreachable()
    offline = pull(name, "production")
    assert (offline.folder, offline.version) == (online.folder, online.version)
    assert offline.source == "offline"


def test_what_was_never_pulled_is_not_there_offline(name, unreachable):
    unreachable()
    with pytest.raises(WorkFailed):
        pull(name, "production")


def test_a_version_without_a_digest_is_not_ours(client, model_name):
    client.create_registered_model(model_name)
    client.create_model_version(model_name, "file:///nowhere")
    with pytest.raises(DataError, match="without a digest"):
        pull(f"{model_name}/1")
