import doctest
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetfeat import parsing
from hetfeat.devices.profile import load_profile
from hetfeat.errors import DataError
from hetfeat.parsing import (
    MAX_BYTES,
    Count,
    Digest,
    FileName,
    Json,
    PositiveFloat,
    Schema,
    decode,
    parse,
    printable,
    read_yaml,
)
from registry.jobs.deploy_batch import read_jobs
from registry.models.gate_rules import load_rules

SHA = "0123456789abcdef" * 4


class Entry(Schema):
    digest: Digest
    count: Count
    seconds: PositiveFloat


def decoded(text: str | bytes, kind: Any = Entry) -> Any:
    return decode(text, kind, what="the entry", action="ask for it again")


def test_what_fits_is_returned_typed_and_later_keys_are_passed_over():
    text = json.dumps({"digest": SHA, "count": 2, "seconds": 1, "later": []})
    assert decoded(text) == Entry(digest=SHA, count=2, seconds=1.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 4000,
        "{" * 4000,
        "\x00",
        "null",
        "[]",
        '"\ud800"',
        "\ud800",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        " " * (MAX_BYTES + 1),
        json.dumps({"digest": "../..", "count": 2, "seconds": 1}),
        json.dumps({"digest": SHA + "\n", "count": 2, "seconds": 1}),
        json.dumps({"digest": SHA, "count": True, "seconds": 1}),
        json.dumps({"digest": SHA, "count": "2", "seconds": 1}),
        json.dumps({"digest": SHA, "count": -1, "seconds": 1}),
        json.dumps({"digest": SHA, "count": 1 << 63, "seconds": 1}),
        json.dumps({"digest": SHA, "count": 10**400, "seconds": 1}),
        json.dumps({"digest": SHA, "count": 2, "seconds": float("nan")}),
        json.dumps({"digest": SHA, "count": 2, "seconds": float("inf")}),
        f'{{"digest": "{SHA}", "count": 2, "seconds": 1e999}}',
        json.dumps({"digest": SHA, "count": 2}),
    ],
)
def test_what_does_not_fit_is_one_line(text: str | bytes):
    with pytest.raises(DataError) as caught:
        decoded(text)
    assert caught.value.action == "ask for it again"
    assert str(caught.value).startswith("the entry (")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@given(st.text() | st.binary())
def test_any_text_is_a_value_or_a_data_error(text: str | bytes):
    for kind in (Entry, list[FileName], Json):
        try:
            decoded(text, kind)
        except DataError as error:
            assert str(error).isprintable()


@pytest.mark.parametrize("value", ["NaN", "[1e999]", '{"a": -Infinity}'])
def test_any_json_holds_no_number_that_is_none(value: str):
    with pytest.raises(DataError):
        decoded(value, Json)


@pytest.mark.parametrize("digest", ["", SHA[1:], SHA.upper(), "/etc", "..", None, 3, SHA + "\n"])
def test_a_digest_is_64_hexadecimal_digits(digest: object):
    with pytest.raises(DataError, match="64 hexadecimal digits"):
        parse(digest, Digest, what="tag manifest_sha256", action="register it again")
    assert parse(SHA, Digest, what="tag manifest_sha256", action="register it again") == SHA


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/a", "a\\b", "-rf", ".hidden", "a\0", "a\n", "a b", "a" * 201]
)
def test_the_name_of_a_file_leads_nowhere_else(name: str):
    with pytest.raises(DataError, match="the name of one file"):
        parse(name, FileName, what="a file", action="copy it again")
    assert parse("lib_1.so", FileName, what="a file", action="copy it again") == "lib_1.so"


@given(st.text())
def test_printable_text_is_one_line_without_control_characters(text: str):
    assert printable(text, most=None).isprintable()


NO_YAML = (
    "[" * 30_000,
    " " * (MAX_BYTES + 1),
    "a: 2020-13-45",
    "a: " + "9" * 5000,
    "a: 1" + ":59" * 5000,
    "a: !!timestamp x",
    "a: !!bool x",
    "a: !!int x",
    "a: &a [*a]",
    "\n".join(["0: &a0 [1]", *(f"{i}: &a{i} [{f'*a{i - 1},' * 9}]" for i in range(1, 20))]),
    "a: [",
    b"\xff",
)


@pytest.mark.parametrize("text", NO_YAML, ids=range(len(NO_YAML)))
def test_yaml_that_cannot_be_read_is_one_line_wherever_it_is_read(text: str | bytes, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError) as refused:
        read_yaml(path)
    assert str(refused.value).isprintable()
    for read in (load_profile, load_rules, lambda at: read_jobs(at, lambda *given: None, {"a": 1})):
        with pytest.raises(DataError):
            read(path)


def test_gates_with_keys_of_several_kinds_are_refused(tmp_path):
    (tmp_path / "gates.yaml").write_text("format: 1\n1: 2\nnull: 3\n")
    with pytest.raises(DataError, match="1: Keys should be strings"):
        load_rules(tmp_path / "gates.yaml")


def test_the_examples_run():
    tried = doctest.testmod(parsing, optionflags=doctest.ELLIPSIS)
    assert (tried.failed, tried.attempted > 3) == (0, True)
