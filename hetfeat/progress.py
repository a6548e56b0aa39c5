"""How far long work has come, with its rate and the time left."""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from tqdm import tqdm

log = logging.getLogger(__name__)

LINE = "{n_fmt} of {total_fmt} {unit}s, {rate_fmt}, {remaining} left"
LINE_WITHOUT_END = "{n_fmt} {unit}s, {rate_fmt}"


class At(Protocol):
    """Takes how far work has come."""

    def __call__(self, done: int, note: str = "", /) -> None:
        """See `progress`."""


@dataclass(frozen=True)
class Progress:
    """How far a piece of work has come, as `on_progress` hears it.

    Attributes:
        done: Number of units done so far.
        total: Largest number of units there is to do; None where nobody knows.
        unit: Word for what is counted, in the singular, such as `program` or `round`.
        note: Further words about the work; empty by default.

    Examples:
        >>> import hetfeat
        >>> hetfeat.Progress(done=3, total=None, unit="program")
        Progress(done=3, total=None, unit='program', note='')
    """

    done: int
    total: int | None
    unit: str
    note: str = ""


OnProgress = Callable[[Progress], None]
_listener: ContextVar[OnProgress | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def reported_to(on_progress: OnProgress | None) -> Iterator[None]:
    """Tells a caller how far work has come, instead of showing it; nobody where that is None."""
    token = _listener.set(on_progress or (lambda _: None))
    try:
        yield
    finally:
        _listener.reset(token)


@contextlib.contextmanager
def progress(total: int | None, unit: str, line_s: float = 30.0) -> Iterator[At]:
    """A bar on a terminal, elsewhere a line now and then; nothing with HETFEAT_QUIET.

    Work of a second shows nothing, so that a refusal stays one line.

    Args:
        total: Largest number of units there is to do; None where nobody knows.
        unit: Word for what is counted, in the singular.
        line_s: How often a line is written where standard error is no terminal, in seconds; 30 by
            default, and before the first 30, nothing is.

    Yields:
        A function to call with the number of units done in all, and perhaps a note.
    """
    if (listener := _listener.get()) is not None:
        yield lambda done, note="", /: listener(Progress(done, total, unit, note))
        return
    quiet = bool(os.environ.get("HETFEAT_QUIET"))
    started = said = time.monotonic()
    with tqdm(
        total=total,
        unit=unit,
        file=sys.stderr,
        delay=1,
        mininterval=0.5,
        dynamic_ncols=True,
        leave=False,
        disable=quiet or not sys.stderr.isatty(),
    ) as bar:

        def at(done: int, note: str = "") -> None:
            nonlocal said
            bar.set_postfix_str(note, refresh=False)
            bar.update(done - bar.n)
            now = time.monotonic()
            if bar.disable and not quiet and now - said >= line_s:
                said = now
                log.info("%s", as_line(done, total, now - started, unit) + (note and f", {note}"))

        yield at


def as_line(done: int, total: int | None, seconds: float, unit: str) -> str:
    """What a line says, such as `32 of 64 programs, 2.00program/s, 00:16 left`."""
    form = LINE if total else LINE_WITHOUT_END
    return str(tqdm.format_meter(done, total or 0, seconds, unit=unit, bar_format=form))
