"""Tables 7 and 8: what a cost model does for a network, in time to tune and time to run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hetfeat.report import paper
from hetfeat.report.cells import Cell, Row, Table, cell_of, compared, known, quotient
from hetfeat.report.run import Run, latest_by_seed
from hetfeat.report.scope import BATCHES, CLASSES, MODELS, NETWORKS, Device, Scope, say

TABLE8_MODEL = "xgb"
SPLIT_OF_SOURCES = "by_task"
"""Split on which cost models that networks are tuned with were judged: on tasks they had not
seen."""
TABLE7_NETWORK = "resnet50"
LEAKED = "records seen before"
_LEVEL = 1.02
"""Factor by which a network's median latency differs from one run to the next."""


@dataclass(frozen=True)
class Source:
    """What the cost model of a deployment was trained on."""

    model: str
    pruned: bool


def source_of(run: Run, scope: Scope, by_id: Mapping[str, Run]) -> Source | None:
    """The training behind a deployment, through transfers; None if it is not of this scope."""
    seen: set[str] = set()
    while run.source and run.source not in seen:
        seen.add(run.source)
        source_run = by_id.get(run.source)
        if source_run is None:
            return None
        run = source_run
        if run.command == "train":
            counts = scope.is_training(run, split=SPLIT_OF_SOURCES, holdout="")
            if not counts or run.setting("family") not in scope.families.values():
                return None
            return Source(run.setting("model"), run.setting("pruned") == "True")
    return None


def deployments(
    runs: Iterable[Run],
    scope: Scope,
    *,
    device: str,
    network: str,
    batches: Sequence[int],
    effort: str | None,
    source: Source | None,
) -> list[Run]:
    """The newest deployment of each seed; without a `source`, those tuned from scratch."""
    by_id = {run.id: run for run in runs}
    return latest_by_seed(
        run
        for run in by_id.values()
        if run.command == "deploy"
        and "interrupted" not in run.tags
        and (run.device, run.tags.get("network")) == (device, network)
        and run.setting("batches") == str(tuple(batches))
        and run.setting("effort") == effort
        and run.setting("trials") == "None"
        and run.setting("search") in ("", "evolution")  # runs before there was a choice name none
        and (run.setting("model") == "None") == (source is None)
        and source_of(run, scope, by_id) == source
    )


def inference_table(runs: Sequence[Run], scope: Scope, device: Device) -> Table:
    """The paper's Table 7: inference time with and without transfer tuning, by batch."""
    figures = paper.of_table("table7")
    rows = [
        _inference_row(runs, scope, device_of_row, TABLE7_NETWORK, model, batch)
        for device_of_row in _deployed(runs, scope, device)
        for model in MODELS
        for batch in BATCHES
    ]
    rows += [
        _inference_row(runs, scope, none, TABLE7_NETWORK, figures["model"], figures["batch"])
        for none in _absent(runs, scope, device)
    ]
    table = Table(
        "table7",
        "Table 7: inference time, baseline and pruned",
        figures["source"],
        "Median milliseconds of the tuned network: tuned from scratch, and in the same budget with "
        "a cost model trained on all or on pruned records. The paper names neither network nor "
        f"batch; its figures, of XGBoost, stand beside {TABLE7_NETWORK} at batch 1.",
        ("device", "kind", "network", "model", "batch"),
        ("ms, without", "ms, baseline", "ms, pruned", "baseline / without", "pruned / without"),
        tuple(rows),
    )
    factors = known(table.column("baseline / without") + table.column("pruned / without"))
    slower = [factor for factor in factors if factor > _LEVEL]
    return table.with_verdict(
        f"With a model the network is slower in {len(slower)} of {len(factors)} cells"
        + (f", by up to {max(slower) - 1:.0%}." if slower else ".")
        if factors
        else ""
    )


