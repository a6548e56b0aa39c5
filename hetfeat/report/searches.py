"""The GEMM paper's comparison: four searches at one share of a space."""

from collections.abc import Sequence

from hetfeat.report import paper
from hetfeat.report.cells import Cell, Row, Table, cell_of
from hetfeat.report.run import Run, latest_by_seed
from hetfeat.report.scope import STRATEGIES, Device, Scope

OURS = ("gbfs", "na2c")
SHOWN = {"gbfs": "G-BFS", "na2c": "N-A2C", "xgb": "XGBoost", "rnn": "RNN"}


def searches(
    runs: Sequence[Run], scope: Scope, device: str, strategy: str, evaluations: int
) -> list[Run]:
    """The newest search of each seed by a strategy, of the scope's shape on a device."""
    return latest_by_seed(
        run
        for run in runs
        if run.command == "search"
        and run.params.get("strategy") == strategy
        and run.setting("space") == f"gemm {scope.size.gemm} on {device}"
        and run.setting("budget") == str(evaluations)
    )


def gemm_table(runs: Sequence[Run], scope: Scope, device: Device, evaluations: int) -> Table:
    """Time and share explored of each search, and what the paper's own two save over it."""
    runs_of = {
        strategy: searches(runs, scope, device.name, strategy, evaluations)
        for strategy in STRATEGIES
    }
    best = {strategy: cell_of(of, "best_ms") for strategy, of in runs_of.items()}
    rows = []
    for strategy, of in runs_of.items():
        saved = [_saved(best[ours], best[strategy], strategy, ours) for ours in OURS]
        share = cell_of(of, _share_percent, paper.figure("gemm", "share_percent"))
        cells = (best[strategy], share, cell_of(of, _seconds), *saved)
        rows.append(
            Row(
                (device.name, device.kind, scope.size.gemm, SHOWN[strategy]),
                cells,
                "the abstract" if any(cell.paper for cell in cells) else "",
            )
        )
    table = Table(
        "gemm",
        "GEMM: four searches at one share of the space",
        paper.of_table("gemm")["source"],
        "The fastest program found, the share of the space measured for it, and the seconds of "
        "searching and measuring. 'Saved' is how much less time the fastest program of G-BFS or "
        "N-A2C takes than that of the row's search.",
        ("device", "kind", "GEMM", "search"),
        ("best ms", "explored, %", "s", "saved by G-BFS, %", "saved by N-A2C, %"),
        tuple(rows),
    )
    return table.with_verdict(*(_sentence(table, i) for i in range(len(OURS))))


def _saved(ours: Cell, other: Cell, strategy: str, by: str) -> Cell:
    if by == strategy:
        return Cell(exists=False)
    figure = paper.figure("gemm", "saved_percent", strategy)
    if ours.value is None or not other.value:
        return Cell(paper=figure)
    return Cell(
        100 * (1 - ours.value / other.value),
        figure,
        seeds=min(ours.seeds, other.seeds),
        runs=(*ours.runs, *other.runs),
        date=max(ours.date, other.date),
    )


def _share_percent(run: Run) -> float | None:
    states, size = run.setting("budget"), run.setting("space_size")
    return 100 * float(states) / float(size) if states and size else None


def _seconds(run: Run) -> float | None:
    parts = [run.metrics.get(name) for name in ("search_s", "measuring_s")]
    return sum(part for part in parts if part is not None) if None not in parts else None


def _sentence(table: Table, which: int) -> str:
    """What one of the two saves over XGBoost and RNN, beside the paper's figures."""
    name, parts, short = SHOWN[OURS[which]], [], False
    for row in table.rows:
        cell = row.cells[3 + which]
        if cell.value is None or cell.paper is None:
            continue
        did = "saves {:.1f} % over" if cell.value >= 0 else "needs {:.1f} % more than"
        parts.append(
            f"{did.format(abs(cell.value))} {row.keys[3]} (paper: saves {cell.paper:.0f} %)"
        )
        short |= cell.value < cell.paper
    if not parts:
        return ""
    return f"{name} {' and '.join(parts)}{', short of the paper' if short else ''}."
