"""Figures of the pages are those of result files, and copied ones those of their experiments."""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

# At the end: nothing of the project is to be found in another place.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import figure_charts
import figures

ROOT = figures.ROOT
COPIED = [
    pytest.param(each, id=f"{name}-{i}")
    for name in ("latency", "time-to-tvm", "few-measurements", "quick-start", "accuracy")
    for i, each in enumerate(figures.copied(name))
]
GOALS = {"0.95"}
CHANCE, OF_THE_PAPER = {"0.5"}, {"0.85", "0.86", "0.89", "0.90"}


def drawn_as_pinned() -> bool:
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    return f"matplotlib=={version('matplotlib')}" in pins


def test_pages_and_charts_are_those_of_the_result_files():
    differ = [path.name for path, content in figures.remade() if path.read_bytes() != content]
    if not drawn_as_pinned():  # another matplotlib draws other lines of the same figures
        differ = [name for name in differ if not name.endswith(".svg")]
    assert differ == [], "run `make figures`"


def test_a_figure_that_is_typed_over_is_written_again():
    page = "a\n<!-- figures: latency -->\n0.5\n<!-- end of figures -->\nb 0.5\n"
    made = "a\n<!-- figures: latency -->\n0.8\n<!-- end of figures -->\nb 0.5\n"
    assert figures.filled(page, {"latency": "0.8"}) == made


@pytest.mark.parametrize(
    ("page", "typed"), [("performance", GOALS), ("accuracy", CHANCE | OF_THE_PAPER)]
)
def test_no_figure_of_ours_is_typed(page: str, typed: set[str]):
    prose = figures.BLOCK.sub("", (ROOT / "docs" / f"{page}.md").read_text())
    assert (
        set(re.findall(r"\d+\.\d+", re.sub(r"\((?:[^)]*\.md|https:)[^)]*\)", "", prose))) == typed
    )


def floats(value: Any) -> Iterator[float]:
    """All numbers in what JSON holds, those within words too."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from floats(each)
    elif value is not None:
        found = re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", str(value)))
        yield from map(float, found)


@pytest.mark.parametrize("copied", COPIED)
def test_a_copied_figure_stands_in_the_experiment_that_it_names(copied: dict[str, Any]):
    page = (ROOT / "docs" / "experiments" / copied["page"]).read_text()
    of_figures = {"rows", "tvm", "ours", "lines", "shown", "top1", "described", "versions"}
    found = [value for name, value in copied.items() if name in of_figures]
    assert set(floats(found)) - set(floats(page)) == set()


@pytest.mark.parametrize("copied", COPIED)
def test_a_copied_figure_says_where_when_and_how(copied: dict[str, Any]):
    assert {"page", "machine", "date", "versions", "command"} <= copied.keys()


def test_the_time_to_be_level_is_the_slowest_runs():
    def run(*points: tuple[int, int, float]) -> list[dict[str, float]]:
        return [dict(zip(("seconds", "trials", "share"), at, strict=True)) for at in points]

    first, second = run((10, 5, 1.2), (20, 8, 0.9)), run((12, 7, 0.99), (19, 9, 0.9))
    assert figures.levelled([first, second]) == (20, 9)
    assert figures.levelled([first, run((10, 5, 0.9), (20, 8, 1.1))]) is None


def test_a_chart_has_the_same_bytes_each_time_and_a_dress_for_dark_pages():
    rows = [("ResNet-50", "Zen 4", "quick", (0.9, 1.1), "")]
    alt, picture = figure_charts.over_fastest(rows)
    assert figure_charts.over_fastest(rows) == (alt, picture)
    assert "ResNet-50, quick: 0.90 to 1.10 on one machine" in alt
    rows += [("ResNet-50", "Zen 5", "quick", (1.2,), "3 leaked")]
    assert "ResNet-50, quick: 0.90 to 1.20 on 2 machines" in figure_charts.over_fastest(rows)[0]
    assert b"prefers-color-scheme: dark" in picture and b"<dc:date>" not in picture


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("amd-epyc-znver3-avx2-2t", "Zen 3"),
        ("amd-epyc-znver5-avx512-2t", "Zen 5"),
        ("amd-epyc-znver5-avx2-1t", "Zen 5, AVX2, 1 thread"),
        ("intel-r-xeon-r-processor-sapphirerapids-avx512-2t", "Intel with AMX"),
        ("intel-avx512-2t", "intel-avx512-2t"),
    ],
)
def test_a_machine_is_named_as_people_do(profile: str, said: str):
    assert figures.spoken(profile) == said
