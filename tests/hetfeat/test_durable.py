import os
from pathlib import Path

import pytest

from hetfeat import durable


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole_with_the_usual_rights(tmp_path: Path):
    path = tmp_path / "head.json"
    path.write_bytes(b"old")
    durable.write_file(path, b"new")
    beside = tmp_path / "beside"
    beside.write_bytes(b"")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode == beside.stat().st_mode
    assert names(tmp_path) == ["beside", "head.json"]


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path, monkeypatch):
    path = tmp_path / "head.json"
    path.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        durable.write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["head.json"]


def flushed_before(monkeypatch, call: str) -> list[str]:
    """Notes, in order, what is flushed and what is renamed."""
    order: list[str] = []
    sync, rename = os.fsync, getattr(os, call)

    def note_sync(descriptor: int) -> None:
        order.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        sync(descriptor)

    def note_rename(*paths: object) -> None:
        order.append("rename")
        rename(*paths)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, call, note_rename)
    return order


def test_bytes_are_flushed_before_the_name_and_the_name_after(tmp_path: Path, monkeypatch):
    order = flushed_before(monkeypatch, "replace")
    durable.write_file(tmp_path / "x", b"1")
    assert order[0].startswith("fsync .x.")
    assert order[1:] == ["rename", f"fsync {tmp_path.name}"]


def folder(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "file").write_text(text)
    return path


def test_a_new_folder_is_flushed_and_then_named(tmp_path: Path, monkeypatch):
    draft = folder(tmp_path / "draft", "new")
    order = flushed_before(monkeypatch, "rename")
    durable.publish_folder(draft, tmp_path / "out")
    assert order == ["fsync file", "fsync draft", "rename", f"fsync {tmp_path.name}"]
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_takes_the_place_of_another(tmp_path: Path, monkeypatch, exchange: bool):
    draft, out = folder(tmp_path / "draft", "new"), folder(tmp_path / "out", "old")
    if not exchange:
        monkeypatch.setattr(durable, "_exchanged", lambda one, other: False)
    durable.publish_folder(draft, out)
    assert (out / "file").read_text() == "new"
    assert names(tmp_path) == ["out"]


def test_the_name_is_never_without_a_folder(tmp_path: Path, monkeypatch):
    """Both folders stand after the exchange: a kill at any moment leaves one of them."""
    draft, out = folder(tmp_path / "draft", "new"), folder(tmp_path / "out", "old")
    seen: list[str] = []

    def removed(path: Path) -> None:
        seen.append((out / "file").read_text())

    monkeypatch.setattr(durable.shutil, "rmtree", removed)
    durable.publish_folder(draft, out)
    assert seen == ["new"]
    assert (draft / "file").read_text() == "old"
