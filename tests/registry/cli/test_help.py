"""Help in colours on a terminal, and plain everywhere else."""

import click
import pytest
from click.testing import CliRunner

import mlproject
from registry.cli import output


def helped(*words: str) -> str:
    return CliRunner().invoke(mlproject.cli, [*words, "--help"], color=True).output


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "is_coloured", lambda stream: True)


@pytest.mark.parametrize("words", [(), ("train",), ("devices",), ("devices", "probe")])
def test_colours_change_no_word_and_no_place(words, monkeypatch, on_a_terminal):
    coloured = helped(*words)
    monkeypatch.undo()
    assert click.unstyle(coloured) == helped(*words)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ((), f"{click.style('Cost models', bold=True)}:\n  {click.style('train', fg='cyan')} "),
        (("train",), f"  {click.style('--records', fg='cyan')} "),
        (("train",), f"  {click.style('-h', fg='cyan')}, {click.style('--help', fg='cyan')} "),
        (("devices",), f"  {click.style('probe', fg='cyan')} "),
        (("devices", "probe"), f"{click.style('Options', bold=True)}:"),
    ],
)
def test_headings_commands_and_options_stand_out(words, shown, on_a_terminal):
    assert shown in helped(*words)


def test_what_is_piped_is_plain():
    assert "\x1b" not in helped("train")