def _inference_row(
    runs: Sequence[Run], scope: Scope, device: Device, network: str, model: str, batch: int
) -> Row:
    theirs = paper.device_for("table7", device.name, device.hardware)
    figures = paper.of_table("table7")
    compared = (model, batch) == (figures["model"], figures["batch"])

    def cell(source: Source | None, data: str, column: str) -> Cell:
        deployed = deployments(
            runs,
            scope,
            device=device.name,
            network=network,
            batches=BATCHES,
            effort=scope.size.table7,
            source=source,
        )
        metric = "latency_ms" if batch == BATCHES[0] else f"batch_{batch}_ms"
        figure = paper.figure("table7", "ms", theirs, data, column) if compared else None
        return cell_of(deployed, metric, figure)

    without = cell(None, "baseline", "without")
    baseline = cell(Source(model, False), "baseline", "with")
    pruned = cell(Source(model, True), "pruned", "with")
    # The paper's pruned records have a time without transfer of their own.
    pruned_without = Cell(paper=paper.figure("table7", "ms", theirs, "pruned", "without"))
    factor = quotient(pruned, pruned_without).paper if compared else None
    return Row(
        (device.name or f"no {say(device.hardware)}", device.kind, network, model, str(batch)),
        (without, baseline, pruned, quotient(baseline, without), quotient(pruned, without, factor)),
        paper.shown("table7", theirs) if compared else "",
    )


def tuning_table(runs: Sequence[Run], scope: Scope, device: Device) -> Table:
    """The paper's Table 8: time to tune and inference time, with and without transfer."""
    rows = [
        _tuning_row(runs, scope, device_of_row, network)
        for device_of_row in _deployed(runs, scope, device)
        for network in NETWORKS
    ]
    rows += [
        _tuning_row(runs, scope, none, network)
        for none in _absent(runs, scope, device)
        for network in NETWORKS
    ]
    times, latency = "s, with / without", "ms, with / without"
    table = Table(
        "table8",
        "Table 8: time to tune, with and without transfer",
        paper.of_table("table8")["source"],
        f"Seconds of tuning and milliseconds of the tuned network, batch 1, with {TABLE8_MODEL} "
        f"trained on all records. Without a model the effort is {scope.size.without or 'none'}, "
        f"with one {scope.size.with_model or 'none'}: the question is whether less time is enough. "
        f"'{LEAKED}': records of this device and this network's tasks in the model's training.",
        ("device", "kind", "network"),
        ("s, without", "ms, without", "s, with", "ms, with", times, latency, LEAKED),
        tuple(rows),
    )
    factors = known(table.column(latency))
    slower = [factor for factor in factors if factor > _LEVEL]
    leaked = [count for count in known(table.column(LEAKED)) if count]
    return table.with_verdict(
        compared(table, times, "With a model tuning takes {} of the time", "{}"),
        f"The network is then slower in {len(slower)} of {len(factors)}"
        + (f", by up to {max(slower) - 1:.0%}." if slower else ".")
        if factors
        else "",
        f"In {len(leaked)} the model had seen this device's own records of such tasks: that is "
        "tuning with a model, and not transfer."
        if leaked
        else "",
    )


def _tuning_row(runs: Sequence[Run], scope: Scope, device: Device, network: str) -> Row:
    theirs = paper.device_for("table8", device.name, device.hardware)
    efforts = {"without": scope.size.without, "with": scope.size.with_model}
    cells = {}
    for column, effort in efforts.items():
        deployed = deployments(
            runs,
            scope,
            device=device.name,
            network=network,
            batches=BATCHES[:1],
            effort=effort,
            source=Source(TABLE8_MODEL, False) if column == "with" else None,
        )
        for unit, metric in (("s", "tuning_s"), ("ms", "latency_ms"), ("leaked", "leaked_records")):
            figure = paper.figure("table8", "networks", theirs, network, column, unit)
            cells[column, unit] = cell_of(deployed, metric, figure)
    times, latency = (quotient(cells["with", u], cells["without", u]) for u in ("s", "ms"))
    figures_of_efforts = [cells[column, unit] for column in efforts for unit in ("s", "ms")]
    return Row(
        (device.name or f"no {say(device.hardware)}", device.kind, network),
        (*figures_of_efforts, times, latency, cells["with", "leaked"]),
        paper.shown("table8", theirs),
    )


def _deployed(runs: Sequence[Run], scope: Scope, device: Device) -> list[Device]:
    """The device that the report deploys on, and others that networks were deployed on."""
    names = {run.device for run in runs if run.command == "deploy"} - {device.name}
    return [device, *(scope.devices[name] for name in sorted(names) if name in scope.devices)]


def _absent(runs: Sequence[Run], scope: Scope, device: Device) -> list[Device]:
    """A nameless device of each class of hardware that nothing was deployed on."""
    there = {device_of_row.hardware for device_of_row in _deployed(runs, scope, device)}
    return [Device("", hardware, "-") for hardware in CLASSES if hardware not in there]
