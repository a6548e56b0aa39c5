import hashlib
import json
import os
import pickle  # noqa: TID251 - to be refused
import zipfile
from pathlib import Path

import pytest

from hetfeat.errors import DataError
from registry.files.manifest import MANIFEST, check_manifest, parse_manifest, write_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "weights").mkdir(parents=True)
    (folder / "weights" / "model.ubj").write_bytes(b"{L" + bytes(100))
    (folder / "meta.json").write_text("{}")
    return folder


def test_a_folder_passes_as_it_was_written(folder: Path):
    digest = write_manifest(folder)
    assert digest == hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    assert check_manifest(folder) == check_manifest(folder, digest) == digest


def test_the_manifest_is_flushed_to_the_disk(folder: Path, monkeypatch):
    flushed, flush = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: flushed.append(os.fstat(file).st_ino) or flush(file)
    )
    write_manifest(folder)
    assert flushed == [(folder / MANIFEST).stat().st_ino, folder.stat().st_ino]


def test_the_manifest_of_the_same_files_is_the_same(folder: Path):
    assert write_manifest(folder) == write_manifest(folder)


def changed_byte(folder: Path):
    (folder / "meta.json").write_text("[]")


def missing_file(folder: Path):
    (folder / "meta.json").unlink()


def extra_file(folder: Path):
    (folder / "weights" / "more.txt").write_text("")


def symlink(folder: Path):
    (folder / "meta.json").unlink()
    (folder / "meta.json").symlink_to("/etc/hostname")


def symlink_folder(folder: Path):
    (folder / "elsewhere").symlink_to("/etc")


def pipe(folder: Path):
    os.mkfifo(folder / "pipe")


def no_manifest(folder: Path):
    (folder / MANIFEST).unlink()


def torn_manifest(folder: Path):
    (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes()[:-5])


DAMAGE = [
    changed_byte,
    missing_file,
    extra_file,
    symlink,
    symlink_folder,
    pipe,
    no_manifest,
    torn_manifest,
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_refused(folder: Path, damage):
    write_manifest(folder)
    damage(folder)
    with pytest.raises(DataError):
        check_manifest(folder)


def test_a_rewritten_manifest_is_refused_by_its_digest(folder: Path):
    digest = write_manifest(folder)
    changed_byte(folder)
    assert write_manifest(folder) != digest
    check_manifest(folder)
    with pytest.raises(DataError, match="as registered"):
        check_manifest(folder, digest)


ODD_PATHS = [
    "/etc/passwd",
    "../outside",
    "a/../../outside",
    "a//b",
    "./a",
    "a\\b",
    "C:/a",
    "",
    "a\0b",
    "a/b.",
    "x" * 300,
]


@pytest.mark.parametrize("path", ODD_PATHS)
def test_a_path_that_leads_elsewhere_is_refused(path: str):
    entry = {"path": path, "bytes": 0, "sha256": hashlib.sha256().hexdigest()}
    data = json.dumps({"format": 1, "files": [entry]}).encode()
    with pytest.raises(DataError):
        parse_manifest(data, "here")


@pytest.mark.parametrize("names", [("a", "A"), ("d/x", "D/y"), ("\u00e9", "e\u0301"), ("a", "a")])
def test_names_that_clash_on_some_disks_are_refused(names: tuple[str, str]):
    entries = [{"path": name, "bytes": 0, "sha256": "0" * 64} for name in names]
    with pytest.raises(DataError):
        parse_manifest(json.dumps({"format": 1, "files": entries}).encode(), "here")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_refused_by_its_content(folder: Path, protocol: int):
    (folder / "weights" / "model.bin").write_bytes(pickle.dumps({"a": [1]}, protocol))
    with pytest.raises(DataError, match="pickle"):
        write_manifest(folder)


def test_a_pickle_is_refused_by_its_name(folder: Path):
    (folder / "weights" / "model.PKL").write_bytes(b"")
    with pytest.raises(DataError, match="pickle"):
        write_manifest(folder)


def test_an_archive_with_a_pickle_in_it_is_refused(folder: Path):
    with zipfile.ZipFile(folder / "model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    with pytest.raises(DataError, match="pickle"):
        write_manifest(folder)


def test_a_file_that_begins_like_a_pickle_and_is_none_passes(folder: Path):
    (folder / "weights" / "w.safetensors").write_bytes(b"\x80\x04" + bytes(6) + b"{" + bytes(1151))
    check_manifest(folder, write_manifest(folder))


def test_an_over_size_file_is_refused(folder: Path):
    write_manifest(folder)
    with pytest.raises(DataError, match="at most 50 bytes"):
        check_manifest(folder, max_file_bytes=50)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"format": 2, "files": []}', b'{"format": 1}'])
def test_what_is_no_manifest_is_refused(data: bytes):
    with pytest.raises(DataError):
        parse_manifest(data, "here")
