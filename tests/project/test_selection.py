"""Which target of the Makefile runs which test: each test is one's."""

import itertools
import re
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


def test_the_gate_and_ci_run_both(project: Path):
    makefile = (project / "Makefile").read_text()
    assert re.search(r"^test-all: test test-rest ", makefile, re.MULTILINE)
    assert re.search(r"^gate: lint test-all ", makefile, re.MULTILINE)
    ran = re.findall(r"^make (test\S*)$", (project / ".ci" / "run").read_text(), re.MULTILINE)
    assert ran == ["test", "test-rest", "test-services"]
