"""Figures of one deployment, and the table of its tasks."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hetfeat.deploy.report import DeployReport
from hetfeat.deploy.tuned import KERNELS_MS, TASKS, TUNING_S
from hetfeat.devices.profile import FP32_BYTES, DeviceProfile
from hetfeat.parsing import Count, PositiveFloat, PositiveInt, Schema, parse
from hetfeat.records import Task
from hetfeat.report.figures import new_figure
from hetfeat.report.first_result import LABELS, OURS, latencies_of, latency_bars
from hetfeat.workloads.winograd.variants import convolution_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNTUNED, PICKED = "without tuning", "picked, nothing measured"
_LINES = ("--", ":", "-.", "-")


class _TaskFacts(Schema):
    """A task as the manifest of a bundle keeps it; older ones have no FLOPs and no type."""

    operator: str
    shapes: list[list[Count]]
    weight: PositiveInt
    latency_s: PositiveFloat | None
    trace: str | None
    flops: float | None = None
    dtype: str = ""


_TASKS = list[_TaskFacts]


def of_fastest_peer(report: DeployReport) -> float | None:
    """How many times as fast as the fastest peer the network is; None where no peer ran."""
    ran = [ms for ms in report.peers_ms.values() if ms]
    return min(ran) / report.latency_ms if ran else None


def bars_of(report: DeployReport) -> "Figure":
    """Latency of the network, tuned and before that, and of its peers, as bars."""
    before = {UNTUNED: report.untuned_ms, PICKED: report.picked_ms}
    ran = {name: ms for name, ms in before.items() if ms}
    return latency_bars(latencies_of(report) | ran, f"latency of {report.network}")


def over_time(points: Mapping[str, Mapping[int, float]], report: DeployReport) -> "Figure | None":
    """What the kernels add up to over the time of tuning, peers as lines; None where none was.

    Args:
        points: Figures by trials, by name, as `hetfeat.deploy.tuned` records them. What there is
            before the last task was measured first is left out: it grows with their number.
        report: Report of the deployment.
    """
    tasks = points.get(TASKS, {})
    most = int(max(tasks.values(), default=0))
    whole = [step for step, count in tasks.items() if count == most]
    if not whole:
        return None
    figure, (axis,) = new_figure(1, width=7.0)
    seconds, kernels_ms = (
        [points[name][step] for step in whole] for name in (TUNING_S, KERNELS_MS)
    )
    ours = f"kernels of {most} tasks, added up"
    axis.plot(seconds, kernels_ms, marker=".", drawstyle="steps-post", label=ours)
    axis.axhline(report.latency_ms, color="black", linewidth=1, label=f"{OURS}, as measured")
    peers_ms = {LABELS.get(name, name): ms for name, ms in report.peers_ms.items() if ms}
    for style, (name, ms) in zip(_LINES, peers_ms.items(), strict=False):
        axis.axhline(ms, color="#6b747d", linestyle=style, linewidth=1, label=name)
    axis.set(
        xlabel="seconds of tuning",
        ylabel="ms (lower is better)",
        xlim=(0, None),
        ylim=(0, None),
        title=f"{report.network} on {report.device}, {report.trials} programs measured",
    )
    axis.legend(fontsize=8, frameon=False)
    return figure


def task_table(facts: object, profile: DeviceProfile) -> dict[str, list[Any]]:
    """Tasks of a bundle, those that take longest first, by column.

    A roofline is the larger of a task's FLOPs at the profile's peak and of its bytes at the
    profile's bandwidth.

    Args:
        facts: `tasks` of the bundle's manifest.
        profile: Profile of the device.

    Raises:
        DataError: `facts` are no such tasks.
    """
    tasks: list[_TaskFacts] = parse(
        facts, _TASKS, what="the tasks of a bundle", action="deploy it anew with --refresh true"
    )
    tasks = sorted(tasks, key=_taken_s, reverse=True)
    total_s = sum(map(_taken_s, tasks))
    rows = []
    for task in tasks:
        roofline_s = _roofline_s(task, profile)
        rows.append(
            {
                "operator": task.operator,
                "shapes": " ".join("x".join(map(str, shape)) for shape in task.shapes),
                "variant": _variant(task),
                "program": _program(task),
                "occurrences": task.weight,
                "latency_ms": task.latency_s and 1e3 * task.latency_s,
                "share": _ratio(_taken_s(task), total_s),
                "roofline_ms": roofline_s and 1e3 * roofline_s,
                "of_roofline": _ratio(roofline_s, task.latency_s),
            }
        )
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part and whole else None


def _taken_s(task: _TaskFacts) -> float:
    return task.weight * (task.latency_s or 0.0)


def _variant(task: _TaskFacts) -> str:
    """How a convolution is computed; empty for other tasks."""
    shapes = tuple(map(tuple, task.shapes))
    try:
        found = convolution_of(Task("", task.operator, shapes, task.dtype, 0.0))
    except (IndexError, ValueError):  # shapes that are none of such a task's
        return ""
    if found is None:
        return ""
    _, tile = found
    return "direct" if tile is None else f"winograd {tile}x{tile}"


def _program(task: _TaskFacts) -> str:
    """Who chose the program."""
    if task.latency_s is not None:
        return "measured"
    return "default schedule" if task.trace is None else "picked by the model"


def _roofline_s(task: _TaskFacts, profile: DeviceProfile) -> float | None:
    """Least seconds of one run; None where the profile has no figures, or in other types."""
    if task.dtype != "float32" or not profile.peak_gflops or not profile.bandwidth_gb_s:
        return None
    moved_bytes = FP32_BYTES * sum(map(math.prod, task.shapes))
    computing_s = (task.flops or 0.0) / (1e9 * profile.peak_gflops)
    return max(computing_s, moved_bytes / (1e9 * profile.bandwidth_gb_s))
