"""Prints what happened to the versions of a model."""

from collections.abc import Mapping
from typing import Any

from registry.commands import _cli, _output


def _as_text(value: Mapping[str, Any]) -> str:
    rows = [
        {
            "n": entry["n"],
            "when": entry["when"].partition(".")[0],
            "who": entry["who"],
            "what": entry["kind"],
            "version": entry["version"],
            "from": entry["from"] or None,
            "to": entry["to"] or None,
            "replaced": entry["replaced"],
            "gates": ", ".join(f"{gate['gate']} {gate['outcome']}" for gate in entry["gates"]),
            "reason": entry["reason"],
        }
        for entry in value["entries"]
    ]
    problems = [f"not as it was written: {fault}" for fault in value["faults"]]
    return "\n".join([_output.table(rows) or f"{value['name']} has no history yet", *problems])


@_cli.command("history", render=_as_text, short_help="Print who moved which version, and why.")
@_cli.argument("name")
def command(name: str) -> Mapping[str, Any]:
    """Prints who moved which version of the registered model NAME, when, from, to and why."""
    from registry.stages import history

    entries, faults = history(name)
    return {"name": name, "entries": entries, "faults": faults}
