"""The examples of docs/extending.md, cut out of the page and run: each section in its order."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlproject
from hetfeat.dataset.importers.formats import FORMATS
from hetfeat.dataset.importers.sniff import LINES
from hetfeat.models.registry import MODELS
from hetfeat.search.strategies import STRATEGIES
from registry.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n)*)", re.MULTILINE)
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
SECTIONS = {title: BLOCK.findall(body) for title, body in SECTION.findall(PAGE.read_text())}


TABLES: list[dict[str, str]] = [MODELS, STRATEGIES, FORMATS]


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A folder of one's own; tables and modules are as before when the example is over."""
    modules, tables, lines = set(sys.modules), [dict(table) for table in TABLES], list(LINES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for table, before in zip(TABLES, tables, strict=True):
        table.clear()
        table.update(before)
    LINES[:] = lines
    for name in set(sys.modules) - modules:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.mark.parametrize("section", SECTIONS)
def test_the_example_runs_as_it_stands(section: str) -> None:
    scope: dict[str, object] = {"__name__": "example"}
    for language, title, text in SECTIONS[section]:
        if title:
            Path(title).write_text(text)
        elif language == "python":
            exec(compile(text, f"{PAGE.name}: {section}", "exec"), scope)
        else:
            for line in text.splitlines():
                assert app.run(mlproject.cli, shlex.split(line)[1:]) == 0


def test_every_kind_of_extension_has_an_example():
    assert list(SECTIONS) == ["A model", "A search", "An importer", "A device"]
    assert all(any(title for _, title, _ in blocks) for blocks in SECTIONS.values())
