"""Figure 2: the error of each tuner by epoch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hetfeat.models.support import SUPPORTS
from hetfeat.report import paper
from hetfeat.report.cells import Cell, Row, Table, cell_of
from hetfeat.report.run import Run
from hetfeat.report.scope import CLASSES, TUNERS, Scope, say

ERROR = "valid_rmse"
BESIDE = tuple(
    f"PCA, {count} measured a task{end}" for count in SUPPORTS for end in ("", ", not read")
)
Points = Sequence[tuple[int, float]]
"""Pairs of epoch and error, ascending by epoch."""


@dataclass(frozen=True)
class ErrorCurve:
    """The error of one training over its epochs."""

    model: str
    pruned: bool
    points: Points


def epoch_runs(runs: Sequence[Run], scope: Scope) -> dict[tuple[str, str, bool], list[Run]]:
    """The trainings on by_task by class of hardware, model and whether pruned."""
    return {
        (hardware, model, pruned): scope.trainings(
            runs, hardware, model=model, split="by_task", pruned=pruned
        )
        for hardware in CLASSES
        if hardware in scope.families
        for model in TUNERS
        for pruned in (False, True)
    }


def error_table(runs: Sequence[Run], scope: Scope, histories: Mapping[str, Points]) -> Table:
    """What figure 2 shows, in figures.

    Args:
        runs: Runs of the tracking store.
        scope: Scope that says which of them count.
        histories: Points of `ERROR` by run id.
    """
    rows = []
    for (hardware, model, pruned), same_runs in epoch_runs(runs, scope).items():
        least = cell_of(
            same_runs,
            lambda run: min((error for _, error in histories.get(run.id, ())), default=None),
            paper.figure("figure2", "rmse", model),
        )
        last = cell_of(
            same_runs, lambda run: histories[run.id][-1][1] if histories.get(run.id) else None
        )
        epochs = cell_of(same_runs, lambda run: float(len(histories.get(run.id, ()))) or None)
        data = "pruned" if pruned else "baseline"
        rows.append(
            Row(
                (say(hardware), model, data),
                (epochs, least, last, cell_of(same_runs, "pca"), *_beside_measured(same_runs)),
                f"{paper.of_table('figure2')['epochs']} epochs" if least.paper else "",
            )
        )
    table = Table(
        "figure2",
        "Figure 2: error by epoch of the tuners",
        paper.of_table("figure2")["source"],
        "RMSE of best latency / latency on the valid side of by_task, before calibration, after "
        "each epoch or boosting round; training stops when its loss falls no more. The paper "
        "prints three of the four figures, after 200 epochs, and does not say of which data. "
        "PCA with 8 and 32: that many programs of each task are measured, and a tuner that can "
        "(attention) reads them. The others say of the rest what they say without.",
        ("records of", "tuner", "data"),
        ("epochs", "least RMSE", "last RMSE", "PCA, test", *BESIDE),
        tuple(rows),
    )
    return table.with_verdict(*(_sentence(table, say(hardware)) for hardware in CLASSES))


def _beside_measured(runs: Sequence[Run]) -> Iterator[Cell]:
    """Figures of `BESIDE`, in its order."""
    for count in SUPPORTS:
        yield cell_of(runs, f"pca_support{count}")
        yield cell_of(runs, f"pca_support{count}_without")


def curves(runs: Sequence[Run], scope: Scope, histories: Mapping[str, Points]) -> list[ErrorCurve]:
    """Every training of figure 2, for drawing."""
    return [
        ErrorCurve(model, pruned, histories[run.id])
        for (_, model, pruned), same_runs in epoch_runs(runs, scope).items()
        for run in same_runs
        if histories.get(run.id)
    ]


def _sentence(table: Table, records: str) -> str:
    """Whether attention halves the error of the trees, as in the paper."""
    least = {
        row.keys[1]: row.cells[1].value
        for row in table.rows
        if (row.keys[0], row.keys[2]) == (records, "baseline")
    }
    trees = [error for name in ("xgb", "lgbm") if (error := least.get(name)) is not None]
    attention = least.get("attention")
    if attention is None or not trees:
        return ""
    theirs = paper.of_table("figure2")["rmse"]
    ours, papers = attention / min(trees), theirs["attention"] / min(theirs["xgb"], theirs["lgbm"])
    short = ": ours falls short" if ours > papers else ""
    return (
        f"On {records} records the least error of attention is {ours:.2f} of the better trees', "
        f"the paper's {papers:.2f}{short}."
    )
