import errno
import json
import os
from pathlib import Path

import pytest
from conftest import on_sqlite_only

from hetfeat.errors import DataError, HetfeatError, RequestError, WorkFailed
from registry.files import cache
from registry.files.manifest import MANIFEST, write_manifest
from registry.files.moves import promote
from registry.files.pull import pull
from registry.models.version import MANIFEST_TAG

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


@pytest.mark.parametrize("promoted", [True, False])
@pytest.mark.parametrize("tag", ["PRECIOUS", "..", "../models", ".", "x" * 300, "A" * 64])
def test_a_tag_that_is_no_digest_removes_nothing(
    client, make_version, model_name, tmp_path, tag, promoted
):
    make_version(model_name, FILES)
    kept = pull(f"{model_name}/1").folder
    precious = tmp_path / "precious"
    precious.mkdir()
    if promoted:
        promote(model_name, 1, "production")
    tag = str(precious) if tag == "PRECIOUS" else tag
    client.set_model_version_tag(model_name, "1", MANIFEST_TAG, tag)
    with pytest.raises(DataError):
        pull(f"{model_name}/1", out=tmp_path / "out")
    with pytest.raises(DataError, match="64 hexadecimal digits"):
        cache.find(tag)
    assert precious.is_dir() and (kept / MANIFEST).is_file()


def test_a_link_in_the_cache_is_not_followed_to_be_removed(name, tmp_path):
    folder = pull(name, "production").folder
    forget()
    (tmp_path / "precious").mkdir()
    folder.symlink_to(tmp_path / "precious")
    with pytest.raises(DataError, match="no link"):
        pull(name, "production")
    assert (tmp_path / "precious").is_dir()


def test_an_alias_where_no_promotion_put_it_is_refused(client, name, make_version, caplog):
    make_version(name)
    client.set_registered_model_alias(name, "production", "2")
    for asked in ((f"{name}@production", None), (f"models:/{name}/Production", None)):
        with pytest.raises(DataError, match="--unrecorded true"):
            pull(*asked)
    assert pull(f"{name}/2").version.version == 2
    assert pull(name, "production", unrecorded=True).version.version == 2
    assert "no promotion put it" in caplog.text
    client.set_registered_model_alias(name, "champion", "2")
    assert pull(f"{name}@champion").version.version == 2


def test_an_alias_of_a_model_without_history_is_refused(client, make_version, model_name):
    make_version(model_name)
    client.set_registered_model_alias(model_name, "production", "1")
    with pytest.raises(DataError, match="no promotion put it"):
        pull(model_name, "production")


def test_an_alias_is_followed_while_a_promotion_is_being_made(
    client, make_version, name, monkeypatch
):
    """Whatever of it has been done: the alias is set before the entry is written."""
    make_version(name)
    set_tag, move = type(client).set_registered_model_tag, type(client).set_registered_model_alias
    pulled = []

    def then_pulled(step):
        def made(self, *args):
            step(self, *args)
            pulled.append(pull(name, "production", settle_s=0.0).version.version)

        return made

    monkeypatch.setattr(type(client), "set_registered_model_tag", then_pulled(set_tag))
    monkeypatch.setattr(type(client), "set_registered_model_alias", then_pulled(move))
    promote(name, 2, "production", gates=lambda *_: [])
    assert pulled == [1, 1, 2, 2, 2]


def test_what_was_taken_unrecorded_is_not_recalled_otherwise(
    client, name, make_version, unreachable
):
    make_version(name)
    client.set_registered_model_alias(name, "production", "2")
    pull(name, "production", unrecorded=True)
    unreachable()
    with pytest.raises(WorkFailed):
        pull(name, "production")
    assert pull(name, "production", unrecorded=True).version.version == 2


@pytest.mark.parametrize(
    "text", ["[" * 4000, "{}", '{"version": {}, "manifest_sha256": "/home/somebody"}', "\xff"]
)
def test_an_answer_that_was_damaged_is_none(name, unreachable, tmp_path, text):
    pull(name, "production")
    for path in (tmp_path / "home" / "names").iterdir():
        path.write_text(text)
    unreachable()
    with pytest.raises(WorkFailed):
        pull(name, "production")


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_copy_in_a_cache_that_cannot_be_written_is_taken(name, monkeypatch, caplog, code):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    pull(name, "production")
    for writer in ("registry.files.cache.write_file", "tempfile.mkdtemp", "os.utime"):
        monkeypatch.setattr(writer, refuse)
    assert pull(name, "production").source == "cache"
    assert os.strerror(code) in caplog.text
    forget()
    with pytest.raises(WorkFailed, match=rf"models.*{os.strerror(code)}.*HETFEAT_HOME"):
        pull(name, "production")


def test_a_disk_that_fills_during_a_pull_is_said_as_that(name, monkeypatch):
    from mlflow.exceptions import MlflowException

    def fill(*_, **__):  # as MLflow hands it on
        raise MlflowException("failures occurred:\n[Errno 28] No space left on device")

    monkeypatch.setattr("registry.files.artifacts.Artifacts.fetch", fill)
    with pytest.raises(WorkFailed, match=r"models.*No space left on device.*cache prune"):
        pull(name, "production")
    assert list(cache.models_folder().iterdir()) == []


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

    return lambda: monkeypatch.setattr("registry.files.pull.resolve", gone)


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
