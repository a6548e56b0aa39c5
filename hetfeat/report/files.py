"""Tables as CSV and as plain data."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hetfeat.report.cells import Table

CELL_COLUMNS = (
    *("measure", "value", "low", "high", "seeds", "paper", "paper_of", "ratio", "date", "runs"),
    *("tasks_low", "tasks_high"),
)


def write_csv(table: Table, path: Path) -> None:
    """Writes a table with a line for each cell, the ids of its runs separated by spaces."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*table.keys, *CELL_COLUMNS])
        for row, measure, cell in table.cells():
            value = cell.words or cell.value
            theirs = row.paper_of if cell.paper is not None else ""
            figures = (value, cell.low, cell.high, cell.seeds, cell.paper, theirs, cell.ratio)
            behind = (cell.date, " ".join(cell.runs), cell.tasks_low, cell.tasks_high)
            writer.writerow([*row.keys, measure, *figures, *behind])


def as_data(table: Table) -> dict[str, Any]:
    """A table for JSON: each row its keys and its cells by measure."""
    rows: Sequence[Mapping[str, Any]] = [
        {
            **dict(zip(table.keys, row.keys, strict=True)),
            "paper_of": row.paper_of,
            "cells": {
                measure: asdict(cell) | {"ratio": cell.ratio}
                for measure, cell in zip(table.measures, row.cells, strict=True)
            },
        }
        for row in table.rows
    ]
    return {"name": table.name, "title": table.title, "verdict": table.verdict, "rows": rows}
