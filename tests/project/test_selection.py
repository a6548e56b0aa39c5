"""Which target of the Makefile runs which test: each test is one's."""

import itertools
import re
import tomllib
from pathlib import Path

import pytest

RECIPE = re.compile(r"^([\w-]+):.*\n((?:\t.*\n)+)", re.MULTILINE)
SELECTION = re.compile(r'-m (?:"([^"]+)"|(clock|fleet|arm|pages)\b)')
MARKS = ("slow", "clock", "fleet", "arm", "pages")


@pytest.mark.parametrize("bits", list(itertools.product([False, True], repeat=len(MARKS))))
def test_every_test_is_run_by_one_target(project: Path, bits):
    marks = dict(zip(MARKS, bits, strict=True))
    ran = [
        target
        for target, recipe in RECIPE.findall((project / "Makefile").read_text())
        if target != "test-lowest"  # the same tests, beside other packages
        for quoted, plain in SELECTION.findall(recipe)
        if eval(quoted or plain, {}, marks)
    ]
    alone = [f"test-{mark}" for mark in ("fleet", "arm", "pages") if marks[mark]]
    if alone:
        assert sorted(ran) == sorted(alone)
    else:
        assert len(ran) == 1 and ran[0] in {"test", "test-rest"}


def test_the_page_says_which_target_runs_a_mark(project: Path):
    page = (project / "docs" / "contributing.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .* \| `make ([\w-]+)` \|$", page, re.MULTILINE)
    markers = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["pytest"]
    named = [marker.partition(":")[0] for marker in markers["ini_options"]["markers"]]
    assert {mark for mark, _ in rows} == set(named) - {"tvm"}
    for mark, target in rows:
        own = "test-rest" if mark in {"slow", "clock"} else f"test-{mark}"
        assert target == own
    makefile = (project / "Makefile").read_text()
    (every,) = re.findall(r"^test-every: (.*) ##", makefile, re.MULTILINE)
    alone = {target for _, target in rows} - {"test-rest", "test-services"}
    assert set(every.split()) == {"test-all", *alone}


def test_the_gate_and_ci_run_both(project: Path):
    makefile = (project / "Makefile").read_text()
    assert re.search(r"^test-all: test test-rest ", makefile, re.MULTILINE)
    assert re.search(r"^gate: lint test-all ", makefile, re.MULTILINE)
    ran = re.findall(r"^make (test\S*)$", (project / ".ci" / "run").read_text(), re.MULTILINE)
    assert ran == ["test", "test-rest", "test-services"]
