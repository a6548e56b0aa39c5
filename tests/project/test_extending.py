"""The examples of docs/extending.md, cut out of the page and run: each section in its order."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlproject
from hetfeat.dataset.importers.formats import FORMATS, patterns_of_plugins
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
    modules, tables = set(sys.modules), [dict(table) for table in TABLES]
    patterns_of_plugins.cache_clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for table, before in zip(TABLES, tables, strict=True):
        table.clear()
        table.update(before)
    patterns_of_plugins.cache_clear()
    for name in set(sys.modules) - modules:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.mark.slow
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


def test_only_public_names_are_imported():
    modules = re.findall(
        r"^(?:from|import) (hetfeat\S*|registry\S*)", PAGE.read_text(), re.MULTILINE
    )
    public = re.compile(r"hetfeat(\.extending|\.testing\.\w+)?")
    assert [name for name in modules if not public.fullmatch(name)] == []
    assert len(modules) > 8


@pytest.mark.slow
def test_the_examples_pass_the_tests_that_every_extension_must_pass(child_environment) -> None:
    """Installed as packages are: by entry points beside them."""
    info = Path("extensions-0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extensions\nVersion: 0\n")
    blocks = BLOCK.findall(PAGE.read_text())
    for _, title, text in blocks:
        if title:
            Path(title).write_text(text)
    (toml,) = (text for language, _, text in blocks if language == "toml")
    lines = toml.replace('project.entry-points."', "").replace('"]', "]").replace('"', "")
    (info / "entry_points.txt").write_text(lines)
    environment = child_environment | {
        "PYTHONPATH": os.pathsep.join([str(Path.cwd()), child_environment["PYTHONPATH"]])
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, "--rootdir", ".", "test_extensions.py"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_every_kind_of_extension_has_an_example():
    assert list(SECTIONS) == ["A model", "A search", "An importer", "A device"]
    assert all(any(title for _, title, _ in blocks) for blocks in SECTIONS.values())
