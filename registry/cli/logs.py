"""What our own loggers write to standard error: lines for people, or JSON for machines."""

import contextlib
import logging
import sys
import time
from typing import Any

import click

from registry.cli import output

PACKAGES = ("hetfeat", "registry")


class StderrHandler(logging.StreamHandler[Any]):
    """Writes to what standard error is at that moment, so that a redirected one is honoured."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record; a progress bar steps aside for it."""
        self.stream = sys.stderr
        with contextlib.ExitStack() as stack:
            if "tqdm" in sys.modules:
                from tqdm import tqdm

                stack.enter_context(tqdm.external_write_mode(file=sys.stderr))
            super().emit(record)


class LineFormatter(logging.Formatter):
    """The message as one line, then the traceback if there is one.

    Args:
        with_time: Whether the time of day and the logger's name stand before it.
    """

    def __init__(self, with_time: bool = False) -> None:
        super().__init__()
        self.with_time = with_time

    def format(self, record: logging.LogRecord) -> str:
        """The lines of a record, with control characters escaped."""
        text = super().format(record)
        first, traceback = record.message, text[len(record.message) :]
        if self.with_time:
            first = (
                f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {record.name} {first}"
            )
        return "\n".join(map(output.escaped, [first, *traceback.splitlines()[1:]]))


class JsonFormatter(logging.Formatter):
    """A record as one JSON object: time (seconds since 1970), level, logger, message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        import json  # only here: the door stays quick

        told = {
            "time_unix_s": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told)


def log_to_stderr() -> None:
    """Shows our own progress, and leaves other libraries' loggers as they are."""
    _set(logging.INFO, LineFormatter())


def log_options() -> list[click.Parameter]:
    """The options of every command that choose what is logged, and how."""
    return [
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_verbose,
            help="Log more, with times.",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_quiet,
            help="Log warnings alone.",
        ),
        click.Option(
            ["--log-format"],
            type=click.Choice(["text", "json"]),
            expose_value=False,
            callback=_format,
            help="How lines of the log are written.  [default: text]",
        ),
    ]


def _verbose(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        _set(logging.DEBUG)
        for handler in _handlers():
            if isinstance(handler.formatter, LineFormatter):
                handler.setFormatter(LineFormatter(with_time=True))


def _quiet(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        _set(logging.WARNING)


def _format(context: click.Context, parameter: click.Parameter, given: str | None) -> None:
    if given == "json":
        _set(None, JsonFormatter())


def _handlers() -> list[StderrHandler]:
    handlers = [h for name in PACKAGES for h in logging.getLogger(name).handlers]
    return [handler for handler in handlers if isinstance(handler, StderrHandler)]


def _set(level: int | None, formatter: logging.Formatter | None = None) -> None:
    for name in PACKAGES:
        logger = logging.getLogger(name)
        if level is not None:
            logger.setLevel(level)
        ours = [handler for handler in logger.handlers if isinstance(handler, StderrHandler)]
        if not ours:
            ours = [StderrHandler()]
            logger.addHandler(ours[0])
        if formatter:
            ours[0].setFormatter(formatter)
