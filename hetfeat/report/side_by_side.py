"""One page of runs side by side: tables of others' texts, which are shown and never obeyed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hetfeat.durable import write_file
from hetfeat.report.page import rendered


def write_page(
    path: Path,
    verdict: str,
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    best: str,
) -> None:
    """Writes the page, which needs nothing but itself.

    Args:
        path: Path of the HTML file; its folder is made.
        verdict: Sentence above the tables.
        tables: Title of a table -> its rows, all of the same columns; one without rows is left out.
        best: Name of the column that names the column whose cell is the best of its row.
    """
    page = rendered(
        "side_by_side.html",
        verdict=verdict,
        tables={title: rows for title, rows in tables.items() if rows},
        best=best,
        shown=_shown,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page.encode())


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
