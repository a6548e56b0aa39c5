"""Prints what happened to the versions of a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from registry.cli import app, output
from registry.cli.options import argument
from registry.cli.params import MODEL_NAME

_QUIET = ("passed", "skipped")
"""Outcomes of gates that are counted, not told one by one."""


def _as_text(value: Mapping[str, Any]) -> str:
    rows = list(map(_row, value["entries"]))
    problems = [f"not as it was written: {fault}" for fault in value["faults"]]
    return "\n".join([output.table(rows) or f"{value['name']} has no history yet", *problems])


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry on one short line, of which an edited one may lack anything; `--json` has all."""
    outcomes = [(gate.get("gate"), gate.get("outcome")) for gate in entry.get("gates", [])]
    told = [f"{gate} {outcome}" for gate, outcome in outcomes if outcome not in _QUIET]
    passed = sum(outcome == "passed" for _, outcome in outcomes)
    return {
        "n": entry.get("n"),
        "when": str(entry.get("when", ""))[:16].replace("T", " "),
        "who": entry.get("who"),
        "what": entry.get("kind"),
        "version": entry.get("version"),
        "move": " -> ".join(str(entry[key]) for key in ("from", "to") if entry.get(key)),
        "gates": ", ".join(told) or (f"{passed} passed" if passed else None),
        "reason": entry.get("reason") or None,
    }


@dataclass(frozen=True)
class HistoryOptions:
    """Options of `hetfeat history`."""

    name: str = argument(type=MODEL_NAME)


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
