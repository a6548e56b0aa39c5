"""Undoes the last change of production."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from registry.cli import app
from registry.cli.options import argument, option
from registry.cli.params import MODEL_NAME


@dataclass(frozen=True)
class RollbackOptions:
    """Options of `hetfeat rollback`."""

    name: str = argument(type=MODEL_NAME)
    reason: str = option("", "Kept in the history.")


@app.command(
    "rollback",
    RollbackOptions,
    example="hetfeat rollback costmodel.cpu-x86 --reason 'slower on the lab board'",
    short_help="Put production back as it was before.",
    interrupted="the next command on the model finishes or drops what this one began",
)
def command(options: RollbackOptions) -> Mapping[str, Any]:
    """Puts back into production the version of NAME that was there before.

    No gate is asked. Repeated, it goes further back; what is displaced is archived.
    """
    from registry.files.moves import rollback

    outcome = rollback(options.name, reason=options.reason)
    assert outcome.entry is not None
    return {
        "name": options.name,
        "version": outcome.entry["version"],
        "from": outcome.from_,
        "to": outcome.to,
        "previous": outcome.previous,
    }
