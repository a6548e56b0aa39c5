"""What is small on the disk and large in memory is refused before it is read."""

import gzip
import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import stores

from hetfeat.dataset.files import append_lines, json_lines, sha256
from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.readers import journal_parts, row_groups
from hetfeat.dataset.schema import SCHEMA
from hetfeat.dataset.store import RecordStore
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.errors import DataError

MAX_GROUP_BYTES = StoreConfig().max_group_bytes


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore.create(tmp_path / "store")


def add_shard(store: RecordStore, columns: dict[str, pa.Array], rows: int) -> Path:
    """A shard of somebody else's: columns of their own, whose texts are stored by dictionary."""
    columns = {field.name: pa.nulls(rows, field.type) for field in SCHEMA} | columns
    folder = store.path / "device=a" / "operator=b"
    folder.mkdir(parents=True)
    draft = folder / "draft"
    pq.write_table(pa.table(columns), draft, compression="zstd", dictionary_pagesize_limit=2**30)
    digest = sha256(draft)
    path = draft.rename(folder / f"{digest[:32]}.parquet")
    line = {"path": str(path.relative_to(store.path)), "sha256": digest, "rows": rows}
    (store.path / "shards.jsonl").write_text(json.dumps(line) + "\n")
    return path


def texts(rows: int, different: int, length: int) -> pa.Array:
    some = pa.array([f"{i:0{length}d}" for i in range(different)])
    return pa.concat_arrays([some] * (rows // different))


def test_texts_by_dictionary_are_counted_as_often_as_they_are_named(store):
    path = add_shard(store, {"versions": texts(80_000, 1000, 4000)}, 80_000)
    assert path.stat().st_size < 100_000
    assert pq.ParquetFile(path).metadata.row_group(0).total_byte_size < 5_000_000
    before = pa.total_allocated_bytes()
    with pytest.raises(DataError, match=r"a row group of 3[0-9]{8} bytes once") as refused:
        list(store.scan())
    assert refused.value.expected == f"{MAX_GROUP_BYTES} bytes at most"
    assert f"`hetfeat records repair {store.path}`" in refused.value.action
    assert pa.total_allocated_bytes() < before + 2**25


def test_the_same_texts_pass_where_they_are_few(store):
    """As if each were the whole dictionary, they would be too large: so they are looked at."""
    path = add_shard(store, {"versions": texts(2000, 1000, 4000)}, 2000)
    declared = pq.ParquetFile(path).metadata.row_group(0).total_byte_size
    assert 2000 * declared > MAX_GROUP_BYTES
    assert len(row_groups(path)) == 1


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("flops", pa.array([0.0] * 50_000)),
        ("stores", pa.array([[0.0] * 100] * 500, pa.list_(pa.float32()))),
        ("device", pa.array([["a" * 1000] * 10] * 50)),
        ("program", pa.array([b"a" * 1000] * 500, pa.binary(1000))),
        ("trace", texts(100, 100, 2000)),
    ],
)
def test_columns_of_every_kind_are_counted(store, column, values):
    path = add_shard(store, {column: values}, len(values))
    with pytest.raises(DataError, match="once it is unpacked; expected 100000 bytes at most"):
        row_groups(path, options=StoreConfig(max_group_bytes=100_000))


def test_rows_are_counted(store):
    path = add_shard(store, {}, 2**20 + 1)
    assert len(row_groups(path)) == 2  # as Arrow divides them
    with pytest.raises(DataError, match="of 1048576 rows; expected 1000 rows at most"):
        row_groups(path, options=StoreConfig(max_group_rows=1000))


def test_the_packaged_records_have_room_to_spare():
    half = StoreConfig(max_group_bytes=MAX_GROUP_BYTES // 2, max_unpacked_bytes=2**27)
    store = RecordStore.open(packaged_store(), options=half)
    for shard in store.shards():
        row_groups(store.path / shard["path"], options=half)
    assert len(store.workloads()) > 800


def test_a_packed_file_is_unpacked_no_further(store):
    line = json.dumps(["task", "module" * 1000]).encode() + b"\n"
    (store.path / "workloads.jsonl.gz").write_bytes(gzip.compress(line * 20_000))
    with pytest.raises(DataError, match=r"unpacks to 1.{6} bytes and more; expected 1000000 bytes"):
        RecordStore(store.path, StoreConfig(max_unpacked_bytes=1_000_000)).workloads()


@pytest.mark.parametrize("name", ["journal.jsonl", "workloads.jsonl.gz", "shards.jsonl"])
def test_a_line_is_read_no_further(store, name):
    data = b" " * 2**26
    (store.path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="a line of more than 16777216 bytes"):
            store.workloads() if name.endswith("gz") else list(store.scan())
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def test_the_bound_of_a_line_is_what_is_asked_for(store):
    store.append(
        stores.measured(program, stores.profile("a"))
        for program in stores.programs(stores.task(1), 3, 0)
    )
    journal = store.path / "journal.jsonl"
    longest = max(map(len, journal.read_bytes().splitlines(keepends=True)))
    enough, short = (StoreConfig(max_line_bytes=n) for n in (longest, longest - 1))
    (part,) = journal_parts(journal, enough)
    assert part.read().num_rows == len(list(json_lines(journal, options=enough))) == 3
    with pytest.raises(DataError, match="of more than"):
        part = journal_parts(journal, short)[0]
        part.read()


def test_no_line_is_written_that_would_not_be_read(tmp_path):
    short = StoreConfig(max_line_bytes=100)
    with pytest.raises(DataError, match="of more than 100 bytes"):
        append_lines(tmp_path / "lines.jsonl", ["short", "x" * 100], short)
    assert list(json_lines(tmp_path / "lines.jsonl")) == ["short"]


def test_no_more_workloads_are_written_than_would_be_read(tmp_path):
    store = RecordStore.create(tmp_path / "store", StoreConfig(max_unpacked_bytes=100))
    store.add_workloads({"a": "module"})
    with pytest.raises(DataError, match="bytes unpacked; expected 100 bytes at most"):
        store.add_workloads({"b": "module" * 20})
    assert store.workloads() == {"a": "module"}
