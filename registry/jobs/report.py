"""Remakes the papers' tables from the runs of the tracking store, and runs what is missing."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hetfeat.dataset.column_study import operators_by_device
from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.stats import measured_between
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.families import common_family
from hetfeat.devices.presets import preset
from hetfeat.devices.probe import find_profile
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import HetfeatError, RequestError
from hetfeat.features.columns import FEATURES_VERSION
from hetfeat.report import deployments, drawings, epochs, operators, searches, trainings
from hetfeat.report.cells import Table
from hetfeat.report.files import as_data, write_csv
from hetfeat.report.page import Page, Section, render
from hetfeat.report.run import Run
from hetfeat.report.scope import CLASSES, SIZES, Scope, devices_of, say
from hetfeat.search.runner import evaluations_of
from hetfeat.search.space import gemm_space
from registry.jobs.report_plan import (
    ReportPlan,
    ReportStep,
    missing_deployments,
    missing_searches,
    missing_trainings,
)
from registry.models.mlflow_client import connect
from registry.tracking import command_run
from registry.tracking.finished_runs import finished_runs, history

log = logging.getLogger(__name__)

PAGE, TABLES, FIGURES, BUNDLES = "report.html", "tables", "figures", "bundles"


@dataclass(frozen=True)
class ReportRequest:
    """What `hetfeat report` was asked for.

    Attributes:
        out: Folder of the report.
        records: Record store, or None for the packaged one.
        effort: `quick`, `standard` or `full`.
        run_missing: Whether to run what is missing.
    """

    out: Path
    records: Path | None
    effort: str
    run_missing: bool


def make_report(request: ReportRequest) -> dict[str, Any]:
    """Does the whole of `hetfeat report`.

    What has been run is found again by its parameters and tags: an interrupted report goes on.
    What fails is left out, and the page says why.

    Returns:
        The report, as `--json` prints it.

    Raises:
        RequestError: No records, or a folder that cannot be written.
        WorkFailed: The tracking store does not answer.
    """
    _prepare(request.out)
    command_run.quieten()
    store = RecordStore.open(request.records or packaged_store())
    finished_runs()  # a store that does not answer shows before anything is run
    local = find_profile("local")
    plan = _plan(request, store, local)
    left_out = dict(_never_run(plan))
    done = 0
    if request.run_missing:
        with command_run.beside_the_project_run():
            done, failed = _run_missing(plan)
        left_out |= failed
    else:
        left_out["everything else"] = "--run-missing false: only what had been run is shown"
    runs = finished_runs()
    histories = _histories(runs, plan.scope)
    tables = _tables(plan, runs, operators_by_device(store), histories)
    curves = epochs.curves(runs, plan.scope, histories)
    sections = _write_files(request.out, runs, tables, curves, store)
    facts = _facts(plan, store, local)
    page = render(Page(request.effort, facts, left_out), sections)
    (request.out / PAGE).write_text(page)
    run_id = _log(request, plan, tables, left_out)
    return {
        "run_id": run_id,
        "page": request.out / PAGE,
        "tables_folder": request.out / TABLES,
        "figures_folder": request.out / FIGURES,
        "ran": done,
        "left_out": left_out,
        "tables": [as_data(table) for table in tables],
    }


def _prepare(out: Path) -> None:
    """Makes the folders, so that one that cannot be written shows at once."""
    try:
        for folder in (TABLES, FIGURES):
            (out / folder).mkdir(parents=True, exist_ok=True)
        (out / PAGE).touch()
    except OSError as error:
        raise RequestError(
            f"--out '{out}' ({error.strerror})", "a folder that can be written", "choose another"
        ) from error


def _plan(request: ReportRequest, store: RecordStore, local: DeviceProfile) -> ReportPlan:
    profiles = store.devices()
    size = SIZES[request.effort]
    classes = {
        hardware: {n: p for n, p in profiles.items() if p.family.partition("-")[0] == hardware}
        for hardware in CLASSES
    }
    deployed_on = {run.device for run in finished_runs() if run.command == "deploy"}
    others = {name: own for name in sorted(deployed_on) if (own := preset(name)) is not None}
    devices = devices_of({**others, local.name: local, **profiles})
    scope = Scope(
        digest=store.digest(),
        features=str(FEATURES_VERSION),
        effort=request.effort,
        size=size,
        devices=devices,
        measured={hardware: tuple(sorted(own)) for hardware, own in classes.items() if own},
        families={hardware: common_family(own) for hardware, own in classes.items() if own},
    )
    m, n, k = map(int, size.gemm.split(","))
    evaluations = evaluations_of(size.gemm_share, gemm_space(m, n, k).size)
    return ReportPlan(scope, store.path, devices[local.name], evaluations, request.out / BUNDLES)


def _never_run(plan: ReportPlan) -> Iterator[tuple[str, str]]:
    """What no run of this report could give, and why."""
    scope = plan.scope
    for hardware in CLASSES:
        if hardware not in scope.families:
            yield f"trainings on {say(hardware)} records", "these records have none"
        elif "by_target" not in scope.size.splits:
            yield f"by_target, {say(hardware)}", f"effort {scope.effort} leaves this split out"
        elif not scope.holdouts(hardware):
            yield f"by_target, {say(hardware)}", "it takes two devices; these records have one"
    if scope.size.table7 is None:
        yield "tables 7 and 8", f"effort {scope.effort} deploys nothing"
    for hardware in CLASSES:
        if hardware != plan.device.hardware:
            yield f"deployments on a {say(hardware)}", f"this machine is '{plan.device.name}'"


def _run_missing(plan: ReportPlan) -> tuple[int, dict[str, str]]:
    """Runs every missing step; returns how many were run, and what failed with its reason."""
    stages: Sequence[Callable[[ReportPlan, Sequence[Run]], Iterable[ReportStep]]] = (
        missing_trainings,
        missing_searches,
        missing_deployments,
    )
    done, failed, started = 0, {}, time.monotonic()
    for missing in stages:
        steps = list(missing(plan, finished_runs()))
        for number, step in enumerate(steps, 1):
            minutes = (time.monotonic() - started) / 60
            log.info("%d of %d: %s (%.0f min so far)", number, len(steps), step.what, minutes)
            try:
                step.run()
                done += 1
            except HetfeatError as error:
                log.warning("%s failed: %s", step.what, error)
                failed[step.what] = str(error)
    return done, failed


def _tables(
    plan: ReportPlan,
    runs: Sequence[Run],
    rows: Sequence[Mapping[str, Any]],
    histories: Mapping[str, epochs.Points],
) -> list[Table]:
    scope, device = plan.scope, plan.device
    return [
        operators.operators_table(rows, scope.devices),
        trainings.training_table(runs, scope),
        trainings.accuracy_table(runs, scope),
        deployments.inference_table(runs, scope, device),
        deployments.tuning_table(runs, scope, device),
        epochs.error_table(runs, scope, histories),
        searches.gemm_table(runs, scope, device, plan.evaluations),
    ]


def _histories(runs: Sequence[Run], scope: Scope) -> dict[str, epochs.Points]:
    client = connect()
    found = epochs.epoch_runs(runs, scope).values()
    return {run.id: history(run.id, epochs.ERROR, client) for own in found for run in own}


def _write_files(
    out: Path,
    runs: Sequence[Run],
    tables: Sequence[Table],
    curves: Sequence[epochs.ErrorCurve],
    store: RecordStore,
) -> list[Section]:
    """Writes CSV, PNG and SVG of each table; returns the page's sections."""
    by_id = {run.id: run for run in runs}
    sections = []
    for table in tables:
        write_csv(table, out / TABLES / f"{table.name}.csv")
        svg = None
        if (figure := drawings.of_table(table, curves)) is not None:
            for kind in ("png", "svg"):
                svg = drawings.drawn(figure, kind)
                (out / FIGURES / f"{table.name}.{kind}").write_bytes(svg)
        behind = _behind(table, by_id) if table.name != operators.NAME else _measured(store)
        sections.append(Section(table, svg, behind))
    return sections


