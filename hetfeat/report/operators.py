"""Table 3: the operators of a record store on each device."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hetfeat.report import paper
from hetfeat.report.cells import Cell, Row, Table
from hetfeat.report.scope import CLASSES, UNKNOWN, Device, say

NAME = "table3"
SHAPES, GFLOP, MS = "kernel shapes", "max GFLOP", "mean ms"


def operators_table(rows: Sequence[Mapping[str, Any]], devices: Mapping[str, Device]) -> Table:
    """The paper's Table 3.

    Args:
        rows: Rows from `dataset.column_study.operators_by_device`.
        devices: Devices by name, those without a profile left out.
    """
    same = paper.of_table(NAME)["same"]
    known = {row["device"]: Device(row["device"], "", UNKNOWN) for row in rows} | dict(devices)
    ours = [_row(row, known[row["device"]], same.get(row["operator"])) for row in rows]
    measured = {same.get(row["operator"]) for row in rows}
    absent = [
        _absent(operator, hardware)
        for operator, figures in paper.of_table(NAME)["operators"].items()
        for hardware in CLASSES
        if hardware in figures["gflop"]
        and (operator not in measured or hardware not in {d.hardware for d in devices.values()})
    ]
    table = Table(
        NAME,
        "Table 3: operators by device",
        paper.of_table(NAME)["source"],
        "What the record store holds: different shapes, the largest computation and its output, "
        "the mean time of all programs that ran. The paper names a task by its last operation and "
        "ours by its anchor: few rows have a counterpart. Its records are of other networks.",
        ("operator", "device", "kind", "largest output"),
        (SHAPES, GFLOP, MS),
        (*ours, *absent),
    )
    both = [row.keys[0] for row in ours if row.paper_of]
    operators = paper.of_table(NAME)["operators"]
    return table.with_verdict(
        f"{len(set(both))} of the paper's {len(operators)} operators "
        f"{'is' if len(set(both)) == 1 else 'are'} in these records.",
    )


def _row(row: Mapping[str, Any], device: Device, operator: str | None) -> Row:
    theirs = paper.device_for(NAME, device.name, device.hardware) if device.hardware else ""
    mean_ms = None if math.isnan(row["mean_ms"]) else float(row["mean_ms"])
    figures = _papers(operator, device.hardware, theirs)
    values = (float(row["kernel_shapes"]), float(row["max_gflop"]), mean_ms)
    cells = tuple(
        Cell(value, figure, exists=value is not None)  # every program of it failed
        for value, figure in zip(values, figures, strict=True)
    )
    has = any(figure is not None for figure in figures)
    shape = "x".join(map(str, row["tensor_shape"])) or "-"
    keys = (row["operator"], device.name, device.kind, shape)
    return Row(keys, cells, paper.shown(NAME, theirs) if has else "")


def _absent(operator: str, hardware: str) -> Row:
    theirs = paper.device_for(NAME, "", hardware)
    cells = tuple(Cell(paper=figure) for figure in _papers(operator, hardware, theirs))
    return Row((operator, f"no {say(hardware)}", "-", "-"), cells, paper.shown(NAME, theirs))


def _papers(operator: str | None, hardware: str, device: str) -> tuple[float | None, ...]:
    if operator is None:
        return (None, None, None)
    return (
        paper.figure(NAME, "operators", operator, "shapes", hardware),
        paper.figure(NAME, "operators", operator, "gflop", hardware),
        paper.figure(NAME, "operators", operator, "ms", device),
    )
