"""`hetfeat deploy`: tunes and compiles a network for a device with the staged cost model."""

from pathlib import Path
from typing import Any

import click

from registry.cli import app, output


def render(report: Any) -> str:
    """Latencies side by side, then what they rest on; of several, a row for each."""
    if "deployments" in report:
        return output.table(report["deployments"])
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
            output.table(rows),
            "",
            f"largest error {report['max_abs_error']:.2g}, {report['tolerance']:.2g} allowed",
            f"{report['trials']} programs measured in {report['tuning_s']:.0f} s, "
            f"built in {report['build_s']:.0f} s, "
            f"with {report['model_version'] or 'no cost model'}",
            f"bundle {report['bundle']}",
        ]
    )


@app.command(
    "deploy",
    render=render,
    interrupted="what was measured is kept; the same command goes on",
)
@app.option("--config", type=Path, help="YAML file of several deployments; its values go first.")
@app.option("--device", default="local", help="local, a device's name or a profile's file.")
@app.option("--network", default="resnet18", help="torchvision name, file or module:function.")
@app.option(
    "--model",
    help="Registered cost model, one version of it, or none.  [default: that of the family]",
)
@app.option("--stage", help="Stage of the cost model.  [default: production, or from scratch]")
@app.option(
    "--search",
    default="evolution",
    help="Strategy of `hetfeat search`; only evolution asks the model.",
)
@app.option("--effort", type=app.EFFORT, default="quick", help="Budget of tuning.")
@app.option("--trials", type=click.IntRange(0), help="Programs to measure; 0 trusts the model.")
@app.option("--batch", type=app.COUNTS, default="1", help="Batch sizes, such as 1,2,4,8.")
@app.option("--refresh", type=app.SWITCH, default="false", help="Replace a bundle that is there.")
@app.option("--out", type=Path, default="bundle", help="Folder of the bundle.")
@app.unrecorded
@app.seed
def command(config: Path | None, **wanted: Any) -> dict[str, Any] | app.Result:
    """Tune, compile, verify and compare a network on a device; leave and register a bundle.

    Ctrl-C ends the tuning: the bundle is of the best so far, the exit code 130, and the same
    command goes on. With --config, several, each in a folder below --out; 1 if one failed.
    """
    if config is None:
        from registry.jobs.deploy import Wanted, deploy_and_register

        report = deploy_and_register(Wanted(**wanted))
        return app.Result(report, app.INTERRUPTED if report.get("stopped") else 0)
    from registry.jobs.deploy_batch import deploy_all, read_jobs

    options = {option.name: option for option in click.get_current_context().command.params}

    def parse(name: str, text: str) -> Any:
        context = click.get_current_context()
        return options[name].process_value(context, text or options[name].get_default(context))

    rows = deploy_all(read_jobs(config, parse, wanted))
    failed = sum(row["error"] is not None for row in rows)
    stopped = any(row["stopped"] for row in rows)
    code = app.INTERRUPTED if stopped else 1 if failed else 0
    return app.Result({"deployments": rows, "failed": failed}, code)
