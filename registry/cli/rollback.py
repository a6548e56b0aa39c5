"""Undoes the last change of production."""

from collections.abc import Mapping
from typing import Any

from registry.cli import app


@app.command(
    "rollback",
    short_help="Put production back as it was before.",
    interrupted="the next command on the model finishes or drops what this one began",
)
@app.argument("name")
@app.option("--reason", default="", help="Kept in the history.")
def command(name: str, reason: str) -> Mapping[str, Any]:
    """Puts back into production the version of NAME that was there before.

    No gate is asked. Repeated, it goes further back; what is displaced is archived.
    """
    from registry.models.rollback import rollback

    outcome = rollback(name, reason=reason)
    assert outcome.entry is not None
    return {
        "name": name,
        "version": outcome.entry["version"],
        "from": outcome.from_,
        "to": outcome.to,
        "previous": outcome.previous,
    }
