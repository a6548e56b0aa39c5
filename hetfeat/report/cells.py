"""Tables of cells, each of which knows the runs behind it and what the paper has in its place."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hetfeat.report.run import Run

NOT_RUN, NOT_THERE = "not run", "-"


@dataclass(frozen=True)
class Cell:
    """One figure.

    Attributes:
        value: Mean over `runs`, or a figure of a record store; None, the default, if there was no
            run.
        paper: The paper's figure, or None where it has none; default None.
        low: Least figure over the runs, default None.
        high: Greatest figure over the runs, default None.
        seeds: Number of different seeds among the runs, default 0.
        runs: Ids of the runs, default none.
        date: Day of the newest run, default empty.
        exists: Whether there is anything to measure, default True; False for such as what a search
            saves over itself.
        tasks_low: Lower end of the figure's interval over tasks, the mean over runs; default None.
        tasks_high: Upper end of it, default None.
    """

    value: float | None = None
    paper: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0
    runs: tuple[str, ...] = ()
    date: str = ""
    exists: bool = True
    tasks_low: float | None = None
    tasks_high: float | None = None

    @property
    def words(self) -> str:
        """What stands in the place of a value; empty where there is one."""
        if self.value is not None:
            return ""
        return NOT_RUN if self.exists else NOT_THERE

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's."""
        return self.value / self.paper if self.value is not None and self.paper else None


@dataclass(frozen=True)
class Row:
    """Cells under the same names.

    Attributes:
        keys: Texts that say what the row is of, one for each key of the table.
        cells: Cells, one for each measure of the table.
        paper_of: Hardware that the paper's figures in this row are of, default empty; empty without
            figures.
    """

    keys: tuple[str, ...]
    cells: tuple[Cell, ...]
    paper_of: str = ""


@dataclass(frozen=True)
class Table:
    """A table of the paper, remade.

    Attributes:
        name: Name of the table's files, such as `table5`.
        title: Title that is shown above it.
        source: Place in the paper.
        about: Advice how to read it, in a sentence or two.
        keys: Names of the columns that say what a row is of.
        measures: Names of the columns of cells, with units.
        rows: Rows in order.
        verdict: Sentences on where ours falls short, computed from the cells; default empty.
    """

    name: str
    title: str
    source: str
    about: str
    keys: tuple[str, ...]
    measures: tuple[str, ...]
    rows: tuple[Row, ...]
    verdict: str = ""

    def cells(self) -> Iterator[tuple[Row, str, Cell]]:
        """Every cell with its row and measure."""
        for row in self.rows:
            for measure, cell in zip(self.measures, row.cells, strict=True):
                yield row, measure, cell

    def column(self, measure: str) -> list[Cell]:
        """The cells of a measure."""
        return [row.cells[self.measures.index(measure)] for row in self.rows]

    def with_verdict(self, *sentences: str) -> "Table":
        """The same with its verdict: the sentences that say something, and what was not run."""
        every = [cell for _, _, cell in self.cells() if cell.exists]
        absent = sum(cell.value is None for cell in every)
        left = f"{absent} of {len(every)} cells were {NOT_RUN}." if absent else ""
        return replace(self, verdict=" ".join(filter(None, [*sentences, left])))


def cell_of(
    runs: Iterable[Run], metric: str | Callable[[Run], float | None], paper: float | None = None
) -> Cell:
    """The mean of a metric over runs, which are told apart by their seeds."""
    if isinstance(metric, str):
        name = metric
        return named_cell(runs, lambda run: name, paper)
    return _cell([(run, value) for run in runs if (value := metric(run)) is not None], paper)


def named_cell(
    runs: Iterable[Run], name_of: Callable[[Run], str], paper: float | None = None
) -> Cell:
    """The same of a metric that has a name in each run, with its interval over tasks.

    Seeds are tested on the same tasks: the interval is the mean of theirs, and no narrower.
    """
    named = [(run, name) for run in runs if (name := name_of(run)) in run.metrics]
    cell = _cell([(run, run.metrics[name]) for run, name in named], paper)
    low, high = (
        [r.metrics[at] for r, name in named if (at := f"{name}.{end}") in r.metrics]
        for end in ("low", "high")
    )
    if not low or not high:
        return cell
    return replace(cell, tasks_low=statistics.fmean(low), tasks_high=statistics.fmean(high))


def _cell(values_of_runs: Sequence[tuple[Run, float]], paper: float | None) -> Cell:
    if not values_of_runs:
        return Cell(paper=paper)
    values = [value for _, value in values_of_runs]
    return Cell(
        statistics.fmean(values),
        paper,
        min(values),
        max(values),
        len({run.seed for run, _ in values_of_runs}),
        tuple(run.id for run, _ in values_of_runs),
        max(run.date for run, _ in values_of_runs),
    )


def quotient(above: Cell, below: Cell, paper: float | None = None) -> Cell:
    """One cell over another; `paper` is the paper's, where it is not that of the two cells."""
    if paper is None and above.paper and below.paper:
        paper = above.paper / below.paper
    if above.value is None or not below.value:
        return Cell(paper=paper)
    return Cell(
        above.value / below.value,
        paper,
        seeds=min(above.seeds, below.seeds),
        runs=tuple(dict.fromkeys(above.runs + below.runs)),
        date=max(above.date, below.date),
    )


def known(cells: Iterable[Cell]) -> list[float]:
    """Values of the cells that were run."""
    return [cell.value for cell in cells if cell.value is not None]


def paired(cells: Iterable[Cell]) -> list[tuple[float, float]]:
    """Ours and the paper's, where there are both."""
    return [(c.value, c.paper) for c in cells if c.value is not None and c.paper is not None]


def compared(table: Table, measure: str, ours: str, theirs: str) -> str:
    """A sentence on a column that is the better the smaller it is: medians of ours and the paper's.

    Args:
        table: Table with the column.
        measure: Name of the column.
        ours: Text with `{}` for our median.
        theirs: Text with `{}` for the paper's median.
    """
    pairs = paired(table.column(measure))
    if not pairs:
        return ""
    our_median, papers_median = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    short = ": ours falls short" if our_median > papers_median else ""
    said = f"{ours.format(f'{our_median:.2f}')} (median of {len(pairs)})"
    return f"{said}, the paper's {theirs.format(f'{papers_median:.2f}')}{short}."
