"""`hetfeat deploy`: tunes and compiles a network for a device with the staged cost model."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetfeat.errors import RequestError
from registry.cli import app, output
from registry.cli.options import (
    builders_option,
    option,
    output_option,
    seed_option,
    unrecorded_option,
)
from registry.cli.params import DEVICE, EFFORT, MODEL_VERSION, NETWORK, PRECISION, STRATEGY

if TYPE_CHECKING:
    from hetfeat.deploy.accuracy import Accuracy

EFFORT_COSTS = "Budget of tuning: at most 3.5, 22 or 55 minutes, and 20, 64 or 192 programs a task."
"""Line of help for the efforts, in order."""


def render(result: app.Value) -> str:
    """Latencies side by side, then what they rest on; of several, a row for each."""
    from hetfeat.deploy.report import parse_report
    from hetfeat.report.first_result import verdict

    if "deployments" in result:
        return output.table(result["deployments"])
    report = parse_report(result, what="the report", action="deploy the network anew")
    tuned = report.latency_ms
    picked = {"picked, nothing measured": report.picked_ms} if report.picked_ms else {}
    latencies_ms = {"tuned": tuned, "untuned": report.untuned_ms, **picked, **report.peers_ms}
    rows = [
        {"": name, "ms": ms, "tuned is faster by": ms / tuned if ms and name != "tuned" else None}
        for name, ms in latencies_ms.items()
    ]
    rows += [{"": f"tuned, batch {b}", "ms": ms} for b, ms in report.batches_ms.items()]
    if report.left_out:
        rows = [row | {"left out because": report.left_out.get(str(row[""]))} for row in rows]
    return "\n".join(
        [
            output.table(rows),
            "",
            verdict(report, _advice()),
            f"largest error {report.max_abs_error:.2g}, {report.tolerance:.2g} allowed",
            *_accuracy(report.accuracy),
            *(_exactness(name, off) for name, off in report.peers_error.items()),
            f"{report.trials} programs measured in {report.tuning_s:.0f} s, "
            f"built in {report.build_s:.0f} s, "
            f"with {report.model_version or 'no cost model'}",
            f"bundle {result['bundle']}",
        ]
    )


def _accuracy(accuracy: "Accuracy | None") -> list[str]:
    """What quantising changed."""
    if accuracy is None:
        return []
    layers = accuracy.described_layers()
    return [accuracy.described(), *([f"furthest off {layers}"] if layers else [])]


def _exactness(engine: str, off: float) -> str:
    """Whether another engine computes a quantised network in exact integers."""
    return f"{engine} is inexact, off by up to {off:.2g}" if off else f"{engine} is exact, too"


def _advice() -> str:
    """What to try where a peer is faster."""
    context = click.get_current_context(silent=True)
    effort = context.params.get("effort") if context else None
    longer = {"quick": "standard", "standard": "full"}.get(effort or "")
    return f"try --effort {longer}" if longer else ""


@dataclass(frozen=True)
class DeployOptions:
    """Options of `hetfeat deploy`."""

    config: Path | None = option(None, "YAML file of several deployments; its values go first.")
    device: str = option("local", "local, a device's name or a profile's file.", type=DEVICE)
    network: str | None = option(
        None, "torchvision name, file or module:function.", positional=True, type=NETWORK
    )
    model: str | None = option(
        None,
        "Registered cost model, one version of it, or none.  [default: that of the family]",
        type=MODEL_VERSION,
    )
    stage: str | None = option(
        None, "Stage of the cost model.  [default: production, or the packaged model]"
    )
    search: str = option(
        "evolution", "Strategy of `hetfeat search`; only evolution asks the model.", type=STRATEGY
    )
    effort: str = option("quick", EFFORT_COSTS, type=EFFORT)
    minutes: float | None = option(
        None,
        "Most minutes of tuning; building and checking follow.  [default: those of the effort]",
        type=click.FloatRange(0, 10_000, min_open=True),
    )
    trials: int | None = option(
        None, "Programs to measure; 0 trusts the model.", type=click.IntRange(0)
    )
    batch: tuple[int, ...] = option((1,), "Batch sizes, such as 1,2,4,8.")
    refresh: bool = option(False, "Replace a bundle that is there.")
    precision: str = option(
        "float32",
        "float32; float16 or bfloat16, of weights or of products; or int8 to quantise it.",
        type=PRECISION,
    )
    calibration: str | None = option(
        None, "Inputs to quantise with: an .npz file, a folder of images or module:function."
    )
    max_loss: float | None = option(
        None,
        "Most that int8 may lose, as a share: layers go back to float32.  [default: any]",
        type=click.FloatRange(0, 1, max_open=True),
    )
    builders: str | None = builders_option()
    untuned: bool = option(False, "Time the network without tuning, too, however slow.")
    out: Path = option(Path("bundle"), "Folder of the bundle.")
    output: tuple[str, ...] = output_option()
    unrecorded: bool = unrecorded_option()
    seed: int = seed_option()


@app.command(
    "deploy",
    DeployOptions,
    example="hetfeat deploy mine.onnx --out bundle",
    render=render,
    interrupted="what was measured is kept; the same command goes on",
)
def command(options: DeployOptions) -> app.Result:
    """Tune, compile, verify and compare a network on a device; leave and register a bundle.

    Ctrl-C ends the tuning: the bundle is of the best so far, the exit code 130, and the same
    command goes on. With --config, several, each in a folder below --out; 1 if one failed.
    """
    settings = vars(options) | {}
    config = settings.pop("config")
    if config is not None:
        return _deploy_batch(config, settings)
    if options.network is None:
        raise RequestError("a deployment without a network", "its name or file", "name one")
    from registry.jobs.deploy import DeployJob, deploy_and_register

    made = deploy_and_register(DeployJob(**settings))
    return app.Result(made.as_json(), app.INTERRUPTED if made.report.stopped else 0)


def _deploy_batch(config: Path, defaults_of_file: dict[str, Any]) -> app.Result:
    from registry.jobs.deploy_batch import deploy_all, read_jobs

    context, defaults = click.get_current_context(), DeployOptions()
    parameters = {parameter.name: parameter for parameter in context.command.params}

    def parse(name: str, text: str) -> Any:
        if not text:
            return getattr(defaults, name)
        parameter = parameters[name]
        return parameter.process_value(context, [text] if parameter.multiple else text)

    rows = deploy_all(read_jobs(config, parse, defaults_of_file))
    failed = sum(row["error"] is not None for row in rows)
    stopped = any(row["stopped"] for row in rows)
    code = app.INTERRUPTED if stopped else 1 if failed else 0
    return app.Result({"deployments": rows, "failed": failed}, code)
