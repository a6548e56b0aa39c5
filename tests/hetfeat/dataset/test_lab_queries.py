"""The queries of docs/lab.md, on the shards of a store and on a table."""

import re
from pathlib import Path

import duckdb
import pytest

from hetfeat.dataset.tables.table import RecordTable
from hetfeat.dataset.tables.transport import push
from hetfeat.dataset.tables.uri import as_place
from hetfeat.testing import stores

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "lab.md").read_text()
QUERIES = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
OPENED = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXPECTED = {"best_gflops": lambda value: value > 0, "slower": 0.5, "failed": 0.25}
"""Of the made-up store: b has twice the threads of a, and one program of four fails."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    store = stores.make_store(folder / "records", tasks=6, per_task=4)
    push(store, RecordTable.create(as_place((folder / "table").as_uri())))
    return folder


def test_the_page_has_three_queries_and_two_places():
    assert (len(QUERIES), len(OPENED)) == (3, 2)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("opened", OPENED)
def test_a_query_answers(query, opened, folder, monkeypatch):
    monkeypatch.chdir(folder)
    names = {}
    exec(opened.replace("s3://lab/records", (folder / "table").as_uri()), names)
    records = names["records"]
    answer = duckdb.sql(query)
    found = [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]
    (figure,) = EXPECTED.keys() & set(answer.columns)
    assert records is not None
    assert len(found) == 6
    expected = EXPECTED[figure]
    for row in found:
        assert expected(row[figure]) if callable(expected) else row[figure] == expected
