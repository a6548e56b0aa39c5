"""What collecting and tuning write beside the records of a store.

DIR/evaluation.json  tasks measured densely, held out of training by default
DIR/anchors.jsonl    re-measurements of a few programs, by which drift shows
DIR/rejected.jsonl   measurements whose repeats disagreed too much to be kept
DIR/quarantine.jsonl measurements on servers that were not the device, and servers turned away
DIR/spent.json       seconds that tuning took so far, by what was tuned
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hetfeat.dataset.files import RESTORE, append_lines, json_lines, repair_hint
from hetfeat.dataset.schema import to_row
from hetfeat.durable import write_file
from hetfeat.parsing import Json, PositiveFloat, Schema, decode, parse
from hetfeat.records import Measurement

EVALUATION, DRIFT_PROBES, REJECTED = "evaluation.json", "anchors.jsonl", "rejected.jsonl"
QUARANTINE, SPENT = "quarantine.jsonl", "spent.json"

_QUARANTINING = threading.Lock()
"""Several servers of a device are measured on at once, by threads of one process."""

T = TypeVar("T")


class SidecarLine(Schema):
    """What is read of a line of `DRIFT_PROBES` or `REJECTED`."""

    device: str
    task: str
    program: str
    trace: str
    latencies_s: list[PositiveFloat]


LINES = {DRIFT_PROBES: SidecarLine, REJECTED: SidecarLine, QUARANTINE: dict[str, Json]}
"""What a line of each file is."""


def evaluation_tasks(store: Path) -> list[str]:
    """Hashes of the store's evaluation tasks; none if it has none.

    Raises:
        DataError: The file is damaged.
    """
    return _read(store / EVALUATION, "tasks", list[str], [])


def save_evaluation_tasks(store: Path, tasks: list[str]) -> None:
    """Notes which tasks are the evaluation tasks."""
    _write(store / EVALUATION, {"tasks": tasks})


def spent_s(store: Path, what: str) -> float:
    """Seconds that tuning something with this journal took so far.

    Raises:
        DataError: The file is damaged.
    """
    return _spent(store).get(what, 0.0)


def save_spent_s(store: Path, what: str, seconds: float) -> None:
    """Notes how long tuning something took so far."""
    _write(store / SPENT, {"seconds": _spent(store) | {what: seconds}})


def _spent(store: Path) -> dict[str, float]:
    none: dict[str, float] = {}
    return _read(store / SPENT, "seconds", dict[str, float], none)


def _read(path: Path, key: str, kind: type[T], absent: T) -> T:
    """What a file has under its key, or `absent` without a file."""
    if not path.is_file():
        return absent
    what = f"'{path}', which is no JSON with {key}"
    found = decode(path.read_bytes(), dict[str, Json], what=what, action=RESTORE)
    return parse(found.get(key), kind, what=what, action=RESTORE)


def _write(path: Path, content: dict[str, Any]) -> None:
    write_file(path, (json.dumps(content, indent=1) + "\n").encode())


def append_measurement(store: Path, name: str, measurement: Measurement) -> None:
    """Adds a measurement, without features, to `DRIFT_PROBES` or `REJECTED`."""
    append_lines(store / name, [to_row(measurement) | {"stores": None}])


def quarantine(store: Path, measurements: Sequence[Measurement], reason: str) -> None:
    """Keeps measurements apart that must never count, each with the reason.

    Without measurements it notes that a server was turned away.
    """
    rows = [to_row(found) | {"stores": None} for found in measurements] or [{}]
    common = {"reason": reason, "quarantined_unix_s": round(time.time(), 3)}
    with _QUARANTINING:
        append_lines(store / QUARANTINE, [common | row for row in rows])


def read_rows(store: Path, name: str) -> Iterator[dict[str, Any]]:
    """The rows of one of these files; a torn last line is left out.

    Raises:
        DataError: A whole line is not JSON, or not of a measurement.
    """
    what, action = f"'{store / name}' with a line that is no measurement", repair_hint(store)
    for line in json_lines(store / name, action=action):
        parse(line, LINES[name], what=what, action=action)
        yield line
