"""What long work shows of itself: on a terminal, elsewhere, and when it is to be quiet."""

import io
import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import ansor_lines
import pytest
import spaces
import stores
import trained

import mlproject
from hetfeat import progress as module
from hetfeat.progress import as_line, progress
from registry.cli import app, logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def not_quiet(monkeypatch):
    monkeypatch.delenv("HETFEAT_QUIET", raising=False)
    logs.log_to_stderr()


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when a test says so."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_line_has_rate_and_time_left():
    assert as_line(32, 64, 16.0, "program") == "32 of 64 programs,  2.00program/s, 00:16 left"
    assert as_line(100, None, 10.0, "record") == "100 records, 10.00record/s"


def test_elsewhere_nothing_at_first_then_a_line_now_and_then(capfd, clock):
    with progress(10, "trial") as at:
        for done in range(1, 11):
            clock[0] += 10
            at(done)
    lines = capfd.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "3 of 10 trials",
        "6 of 10 trials",
        "9 of 10 trials",
    ]
    assert lines[0].endswith("01:10 left")


def test_what_else_there_is_to_say(capfd, clock):
    with progress(None, "program") as at:
        clock[0] += 40
        at(80, "kernels 3.00 ms")
    assert capfd.readouterr().err == "80 programs,  2.00program/s, kernels 3.00 ms\n"


def test_on_a_terminal_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(
        module, "tqdm", lambda **given: real(**given | {"delay": 0, "mininterval": 0})
    )
    with progress(4, "trial") as at:
        for done in range(1, 5):
            at(done)
    shown = terminal.getvalue()
    assert "4/4 [" in shown and "trial/s" in shown


real = module.tqdm


def test_quiet_is_quiet(capfd, clock, monkeypatch):
    monkeypatch.setenv("HETFEAT_QUIET", "1")
    with progress(10, "trial") as at:
        clock[0] += 1000
        at(5)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("train --records records --effort quick", "of 150 rounds"),
        ("prune records --out pruned", "pieces"),
        ("search --space cache.json --strategy random,gbfs --budget 20", "of 40 evaluations"),
        ("hpo --records records --effort quick --trials 1", "of 1 trials"),
        ("import ansor.json --format ansor --device lab --out imported", "records"),
        ("transfer --records other --device c --budget-per-task 4 --source SOURCE", "of 2 folds"),
    ],
)
def test_a_long_command_says_how_far_it_is(tmp_path, trained_once, capfd, monkeypatch, line, unit):
    with trained.registry_with_a_model(tmp_path, trained_once):
        _says_how_far_it_is(capfd, monkeypatch, line, unit)


def _says_how_far_it_is(capfd, monkeypatch, line, unit):
    spaces.recorded(Path())
    Path("ansor.json").write_bytes(b"\n".join(ansor_lines.log(3, seed=0)))
    if "SOURCE" in line:
        stores.make_store(Path("other"), devices=("c",), tasks=6, per_task=12)
        line = line.replace("SOURCE", f"models:/{trained.MODEL}/1")
    clock = itertools.count(0.0, 31.0)  # a line is due each time that somebody asks
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert app.run(mlproject.cli, [*line.split(), "--json"]) == 0
    printed = capfd.readouterr()
    assert f" {unit}, " in printed.err
    json.loads(printed.out)
