"""`hetfeat records repair`: what is whole stays, what is bad is put beside, killed or not."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import stores

import mlproject
from hetfeat.dataset import files, repair, sidecar_files
from hetfeat.dataset.schema import to_row
from hetfeat.dataset.store import RecordStore
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.errors import DataError
from registry.cli import app

DEVICE = stores.profile("a")
MEASURED = stores.measured(stores.programs(stores.task(1), 1, 9)[0], DEVICE)
ROW = to_row(MEASURED)
BAD_LINES = {
    "cut": json.dumps(ROW).encode()[:100] + b"\n",
    "NUL": bytes(40) + b"\n",
    "not UTF-8": b'{"device": "\xff"}\n',
    "empty": b"\n",
    "no object": b"3\n",
    "wrong type": json.dumps(ROW | {"latencies_s": "fast"}).encode() + b"\n",
    "no record": json.dumps(ROW | {"latencies_s": [-1.0]}).encode() + b"\n",
    "foreign": b'{"path": "../x", "sha256": 5, "i": ["r"], "v": 0.1}\n',
    "deep": b"[" * 9000 + b"]" * 9000 + b"\n",
    "long": b'"' + b"x" * 2**24 + b'"\n',
}


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    """Four shards of four records, five records in the journal, a note, four workloads."""
    store = stores.make_store(tmp_path / "store", tasks=2, per_task=4)
    store.append(stores.measured(p, DEVICE) for p in stores.programs(stores.task(4), 5, 0))
    store.add_workloads({str(i): "module" * 20 for i in range(4)})
    sidecar_files.note(store.path, sidecar_files.ANCHORS, MEASURED)
    return store


def keys(store: RecordStore) -> list[str]:
    return sorted(RecordStore.open(store.path).read(["program"])["program"].to_pylist())


def hetfeat(*arguments: str) -> int:
    return app.run(mlproject.cli, arguments)


def repaired(store: RecordStore, capfd) -> dict:
    capfd.readouterr()
    assert hetfeat("records", "repair", str(store.path), "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert hetfeat("records", "verify", str(store.path)) == 0
    capfd.readouterr()
    return found


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def beside(store: RecordStore) -> list[bytes]:
    return sorted(file.read_bytes() for file in (store.path / "damaged").iterdir())


def insert(path: Path, line: bytes, at: int = 2) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:at], line, *lines[at:]]))


def test_a_store_with_nothing_wrong_is_left_as_it_is(store, capfd):
    before = tree(store.path)
    found = repaired(store, capfd)
    assert (found["outcome"], found["set_aside"]) == ("nothing wrong", [])
    assert found["records"] == {"kept": 21, "set_aside": 0}
    assert found["shards"] == {"kept": 4, "set_aside": 0, "missing": 0, "listed_again": 0}
    assert tree(store.path) == before
    assert hetfeat("records", "repair", str(store.path)) == 0
    assert "nothing wrong" in capfd.readouterr().out


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
@pytest.mark.parametrize("name", ["journal.jsonl", "sealed.jsonl"])
def test_one_bad_line_costs_itself_alone(store, capfd, name, line):
    before, journal = keys(store), store.path / name
    (store.path / "journal.jsonl").rename(journal)
    insert(journal, line)
    found = repaired(store, capfd)
    assert found["records"] == {"kept": 21, "set_aside": 1}
    assert {"file": name, "kept": 5, "set_aside": 1} in found["files"]
    assert [Path(path).read_bytes() for path in found["set_aside"]] == [line]
    assert keys(store) == before
    store.compact()
    assert keys(store) == before


def test_every_bad_line_at_once(store, capfd):
    before, bad = keys(store), list(BAD_LINES.values())
    for line in bad:
        insert(store.path / "journal.jsonl", line, 1)
    assert repaired(store, capfd)["records"] == {"kept": 21, "set_aside": len(bad)}
    assert beside(store) == [b"".join(reversed(bad))]
    assert keys(store) == before
    assert repaired(store, capfd)["outcome"] == "nothing wrong"


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_an_index_with_a_bad_line(store, capfd, line):
    before = keys(store)
    insert(store.path / "shards.jsonl", line)
    found = repaired(store, capfd)
    assert found["shards"] == {"kept": 4, "set_aside": 0, "missing": 0, "listed_again": 0}
    assert beside(store) == [line]
    assert keys(store) == before


@pytest.mark.parametrize("spoil", [lambda line: bytes(len(line)), lambda line: line[:30]])
def test_a_shard_whose_line_is_gone_is_listed_again(store, capfd, spoil):
    before, index = keys(store), store.path / "shards.jsonl"
    lines = index.read_bytes().splitlines(keepends=True)
    lines[1] = spoil(lines[1]) + b"\n"
    index.write_bytes(b"".join(lines))
    found = repaired(store, capfd)
    assert found["shards"] == {"kept": 4, "set_aside": 0, "missing": 0, "listed_again": 1}
    assert found["records"]["kept"] == 21
    assert keys(store) == before


def test_a_line_with_another_digest_leaves_the_shard_as_it_is(store, capfd):
    before, index = keys(store), store.path / "shards.jsonl"
    shard = store.shards()[1]
    index.write_text(index.read_text().replace(shard["sha256"], "0" * 64))
    assert repaired(store, capfd)["shards"]["listed_again"] == 1
    assert keys(store) == before


def test_a_shard_listed_twice_counts_once(store, capfd):
    before, index = keys(store), store.path / "shards.jsonl"
    line = index.read_bytes().splitlines(keepends=True)[1]
    insert(index, line)
    assert len(keys(store)) > len(before)
    assert repaired(store, capfd)["shards"]["kept"] == 4
    assert beside(store) == [line]
    assert keys(store) == before


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("spoil", [changed, lambda path: path.write_bytes(b"")])
def test_a_damaged_shard_is_put_beside(store, capfd, spoil):
    shard = store.shards()[1]
    spoil(store.path / shard["path"])
    data = (store.path / shard["path"]).read_bytes()
    assert store.damaged() == [shard["path"]]
    found = repaired(store, capfd)
    assert found["shards"] == {"kept": 3, "set_aside": 1, "missing": 0, "listed_again": 0}
    assert found["records"] == {"kept": 17, "set_aside": 4}
    assert data in beside(store)
    assert not (store.path / shard["path"]).exists()
    assert len(keys(store)) == 17


def test_an_intact_shard_of_something_else_is_put_beside(store, capfd):
    """Its digest is right, and yet it blocks every reader."""
    shard = store.shards()[1]
    file = store.path / shard["path"]
    file.write_text("no Parquet")
    line = shard | {"sha256": files.sha256(file)}
    index = store.path / "shards.jsonl"
    index.write_text(index.read_text().replace(json.dumps(shard), json.dumps(line)))
    assert store.damaged() == []
    assert repaired(store, capfd)["shards"]["set_aside"] == 1
    assert len(keys(store)) == 17


def test_a_missing_shard_is_left_out(store, capfd):
    shard = store.shards()[1]
    (store.path / shard["path"]).unlink()
    with pytest.raises(DataError, match=r"`hetfeat records repair .*store`"):
        RecordStore.open(store.path)
    found = repaired(store, capfd)
    assert found["shards"] == {"kept": 3, "set_aside": 0, "missing": 1, "listed_again": 0}
    assert [json.loads(data) for data in beside(store)] == [shard]  # to be put back
    assert len(keys(store)) == 17


@pytest.mark.parametrize("spoil", ["line", "cut"])
def test_workloads_of_which_some_can_be_read(store, capfd, spoil):
    path = store.path / "workloads.jsonl.gz"
    text = gzip.decompress(path.read_bytes())
    if spoil == "line":
        path.write_bytes(gzip.compress(text + b'["3"]\n'))
    else:
        many = b"".join(
            json.dumps([str(i), os.urandom(40).hex()]).encode() + b"\n" for i in range(400)
        )
        path.write_bytes(gzip.compress(text + many)[:-2000])
    data = path.read_bytes()
    assert repaired(store, capfd)["lines"]["set_aside"] == 1
    assert beside(store) == [data]
    assert {str(i) for i in range(4)} <= store.workloads().keys()


def test_workloads_are_unpacked_no_further(store):
    path = store.path / "workloads.jsonl.gz"
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text + b'["4", "module"]\n' * 9))
    data, small = path.read_bytes(), StoreConfig(max_unpacked_bytes=len(text))
    found = repair.repair(RecordStore.open(store.path, whole=False, options=small))
    assert found.lines["set_aside"] == 1
    assert beside(store) == [data]
    assert {str(i) for i in range(4)} <= store.workloads().keys()


def test_a_note_with_a_bad_line(store, capfd):
    insert(store.path / sidecar_files.ANCHORS, b'{"device": 3}\n', 0)
    with pytest.raises(DataError, match="hetfeat records repair"):
        list(sidecar_files.noted(store.path, sidecar_files.ANCHORS))
    repaired(store, capfd)
    assert len(list(sidecar_files.noted(store.path, sidecar_files.ANCHORS))) == 1


def test_a_torn_last_line_is_put_beside(store, capfd):
    with (store.path / "journal.jsonl").open("ab") as file:
        file.write(b'{"device"')
    assert repaired(store, capfd)["records"] == {"kept": 21, "set_aside": 1}
    assert beside(store) == [b'{"device"']


def test_a_writer_at_work_is_not_disturbed(store, capfd):
    insert(store.path / "journal.jsonl", b"3\n")
    before = tree(store.path)
    with store.writing():
        assert hetfeat("records", "repair", str(store.path)) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "to which another process writes" in err
    assert tree(store.path) == before


class Killed(BaseException):
    """Stands for `kill -9`: nothing catches it."""


def killed_at(step: int, monkeypatch, run: Callable[[], object]) -> bool:
    """Runs until before the n-th flush or rename."""
    left = [step]

    def stops(call):
        def made(*arguments, **named):
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            call(*arguments, **named)

        return made

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stops(os.replace))
        patch.setattr(os, "fsync", stops(os.fsync))
        try:
            run()
        except Killed:
            return True
    return False


def test_wherever_it_is_killed_it_can_be_repeated(store, tmp_path, monkeypatch):
    gone, spoilt = (shard["path"] for shard in store.shards()[1:3])
    (store.path / gone).unlink()
    changed(store.path / spoilt)
    insert(store.path / "shards.jsonl", BAD_LINES["NUL"])
    insert(store.path / "journal.jsonl", BAD_LINES["cut"])
    (store.path / "workloads.jsonl.gz").write_bytes(b"no gzip")
    once, step, alive = tmp_path / "once", 0, True
    shutil.copytree(store.path, once)
    repair.repair(RecordStore.open(once, whole=False))
    expected = set(tree(once).values())
    while alive:
        step += 1
        again = tmp_path / str(step)
        shutil.copytree(store.path, again)
        opened = RecordStore.open(again, whole=False)
        alive = killed_at(step, monkeypatch, lambda opened=opened: repair.repair(opened))
        repair.repair(RecordStore.open(again, whole=False))
        assert keys(opened) == keys(RecordStore(once))
        assert opened.damaged() == []
        assert expected <= set(tree(again).values())  # and drafts that were being written
        shutil.rmtree(again)
    assert step > 10
