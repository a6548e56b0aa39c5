"""The documentation as a site: it builds, stands alone, and names every command."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

import mlproject

OUTSIDE = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//"""
)


@pytest.fixture(scope="module")
def hook(project: Path):
    spec = importlib.util.spec_from_file_location("site_hook", project / "tools" / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(project: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """As `make docs`; not quiet, for then MkDocs counts no warnings."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out],
        cwd=project,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_site_builds_and_stands_alone(project: Path, tmp_path: Path):
    done = build(project, tmp_path)
    assert done.returncode == 0, done.stderr
    pages = {path.name: path.read_text() for path in tmp_path.rglob("*.html")}
    assert [name for name, text in pages.items() if OUTSIDE.search(text)] == []
    for name in mlproject.COMMANDS:
        assert f'id="hetfeat-{name}"' in pages["commands.html"]
    assert "CostModel" in pages["contracts.html"]


@pytest.mark.slow
def test_a_broken_anchor_is_an_error(project: Path, tmp_path: Path):
    for name in ("docs", "tools"):
        shutil.copytree(project / name, tmp_path / name)
    for name in ("hetfeat", "registry", "examples", "tests", "mlproject.py", "LICENSE"):
        (tmp_path / name).symlink_to(project / name)
    for name in ("README.md", "CHANGELOG.md", "mkdocs.yml"):
        shutil.copy(project / name, tmp_path)
    with (tmp_path / "docs" / "store.md").open("a") as page:
        page.write("\n[x](deploy.md#no-such-heading)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert "no-such-heading" in done.stderr


@pytest.mark.parametrize("name", mlproject.COMMANDS)
def test_the_reference_has_every_option_with_its_help(hook, name):
    page = " ".join(" ".join(hook.commands()).split())
    for parameter in mlproject.cli.load(name).params:
        if isinstance(parameter, click.Option):
            assert parameter.opts[0] in page
            assert " ".join((parameter.help or "").split()) in page


def test_a_link_of_the_readme_becomes_one_among_the_pages(hook, project):
    assert hook.with_links_from("[d](docs/deploy.md#x)", project, "README.md") == "[d](deploy.md#x)"


def test_a_link_to_code_becomes_its_path(hook, project):
    link = "[the receiver](../examples/production_webhook.py)"
    shown = hook.with_links_from(link, project / "docs", "registry.md")
    assert shown == "the receiver (`examples/production_webhook.py`)"


def test_a_link_to_what_is_not_there_is_an_error(hook, project):
    from mkdocs.exceptions import PluginError

    with pytest.raises(PluginError, match=r"deploy\.md links to '\.\./no/file'"):
        hook.with_links_from("[x](../no/file)", project / "docs", "deploy.md")
