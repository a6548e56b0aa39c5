"""The help of commands: in colours where people read it on a terminal."""

import re
import sys
from collections.abc import Iterable

import click

from registry.cli import output

_NAMES = re.compile(r"(?<![\w-])--?[\w-]+")
"""Pattern of options in the first column, beside the words for their values."""


class Formatter(click.HelpFormatter):
    """Click's formatter, whose headings and names stand out on a terminal."""

    def write_heading(self, heading: str) -> None:
        """Writes the heading of a list."""
        super().write_heading(_styled(heading, bold=True))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Writes options or commands beside what they do."""
        super().write_dl([(_named(term), text) for term, text in rows], col_max, col_spacing)


class Context(click.Context):
    """What a command is called with."""

    formatter_class = Formatter


def _named(term: str) -> str:
    if not term.startswith("-"):
        return _styled(term, fg="cyan")
    return _NAMES.sub(lambda name: _styled(name[0], fg="cyan"), term)


def _styled(text: str, *, fg: str | None = None, bold: bool | None = None) -> str:
    return click.style(text, fg=fg, bold=bold) if output.is_coloured(sys.stdout) else text
