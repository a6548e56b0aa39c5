"""Finds and repairs what the UI or a crash left inconsistent, and traps of this machine."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import click

from hetfeat.errors import RequestError
from registry.cli import app, output
from registry.cli.options import argument, option
from registry.cli.params import MODEL_NAME

LEFT = 1
"""Exit code where something is left unrepaired."""


def _as_text(value: Mapping[str, Any]) -> str:
    if not value["findings"]:
        return "nothing is wrong"
    lines = []
    for finding in value["findings"]:
        does = "repaired" if finding["repaired"] else "not repaired"
        lines.append(
            f"{finding['model']}: {finding['what']}\n  {does}; --repair true {finding['action']}"
            if finding["safe"]
            else f"{finding['model']}: {finding['what']}\n  to do: {finding['action']}"
        )
    return "\n".join([*lines, "", output.columns([["left", str(value["left"])]])])


@dataclass(frozen=True)
class DoctorOptions:
    """Options of `hetfeat doctor`."""

    names: tuple[str, ...] = argument((), nargs=-1, metavar="[NAME]...", type=MODEL_NAME)
    repair: bool = option(False, "Repair what is safe to.")
    to: str | None = option(
        None,
        "What --repair takes for right where history and aliases disagree.",
        type=click.Choice(["ledger", "aliases"]),
    )
    every_version: bool = option(
        False, "Look for the runs and artifacts of all versions, not only of those in use."
    )
    environment: bool = option(
        False, "Examine this machine, and the devices called NAME, not the registry."
    )


@app.command(
    "doctor",
    DoctorOptions,
    example="hetfeat doctor --repair",
    render=_as_text,
    short_help="Find and repair inconsistencies.",
)
def command(options: DoctorOptions) -> app.Result:
    """Finds what is inconsistent in the registry: in all models, or in those called NAME.

    With --environment true, finds what is wrong with this machine, and with devices: NAME is then
    what --device takes, and its tracker must answer.

    Exits with 1 if something is left unrepaired.
    """
    if options.to and not options.repair:
        raise RequestError(
            f"--to {options.to} alone", "--repair true with it", "add it, or leave --to out"
        )
    if options.environment:
        return _environment(options.names, options.repair or options.every_version)
    names, every_version = options.names, options.every_version
    from registry.maintenance import repair as repairs
    from registry.maintenance.audit import diagnose
    from registry.models.mlflow_client import connect, translated
    from registry.models.names import check_model_name
    from registry.models.versions import check_known

    client = connect()
    for name in names:
        with translated(f"examine {check_model_name(name)}"):
            check_known(client, name)
    findings = diagnose(client, list(names) or None, every_version)
    left = findings
    if options.repair:
        left = repairs.repair(client, findings, every_version, options.to)
    stays = {(finding.model, finding.what) for finding in left}
    gone = [finding for finding in findings if (finding.model, finding.what) not in stays]
    rows = [{**asdict(finding), "repaired": finding in gone} for finding in (*gone, *left)]
    return app.Result({"findings": rows, "left": len(left)}, LEFT if left else 0)


def _environment(devices: tuple[str, ...], repair: bool) -> app.Result:
    from registry.maintenance.environment import diagnose_environment

    if repair:
        raise RequestError(
            "--environment true with --repair or --every-version",
            "--environment true alone: what is wrong with a machine is not repaired for you",
            "leave the others out",
        )
    findings = diagnose_environment(devices)
    rows = [{**asdict(finding), "repaired": False} for finding in findings]
    return app.Result({"findings": rows, "left": len(rows)}, LEFT if rows else 0)
