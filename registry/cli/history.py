"""Prints what happened to the versions of a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from registry.cli import app, output
from registry.cli.options import argument


def _as_text(value: Mapping[str, Any]) -> str:
    rows = list(map(_row, value["entries"]))
    problems = [f"not as it was written: {fault}" for fault in value["faults"]]
    return "\n".join([output.table(rows) or f"{value['name']} has no history yet", *problems])


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry, of which an edited one may lack anything."""
    gates = [f"{gate.get('gate')} {gate.get('outcome')}" for gate in entry.get("gates", [])]
    return {
        "n": entry.get("n"),
        "when": str(entry.get("when", "")).partition(".")[0],
        "who": entry.get("who"),
        "what": entry.get("kind"),
        "version": entry.get("version"),
        "from": entry.get("from") or None,
        "to": entry.get("to") or None,
        "replaced": entry.get("replaced"),
        "gates": ", ".join(gates),
        "reason": entry.get("reason"),
    }


@dataclass(frozen=True)
class HistoryOptions:
    """Options of `hetfeat history`."""

    name: str = argument()


@app.command(
    "history",
    HistoryOptions,
    example="hetfeat history costmodel.cpu-x86",
    render=_as_text,
    short_help="Print who moved which version, and why.",
)
def command(options: HistoryOptions) -> Mapping[str, Any]:
    """Prints who moved which version of the registered model NAME, when, from, to and why."""
    from registry.models.stages import history

    entries, faults = history(options.name)
    return {"name": options.name, "entries": entries, "faults": faults}
