"""How far long work has come, with its rate and the time left."""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
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
OnFigures = Callable[[int, Mapping[str, float]], None]
"""Takes a step, such as a number of trials, and figures at it by name."""
OnStage = Callable[[str], contextlib.AbstractContextManager[object]]
"""Encloses a stage of work, by its name."""
_listener: ContextVar[OnProgress | None] = ContextVar("listener", default=None)
_recorder: ContextVar[OnFigures | None] = ContextVar("recorder", default=None)
_stages: ContextVar[OnStage | None] = ContextVar("stages", default=None)


@contextlib.contextmanager
def reported_to(on_progress: OnProgress | None) -> Iterator[None]:
    """Tells a caller how far work has come, instead of showing it; nobody where that is None."""
    token = _listener.set(on_progress or (lambda _: None))
    try:
        yield
    finally:
        _listener.reset(token)


@contextlib.contextmanager
def recorded_by(on_figures: OnFigures) -> Iterator[None]:
    """Gives figures of work in progress to `on_figures`, for the length of the block."""
    token = _recorder.set(on_figures)
    try:
        yield
    finally:
        _recorder.reset(token)


def record(step: int, figures: Mapping[str, float]) -> None:
    """Tells figures of work in progress, by name, to whoever records them; mostly nobody does."""
    if (recorder := _recorder.get()) is not None:
        recorder(step, figures)


@contextlib.contextmanager
def staged_by(on_stage: OnStage) -> Iterator[None]:
    """Encloses the stages of work in what `on_stage` gives, for the length of the block."""
    token = _stages.set(on_stage)
    try:
        yield
    finally:
        _stages.reset(token)


def stage(name: str) -> contextlib.AbstractContextManager[object]:
    """A block that is a stage of work, such as `building`, to whoever times stages."""
    on_stage = _stages.get()
    return contextlib.nullcontext() if on_stage is None else on_stage(name)


@contextlib.contextmanager
def progress(
    total: int | None, unit: str, line_s: float = 30.0, point_s: float = 10.0
) -> Iterator[At]:
    """A bar on a terminal, elsewhere a line now and then; nothing with HETFEAT_QUIET.

    Work of a second shows nothing, so that a refusal stays one line. Whoever records figures gets
    how many units are done, and how many a second, whatever is shown.

    Args:
        total: Largest number of units there is to do; None where nobody knows.
        unit: Word for what is counted, in the singular.
        line_s: How often a line is written where standard error is no terminal, in seconds; 30 by
            default, and before the first 30, nothing is.
        point_s: How often figures are recorded, in seconds; 10 by default.

    Yields:
        A function to call with the number of units done in all, and perhaps a note.
    """
    with _shown(total, unit, line_s) as show:
        counted: tuple[int, float] | None = None

        def at(done: int, note: str = "", /) -> None:
            nonlocal counted
            show(done, note)
            now = time.monotonic()
            if counted is None:
                counted = done, now
            elif (seconds := now - counted[1]) >= point_s:
                rate = (done - counted[0]) / seconds
                record(done, {f"progress/{unit}s": done, f"progress/{unit}s_per_s": rate})
                counted = done, now

        yield at


@contextlib.contextmanager
def _shown(total: int | None, unit: str, line_s: float) -> Iterator[At]:
    """What of `progress` is seen."""
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
