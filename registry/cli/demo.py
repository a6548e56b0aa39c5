"""`hetfeat demo`: a first result in a minute, without a registry and without measuring."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.cli import app, output
from registry.cli.options import option


def _render(report: Mapping[str, Any]) -> str:
    from hetfeat.report.first_result import latencies_of, verdict

    rows = [{"": name, "ms": ms} for name, ms in latencies_of(report).items()]
    return "\n".join(
        [
            output.table(rows),
            "",
            verdict(report),
            *_untuned(report),
            f"largest error {report['max_abs_error']:.2g}, {report['tolerance']:.2g} allowed",
            f"{report['total_s']:.0f} s in all, no program measured; {report['model_version']}",
            f"page {report['page']}",
        ]
    )


def _untuned(report: Mapping[str, Any]) -> list[str]:
    ms = report["untuned_ms"]
    return [f"compiled by TVM without tuning: {ms:.0f} ms"] if ms else []


@dataclass(frozen=True)
class DemoOptions:
    """Options of `hetfeat demo`."""

    out: Path = option(Path("demo"), "Folder of the network, the bundle and the page.")
    device: str = option("local", "local, a device's name or a profile's file.")


@app.command("demo", DemoOptions, example="hetfeat demo", render=_render)
def command(options: DemoOptions) -> Mapping[str, Any]:
    """Compile ResNet-18 by the packaged cost model, time it beside other engines, draw a page.

    Nothing is measured before, and no registry is asked. The weights are drawn.
    """
    from hetfeat.api.demo import show_first_result

    return show_first_result(options.out, options.device)
