"""Finds and repairs what the UI or a crash left inconsistent, and traps of this machine."""

from collections.abc import Mapping
from typing import Any

import click

from hetfeat.errors import RequestError
from registry.cli import app, output

LEFT = 1


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


@app.command("doctor", render=_as_text, short_help="Find and repair inconsistencies.")
@app.argument("names", nargs=-1, metavar="[NAME]...")
@app.option("--repair", type=app.SWITCH, default="false", help="Repair what is safe to.")
@app.option(
    "--to",
    type=click.Choice(["ledger", "aliases"]),
    help="What --repair takes for right where history and aliases disagree.",
)
@app.option(
    "--every-version",
    type=app.SWITCH,
    default="false",
    help="Look for the runs and artifacts of all versions, not only of those in use.",
)
@app.option(
    "--environment",
    type=app.SWITCH,
    default="false",
    help="Examine this machine, and the devices called NAME, not the registry.",
)
def command(
    names: tuple[str, ...], repair: bool, to: str | None, every_version: bool, environment: bool
) -> app.Result:
    """Finds what is inconsistent in the registry: in all models, or in those called NAME.

    With --environment true, finds what is wrong with this machine, and with devices: NAME is then
    what --device takes, and its tracker must answer.

    Exits with 1 if something is left unrepaired.
    """
    if to and not repair:
        raise RequestError(f"--to {to} alone", "--repair true with it", "add it, or leave --to out")
    if environment:
        return _environment(names, repair or every_version)
    from dataclasses import asdict

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
    left = repairs.repair(client, findings, every_version, to) if repair else findings
    stays = {(finding.model, finding.what) for finding in left}
    gone = [finding for finding in findings if (finding.model, finding.what) not in stays]
    rows = [{**asdict(finding), "repaired": finding in gone} for finding in (*gone, *left)]
    return app.Result({"findings": rows, "left": len(left)}, LEFT if left else 0)


def _environment(devices: tuple[str, ...], repair: bool) -> app.Result:
    from dataclasses import asdict

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
