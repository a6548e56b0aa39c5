"""Moves a model version to another stage."""

from dataclasses import dataclass

import click

from hetfeat.errors import GateRefused
from registry.cli import app
from registry.cli.options import argument, option
from registry.cli.params import MODEL_NAME, VERSION

TARGETS = ("staging", "production", "archived")


@dataclass(frozen=True)
class PromoteOptions:
    """Options of `hetfeat promote`."""

    name: str = argument(type=MODEL_NAME)
    version: int = argument(type=VERSION)
    to: str = option(
        "staging", "Stage to move to.", type=click.Choice(TARGETS, case_sensitive=False)
    )
    reason: str = option("", "Kept in the history; an override needs one.")
    force: bool = option(False, "Override gates that refuse.")
    dry_run: bool = option(False, "Say what the gates would, and change nothing.")


@app.command(
    "promote",
    PromoteOptions,
    example="hetfeat promote costmodel.cpu-x86 3 --to production",
    short_help="Move a model version to another stage.",
    interrupted="the next command on the model finishes or drops what this one began",
)
def command(options: PromoteOptions) -> app.Result:
    """Moves VERSION of the registered model NAME to a stage, through its gates.

    Exits with 3 if a gate refuses. A version that is there already stays, without a new entry in
    the history.
    """
    from registry.files import moves

    code = 0
    try:
        outcome = (moves.preview if options.dry_run else moves.promote)(
            options.name,
            options.version,
            options.to,
            reason=options.reason,
            force=options.force,
        )
    except GateRefused as refused:
        outcome, code = refused.outcome, app.fail(refused)
    value = {
        "name": options.name,
        "version": options.version,
        "from": outcome.from_,
        "to": outcome.to,
        "changed": outcome.entry is not None,
        "previous": outcome.previous,
        "gates": outcome.gates,
    }
    return app.Result(value, code)
