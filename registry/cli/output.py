"""A command's result as one JSON object, or as text for people."""

import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

STDIN, STDOUT, STDERR = 0, 1, 2
_BEST_STYLE = "bold green"
_STYLES = {
    "passed": "green",
    "overridden": "yellow",
    "refused": "bold red",
    "production": "bold green",
    "staging": "yellow",
}
"""Rich's style of a cell by its text: outcomes of gates, and stages."""


def open_closed_streams() -> None:
    """Leads standard streams that were closed (by cron, a daemon, `>&-`) to the null device.

    Else the next file that is opened would take the number of one, and what is printed with it.
    """
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            os.set_inheritable(descriptor, True)
    # Only now: these are files, too, and would have taken the numbers.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - as long as the process


@contextlib.contextmanager
def stdout_kept_for_the_result() -> Iterator[None]:
    """Sends to standard error whatever is printed meanwhile: by Python, by C code, by children."""
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, STDOUT)
        os.close(kept)


def as_json(result: Mapping[str, Any]) -> str:
    """One line of JSON; what JSON has no number for (NaN, infinities) becomes null."""
    return json.dumps(_plain(result), allow_nan=False)


def as_text(result: Mapping[str, Any]) -> str:
    """Lines of name and value, nested names joined by dots, then each list of rows as a table."""
    fields: list[tuple[str, str]] = []
    tables: list[str] = []
    _collect("", _plain(result), fields, tables)
    return "\n\n".join(filter(None, [columns(fields), *tables]))


def rendered_by(
    render: Callable[[Mapping[str, Any]], str],
) -> Callable[[Mapping[str, Any]], str]:
    """A renderer that is given no character which a terminal would obey, nor a line's end."""
    return lambda result: render(_escape(_plain(result)))


def escaped(text: str) -> str:
    """A text of anybody's on one line; letters of every language stay."""
    if text.isprintable():
        return text
    from hetfeat.parsing import printable  # only here: the door stays quick

    return printable(text, most=None)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of texts as columns, each as wide as its widest cell."""
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def table(rows: Sequence[Mapping[str, Any]], best: str = "") -> str:
    """Rows as a table under the names of the first row's keys; in colours where people see them.

    Args:
        rows: Rows by column.
        best: Name of the column that names the column whose cell is the best of its row, default
            empty for none.
    """
    if not rows:
        return ""
    if is_coloured(sys.stdout):
        return _drawn(rows, best)
    names = list(rows[0])
    return columns([names, *([_cell(_plain(row.get(name))) for name in names] for row in rows)])


def is_coloured(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user wants colours."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and stream.isatty()


def _drawn(rows: Sequence[Mapping[str, Any]], best: str) -> str:
    """A table as wide as the terminal at most; cells are texts, never markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        known = [row[name] for row in rows if row.get(name) is not None]
        is_figure = bool(known) and all(isinstance(value, int | float) for value in known)
        made.add_column(Text(name), justify="right" if is_figure else "left", overflow="fold")
    for row in rows:
        cells = {name: _cell(_plain(row.get(name))) for name in rows[0]}
        outstanding = row.get(best) if best else None
        styles = (_BEST_STYLE if n == outstanding else _STYLES.get(cells[n], "") for n in cells)
        made.add_row(*map(Text, cells.values(), styles))
    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(made)
    return captured.get().strip("\n")


def _collect(prefix: str, value: Any, fields: list[tuple[str, str]], tables: list[str]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _collect(f"{prefix}.{key}" if prefix else key, inner, fields, tables)
    elif isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        tables.append(f"{prefix}\n{table(value)}")
    else:
        fields.append((prefix, _cell(value)))


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.4g}"
        case list():
            return ", ".join(map(_cell, value)) or "-"
        case dict():
            return ", ".join(f"{key}={_cell(inner)}" for key, inner in value.items()) or "-"
    return str(value)


def _escape(value: Any) -> Any:
    if isinstance(value, dict):
        return {escaped(key): _escape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return list(map(_escape, value))
    return escaped(value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    """Only what JSON knows: dictionaries, lists, texts, finite numbers, booleans and None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays, without importing NumPy
        return _plain(value.tolist())
    raise TypeError(f"a result holds a {type(value).__name__}, which JSON cannot carry")
