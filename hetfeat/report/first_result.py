"""One page of a deployment: its latency beside that of other engines."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hetfeat.deploy.report import DeployReport
from hetfeat.durable import write_file
from hetfeat.report.drawings import drawn
from hetfeat.report.figures import new_figure
from hetfeat.report.page import rendered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = "hetfeat"
LABELS = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "torch": "torch",
    "torch_compile": "torch.compile",
}
_OURS_COLOUR, _PEERS_COLOUR = "#0058a3", "#9aa3ad"


def latencies_of(report: DeployReport) -> dict[str, float]:
    """Milliseconds of this bundle and of each engine that ran, by the name shown."""
    engines = {LABELS.get(name, name): ms for name, ms in report.peers_ms.items()}
    return {name: ms for name, ms in {OURS: report.latency_ms, **engines}.items() if ms}


def verdict(report: DeployReport, advice: str = "tuning measures programs to change that") -> str:
    """One sentence: how the bundle compares with the fastest peer that ran.

    Args:
        report: Report of a deployment.
        advice: Words for what to do where a peer is faster; empty for none.
    """
    ms = report.latency_ms
    ran = {name: peer for name, peer in report.peers_ms.items() if peer}
    if not ran:
        return "No other engine ran here."
    name = min(ran, key=lambda name: ran[name])
    shown, ratio = LABELS.get(name, name), ran[name] / ms
    if ratio >= 1:
        return f"{ratio:.2f} times as fast as {shown}, the fastest peer here."
    return f"Slower than {shown} by {1 / ratio:.2f}{advice and f': {advice}'}."


def write_page(path: Path, report: DeployReport, network: Path) -> None:
    """Writes the page, which needs nothing but itself.

    Args:
        path: Path of the HTML file.
        report: Report of a deployment.
        network: Path of the network's file, which the page shows how to tune.
    """
    figures = latencies_of(report)
    page = rendered(
        "first_result.html",
        report=report,
        title=f"{network.name} on {report.device}",
        latencies=figures,
        verdict=verdict(report),
        tuning=f"hetfeat deploy {shlex.quote(str(network))}",
        svg=drawn(latency_bars(figures, "latency of one image"), "svg"),
    )
    write_file(path, page.encode())


def latency_bars(latencies_ms: Mapping[str, float], what: str) -> "Figure":
    """Bars of latencies in milliseconds by name, ours in a colour of its own.

    Args:
        latencies_ms: Latency by the name shown.
        what: Words for what they are of.
    """
    figure, (axis,) = new_figure(1, width=6.0, height=0.9 + 0.38 * len(latencies_ms))
    colours = [_OURS_COLOUR if name == OURS else _PEERS_COLOUR for name in latencies_ms]
    bars = axis.barh(list(latencies_ms), list(latencies_ms.values()), 0.7, color=colours)
    axis.bar_label(bars, fmt="%.4g", padding=3, fontsize=9)
    axis.margins(x=0.15)
    axis.invert_yaxis()
    axis.set_xlabel(f"{what}, ms (lower is better)", fontsize=9)
    return figure
