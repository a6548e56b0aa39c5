"""The report as one HTML page that needs nothing but itself."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetfeat.report.cells import NOT_RUN, Cell, Row, Table


@dataclass(frozen=True)
class Section:
    """A table on the page.

    Attributes:
        table: Table that is shown.
        svg: Figure of the table as SVG, or None if there is nothing to draw.
        behind: Dates and machines of the runs behind it.
    """

    table: Table
    svg: bytes | None
    behind: str


@dataclass(frozen=True)
class Page:
    """What the page says beside the tables.

    Attributes:
        effort: Effort of the report.
        facts: Name of a fact -> text, such as the digest of the records.
        left_out: Name of what could not be run -> the reason.
    """

    effort: str
    facts: Mapping[str, str]
    left_out: Mapping[str, str]


def render(page: Page, sections: Sequence[Section]) -> str:
    """The page as HTML: style and figures inside, no script, no address to fetch."""
    return rendered("page.html", page=page, sections=sections, not_run=NOT_RUN)


def rendered(template: str, **values: object) -> str:
    """A template of this folder as HTML, with the page's style.

    Args:
        template: Name of the template's file.
        **values: Values of the template's variables.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "seeds": seeds,
        "tasks": tasks,
        "data_uri": _data_uri,
    }
    environment.tests["ran"] = ran
    style = (here / "page.css").read_text()
    return environment.get_template(template).render(style=style, **values)


def number(value: float, digits: int = 4) -> str:
    """As many significant digits, of which at most four decimals; whole numbers whole."""
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(decimals, 0), 4)}f}".rstrip("0").rstrip(".")


def seeds(cell: Cell) -> str:
    """How many seeds a cell rests on, and how far its runs lie apart."""
    if not cell.runs:
        return ""
    told = "1 seed" if cell.seeds == 1 else f"{cell.seeds} seeds"
    if cell.low is None or cell.high is None or cell.low == cell.high:
        return told
    return f"{number(cell.low, 3)} to {number(cell.high, 3)}, {told}"


def tasks(cell: Cell) -> str:
    """How far a cell's figure may be off, since its tasks are a draw; empty for most cells."""
    if cell.tasks_low is None or cell.tasks_high is None:
        return ""
    return f"95 %: {number(cell.tasks_low, 3)} to {number(cell.tasks_high, 3)}"


def ran(row: Row) -> bool:
    """Whether a row has any figure of ours."""
    return any(cell.value is not None for cell in row.cells)


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
