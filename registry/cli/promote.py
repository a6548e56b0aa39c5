"""Moves a model version to another stage."""

import click

from hetfeat.errors import GateRefused
from registry.cli import app

TARGETS = ("staging", "production", "archived")


@app.command(
    "promote",
    short_help="Move a model version to another stage.",
    interrupted="the next command on the model finishes or drops what this one began",
)
@app.argument("name")
@app.argument("version", type=click.IntRange(1))
@app.option("--to", type=click.Choice(TARGETS, case_sensitive=False), default="staging")
@app.option("--reason", default="", help="Kept in the history; an override needs one.")
@app.option("--force", type=app.SWITCH, default="false", help="Override gates that refuse.")
def command(name: str, version: int, to: str, reason: str, force: bool) -> app.Result:
    """Moves VERSION of the registered model NAME to a stage, through its gates.

    Exits with 3 if a gate refuses. A version that is there already stays, without a new entry in
    the history.
    """
    from registry.models.stages import promote

    code = 0
    try:
        outcome = promote(name, version, to, reason=reason, force=force)
    except GateRefused as refused:
        outcome, code = refused.outcome, app.fail(refused)
    value = {
        "name": name,
        "version": version,
        "from": outcome.from_,
        "to": outcome.to,
        "changed": outcome.entry is not None,
        "previous": outcome.previous,
        "gates": outcome.gates,
    }
    return app.Result(value, code)
