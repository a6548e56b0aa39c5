"""`hetfeat demo`: a first result in a minute, without a registry and without measuring."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.cli import app, output
from registry.cli.options import option
from registry.cli.params import DEVICE


def _render(result: app.Value) -> str:
    from hetfeat.deploy.report import parse_report
    from hetfeat.report.first_result import latencies_of, verdict

    report = parse_report(result, what="the report", action="run the demo anew")
    rows = [{"": name, "ms": ms} for name, ms in latencies_of(report).items()]
    untuned_ms = report.untuned_ms
    untuned = [f"compiled by TVM without tuning: {untuned_ms:.0f} ms"] if untuned_ms else []
    return "\n".join(
        [
            output.table(rows),
            "",
            verdict(report),
            *untuned,
            f"largest error {report.max_abs_error:.2g}, {report.tolerance:.2g} allowed",
            f"{report.total_s:.0f} s in all, no program measured; {report.model_version}",
            f"page {result['page']}",
        ]
    )


@dataclass(frozen=True)
class DemoOptions:
    """Options of `hetfeat demo`."""

    out: Path = option(Path("demo"), "Folder of the network, the bundle and the page.")
    device: str = option("local", "local, a device's name or a profile's file.", type=DEVICE)


@app.command("demo", DemoOptions, example="hetfeat demo", render=_render)
def command(options: DemoOptions) -> dict[str, Any]:
    """Compile ResNet-18 by the packaged cost model, time it beside other engines, draw a page.

    Nothing is measured before, and no registry is asked. The weights are drawn.
    """
    from hetfeat.api.demo import BUNDLE, PAGE, show_first_result

    report = show_first_result(options.out, options.device)
    return report.as_json() | {
        "bundle": str(options.out / BUNDLE),
        "page": str(options.out / PAGE),
    }