def _behind(table: Table, by_id: Mapping[str, Run]) -> str:
    """When and where the runs behind a table were."""
    used = [by_id[name] for _, _, cell in table.cells() for name in cell.runs]
    if not used:
        return ""
    days = sorted({run.date for run in used})
    machines = sorted(
        {
            f"{run.tags['system.cpu']} ({run.tags.get('system.threads', '?')} threads)"
            for run in used
            if "system.cpu" in run.tags
        }
    )
    count = len({run.id for run in used})
    return f"{count} runs, {_span(days[0], days[-1])}, on {', '.join(machines) or 'unknown'}."


def _measured(store: RecordStore) -> str:
    between = measured_between(store)
    if between is None:
        return ""
    first, last = (datetime.fromtimestamp(at, UTC).date().isoformat() for at in between)
    return f"Measured {_span(first, last)}."


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def _facts(plan: ReportPlan, store: RecordStore, local: DeviceProfile) -> dict[str, str]:
    devices = plan.scope.devices
    names = sorted(store.devices())
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "records": f"{store.path.name}, digest {plan.scope.digest[:12]}",
        "measured on": ", ".join(f"{name} ({devices[name].kind})" for name in names),
        "this machine": f"{local.name}, {local.source}",
    }


def _log(
    request: ReportRequest, plan: ReportPlan, tables: Sequence[Table], left_out: Mapping[str, str]
) -> str:
    """Logs the report as a run with everything it wrote, bundles apart: they have runs."""
    import mlflow

    cells = [cell for table in tables for _, _, cell in table.cells() if cell.exists]
    with command_run.tracked_run("report", {"dataset_digest": plan.scope.digest}) as run:
        command_run.log_resolved(
            {
                "records": plan.records,
                "effort": request.effort,
                "run_missing": request.run_missing,
                "device": plan.device.name,
            }
        )
        absent = sum(cell.value is None for cell in cells)
        mlflow.log_metrics({"cells": len(cells), "cells_not_run": absent})
        mlflow.log_artifact(str(request.out / PAGE))
        for folder in (TABLES, FIGURES):
            mlflow.log_artifacts(str(request.out / folder), folder)
        mlflow.log_dict({"left_out": dict(left_out)}, "left_out.json")
        return str(run.info.run_id)
