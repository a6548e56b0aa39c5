"""What collecting and tuning write beside the records of a store.

DIR/evaluation.json  tasks measured densely, held out of training by default
DIR/anchors.jsonl    re-measurements of a few programs, by which drift shows
DIR/rejected.jsonl   measurements whose repeats disagreed too much to be kept
DIR/quarantine.jsonl measurements on servers that were not the device, and servers turned away
DIR/spent.json       seconds that tuning took so far
"""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hetfeat.dataset.schema import to_row
from hetfeat.records import Measurement

EVALUATION, ANCHORS, REJECTED = "evaluation.json", "anchors.jsonl", "rejected.jsonl"
QUARANTINE, SPENT = "quarantine.jsonl", "spent.json"


def evaluation_tasks(store: Path) -> list[str]:
    """Hashes of the store's evaluation tasks; none if it has none."""
    path = store / EVALUATION
    return list(json.loads(path.read_text())["tasks"]) if path.is_file() else []


def save_evaluation_tasks(store: Path, tasks: list[str]) -> None:
    """Notes which tasks are the evaluation tasks."""
    _replace(store / EVALUATION, {"tasks": tasks})


def spent_s(store: Path) -> float:
    """Seconds that tuning with this journal took so far."""
    path = store / SPENT
    return float(json.loads(path.read_text())["seconds"]) if path.is_file() else 0.0


def save_spent_s(store: Path, seconds: float) -> None:
    """Notes how long tuning took so far."""
    _replace(store / SPENT, {"seconds": round(seconds, 3)})


def _replace(path: Path, content: dict[str, Any]) -> None:
    """Writes a file so that it is never half of one."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(path)


def note(store: Path, name: str, measurement: Measurement) -> None:
    """Adds a measurement, without features, to `ANCHORS` or `REJECTED`."""
    row = to_row(measurement) | {"stores": None}
    with (store / name).open("a") as file:
        file.write(json.dumps(row) + "\n")


def quarantine(store: Path, measurements: Sequence[Measurement], reason: str) -> None:
    """Keeps measurements apart that must never count, each with the reason.

    Without measurements it notes that a server was turned away.
    """
    rows = [to_row(found) | {"stores": None} for found in measurements] or [{}]
    now_s = round(time.time(), 3)
    with (store / QUARANTINE).open("a") as file:
        for row in rows:
            file.write(json.dumps({"reason": reason, "quarantined_unix_s": now_s} | row) + "\n")


def noted(store: Path, name: str) -> Iterator[dict[str, Any]]:
    """The rows of one of these files; a torn last line is left out."""
    path = store / name
    if not path.is_file():
        return
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
