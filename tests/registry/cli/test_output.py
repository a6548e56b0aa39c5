"""Tables as people see them on a terminal, and as programs get them."""

import os
import pty
import subprocess
import sys
from collections import Counter

import click
import pytest

from registry.cli import output

ROWS = [
    {"name": "[bold red]x[/]", "ms": 1.5, "other": 2.5, "stage": "production", "best": "ms"},
    {"name": ":smile: \\[y]", "ms": None, "other": 3.0, "stage": None, "best": None},
]
PRINTS = f"from registry.cli import output; print(output.table({ROWS}, best='best'))"
FAILS = "import mlproject; mlproject.main(['trian'])"
PLAIN = output.columns(
    [
        list(ROWS[0]),
        ["[bold red]x[/]", "1.5", "2.5", "production", "ms"],
        [":smile: \\[y]", "-", "3", "-", "-"],
    ]
)


def on_a_terminal(project, code: str, width: int = 100, **variables: str) -> str:
    """What a program writes to both its streams where they are a terminal of so many columns."""
    ours, theirs = pty.openpty()
    kept = {name: os.environ[name] for name in os.environ if name != "NO_COLOR"}
    settings = {"TERM": "xterm", "COLUMNS": str(width), **variables}
    command = [sys.executable, "-c", code]
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        subprocess.run(command, cwd=project, env=kept | settings, stdout=theirs, stderr=theirs)
        os.close(theirs)
        return terminal.read(1 << 16).decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_and_others_markup_as_text(project):
    shown = on_a_terminal(project, PRINTS)
    assert "\x1b[1;32m1.5\x1b[0m" in shown
    assert "\x1b[1;32mproduction\x1b[0m" in shown
    assert "[bold red]x[/]" in shown and ":smile: \\[y]" in shown


def test_a_narrow_terminal_loses_nothing(project):
    shown = click.unstyle(on_a_terminal(project, PRINTS, width=40))
    assert max(map(len, shown.splitlines())) <= 40
    letters, wanted = (Counter(filter(str.isalnum, text)) for text in (shown, PLAIN))
    assert letters == wanted


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_no_colours_gets_plain_text(project, variables):
    assert on_a_terminal(project, PRINTS, **variables) == f"{PLAIN}\n"


def test_a_pipe_gets_plain_text_whatever_the_terminal_is(project):
    done = subprocess.run(
        [sys.executable, "-c", PRINTS],
        cwd=project,
        env=os.environ | {"TERM": "xterm", "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{PLAIN}\n"
    assert PLAIN.splitlines()[1] == "[bold red]x[/]  1.5  2.5    production  ms"


def test_an_error_stands_out_on_a_terminal(project):
    assert "\x1b[31m\x1b[1mhetfeat:\x1b[0m command 'trian'" in on_a_terminal(project, FAILS)
    assert on_a_terminal(project, FAILS, NO_COLOR="1").startswith("hetfeat: command 'trian'")
