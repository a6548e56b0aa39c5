"""Figures of a report: narrow enough for a phone, on white, in colours told apart by all eyes."""

import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from hetfeat.report.cells import Row, Table
from hetfeat.report.epochs import ErrorCurve
from hetfeat.report.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINE, PRUNED, PAPER = "#0072b2", "#d55e00", "#8a8a8a"
_COLOURS = {"xgb": "#0072b2", "mlp": "#d55e00", "lgbm": "#009e73", "attention": "#cc79a7"}
_WIDTH, _BAR = 4.2, 0.8


_BARS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "table5": ({"s, pruned / baseline": "ours"}, "training time, pruned / baseline"),
    "table6": (
        {"PCA as TenSet, baseline": "baseline", "PCA as TenSet, pruned": "pruned"},
        "PCA as TenSet computes it (chance is 0.5)",
    ),
    "table7": (
        {"baseline / without": "baseline", "pruned / without": "pruned"},
        "inference time, with / without a model",
    ),
    "table8": (
        {"s, with / without": "time to tune", "ms, with / without": "inference time"},
        "with / without a model",
    ),
    "gemm": ({"best ms": "ours"}, "fastest program found, ms"),
}


def of_table(table: Table, curves: Sequence[ErrorCurve]) -> "Figure | None":
    """The figure that goes with a table; None if there is none, or nothing to draw."""
    if table.name == "figure2":
        return error_by_epoch(curves)
    return bars(table, *_BARS[table.name]) if table.name in _BARS else None


def error_by_epoch(curves: Sequence[ErrorCurve]) -> "Figure | None":
    """RMSE over epochs, a line for each training: pruned ones are dashed."""
    if not curves:
        return None
    figure, (axis,) = new_figure(1, width=_WIDTH)
    named = set()
    for curve in curves:
        name = f"{curve.model}{', pruned' if curve.pruned else ''}"
        axis.plot(
            [epoch + 1 for epoch, _ in curve.points],
            [error for _, error in curve.points],
            color=_COLOURS[curve.model],
            linestyle="--" if curve.pruned else "-",
            linewidth=1.3,
            label=None if name in named else name,
        )
        named.add(name)
    axis.set(xlabel="epoch or boosting round", ylabel="RMSE, valid side", xscale="log")
    axis.legend(fontsize=8, frameon=False)
    return figure


def bars(table: Table, measures: Mapping[str, str], unit: str) -> "Figure | None":
    """A group of bars for each row that was run, a mark where the paper's figure is.

    Args:
        table: Table that is drawn.
        measures: Names of the drawn measures, each with its label.
        unit: Unit of the axis.
    """
    at = [table.measures.index(name) for name in measures]
    rows = [row for row in table.rows if any(row.cells[i].value is not None for i in at)]
    if not rows:
        return None
    figure, (axis,) = new_figure(1, width=_WIDTH, height=1.1 + 0.32 * len(rows) * len(at) ** 0.5)
    height = _BAR / len(at)
    for order, (i, label) in enumerate(zip(at, measures.values(), strict=True)):
        places = [row + (order - (len(at) - 1) / 2) * height for row in range(len(rows))]
        values = [math.nan if (v := row.cells[i].value) is None else v for row in rows]
        axis.barh(places, values, height, label=label, color=(BASELINE, PRUNED)[order % 2])
        marks = [(row.cells[i].paper, place) for row, place in zip(rows, places, strict=True)]
        theirs = [(figure, place) for figure, place in marks if figure is not None]
        last = order == len(at) - 1
        axis.plot(
            [figure for figure, _ in theirs],
            [place for _, place in theirs],
            "|",
            color="black",
            markersize=9,
            label="paper" if theirs and last else None,
        )
    axis.set_yticks(range(len(rows)), _names(table.keys, rows))
    axis.tick_params(labelsize=8)
    axis.invert_yaxis()
    axis.set_xlabel(unit, fontsize=9)
    if len(axis.get_legend_handles_labels()[0]) > 1:
        figure.legend(fontsize=8, frameon=False, loc="outside upper center", ncols=3)
    return figure


def _names(keys: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Keys of each row, without those that all rows share; a number with what it is of."""
    columns = [
        [f"{key} {value}" if value.isdigit() else value for value in column]
        for key, column in zip(keys, zip(*(row.keys for row in rows), strict=True), strict=True)
    ]
    telling = [column for column in columns if len(set(column)) > 1] or columns[-1:]
    return [", ".join(parts) for parts in zip(*telling, strict=True)]


def drawn(figure: "Figure", kind: str) -> bytes:
    """A figure as `png` or `svg`; the same figure gives the same bytes."""
    import matplotlib

    file = BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": "hetfeat"}):
        figure.savefig(file, format=kind, dpi=200, metadata=metadata)
    return file.getvalue()
