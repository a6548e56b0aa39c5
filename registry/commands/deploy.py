"""`hetfeat deploy`: tunes and compiles a network for a device with the staged cost model."""

from pathlib import Path
from typing import Any

import click

from registry.commands import _cli, _output


def _render(report: Any) -> str:
    """Latencies side by side, then what they rest on."""
    tuned = report["latency_ms"]
    rows = [{"": "tuned", "ms": tuned, "times tuned": 1.0}]
    others = {"untuned": report["untuned_ms"], **report["peers_ms"]}
    rows += [
        {"": name, "ms": ms, "times tuned": ms / tuned if ms else None}
        for name, ms in others.items()
    ]
    rows += [{"": f"tuned, batch {b}", "ms": ms} for b, ms in report["batches_ms"].items()]
    return "\n".join(
        [
            _output.table(rows),
            "",
            f"largest error against torch {report['max_abs_error']:.2g}, "
            f"{report['tolerance']:.2g} allowed",
            f"{report['trials']} programs measured in {report['tuning_s']:.0f} s, "
            f"built in {report['build_s']:.0f} s, "
            f"with {report['model_version'] or 'no cost model'}",
            f"bundle {report['bundle']}",
        ]
    )


@_cli.command("deploy", render=_render)
@_cli.option("--device", default="local", help="local, a device's name or a profile's file.")
@_cli.option("--network", default="resnet18", help="torchvision name, file or module:function.")
@_cli.option(
    "--model",
    help="Registered cost model, one version of it, or none.  [default: that of the family]",
)
@_cli.option("--stage", help="Stage of the cost model.  [default: production, or from scratch]")
@_cli.option("--effort", type=_cli.EFFORT, default="quick", help="Budget of tuning.")
@_cli.option("--trials", type=click.IntRange(0), help="Programs to measure; 0 trusts the model.")
@_cli.option("--batch", type=_cli.COUNTS, default="1", help="Batch sizes, such as 1,2,4,8.")
@_cli.option("--refresh", type=_cli.SWITCH, default="false", help="Replace a bundle that is there.")
@_cli.option("--out", type=Path, default="bundle", help="Folder of the bundle.")
@_cli.seed
def command(**wanted: Any) -> dict[str, Any]:
    """Tune, compile, verify and compare a network on a device; leave and register a bundle."""
    from registry.deployment import Wanted, deploy_and_register

    return deploy_and_register(Wanted(**wanted))
