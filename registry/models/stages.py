"""Moves of versions between stages: allowed, gated, locked, recorded."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hetfeat.errors import GateRefused, RequestError
from registry.models import aliases, ledger
from registry.models.aliases import State
from registry.models.digests import ReadFiles, agreed_digest, known_digest
from registry.models.gates import ARTIFACTS, OVERRIDDEN, REFUSED, GateResult, Gates, StandardGates
from registry.models.lock import locked
from registry.models.mlflow_client import connect, translated
from registry.models.names import check_model_name
from registry.models.transition import (
    Situation,
    carry_out,
    content_of,
    recorded_state,
    situation,
    stage_of,
)
from registry.models.version import STAGES, Version
from registry.models.versions import check_known

if TYPE_CHECKING:
    from mlflow import MlflowClient

ALLOWED = {
    "none": ("staging", "production", "archived"),
    "staging": ("production", "archived"),
    "production": ("archived",),
    "archived": ("staging", "production"),
}
MAX_REASON_CHARACTERS = 500
"""Most characters of a reason: an entry of the ledger has room for it and for all figures."""


@dataclass(frozen=True)
class Outcome:
    """What a command did.

    Attributes:
        entry: Entry as written in the ledger, or None if there was nothing to do.
        from_: Name of the stage before.
        to: Name of the stage after.
        gates: Results of the gates, default none.
        previous: Number of the version that was replaced, if any; default None.
    """

    entry: Mapping[str, Any] | None
    from_: str
    to: str
    gates: tuple[GateResult, ...] = ()
    previous: int | None = None


def promote(
    name: str,
    version: int,
    to: str,
    *,
    read_files: ReadFiles,
    reason: str = "",
    force: bool = False,
    gates: Gates | None = None,
    client: "MlflowClient | None" = None,
) -> Outcome:
    """Moves a version to a stage, through the gates, inside the lock.

    Args:
        name: Name of the registered model.
        version: Number of the version to move.
        to: Target stage: `staging`, `production` or `archived`.
        read_files: Callable that reads a version's files, for the gate of the artifacts;
            `registry.files.moves.promote` hands it in.
        reason: Text kept in the ledger, default empty.
        force: Whether to move it even if a gate refuses, but for that of its files; default False,
            needs a reason.
        gates: Gates to ask first; default None for those of `registry.models.gate_rules`.
        client: Client of the registry; default None for the one that MLflow's variables name.

    Returns:
        The outcome; without an entry if the version was there already.

    Raises:
        RequestError: Unknown model, version or move, or not allowed to this user.
        GateRefused: A gate said no.
    """
    client = client or connect()
    to = _target(to)
    check_reason(reason, force)
    with translated(f"promote {check_model_name(name)}"):
        known = aliases.version_of(client, name, version)  # a wrong name never takes a lock
        if gates is None:
            gates = StandardGates(client, read_files)
            if known.stage != to or not _is_alias(client, known, to):
                gates.prepare(known, to)
        with locked(client, name) as lock:
            now = situation(client, name, lock)
            moved = aliases.version_of(client, name, version)
            return _move(now, moved, to, gates, reason, force)


def _move(
    now: Situation, moved: Version, to: str, gates: Gates, reason: str, force: bool
) -> Outcome:
    """Does what `promote` was asked for, inside the lock."""
    client, name, from_ = now.client, now.name, now.stage_of(moved)
    if from_ == to and not aliases.differences(client, name, now.state):
        return Outcome(None, from_, to)
    results = _ask_gates(client, now.state, moved, to, gates, force)
    displaced = now.state.holder_of(to)
    said = content_of(
        *("promote", moved.version, from_, to, reason),
        forced=force,
        gates=[asdict(result) for result in results],
        replaced=displaced,
        manifest=(known_digest if to == "archived" else agreed_digest)(moved, now.tags),
    )
    entry = carry_out(now, said, now.state.after(moved.version, to))
    return Outcome(entry, from_, to, results, displaced)


def preview(
    name: str,
    version: int,
    to: str,
    *,
    read_files: ReadFiles,
    reason: str = "",
    force: bool = False,
    client: "MlflowClient | None" = None,
) -> Outcome:
    """What `promote` would do: the gates are asked, no lock is taken and nothing is written.

    Arguments are those of `promote`.

    Returns:
        The outcome, without an entry.

    Raises:
        RequestError: Unknown model, version or move.
        GateRefused: A gate would say no.
    """
    client = client or connect()
    to = _target(to)
    check_reason(reason, force)
    with translated(f"ask the gates of {check_model_name(name)}"):
        moved = aliases.version_of(client, name, version)
        state = recorded_state(client, name, aliases.read(client, name))
        from_ = stage_of(state, moved)
        if from_ == to:
            return Outcome(None, from_, to)
        results = _ask_gates(client, state, moved, to, StandardGates(client, read_files), force)
        return Outcome(None, from_, to, results, state.holder_of(to))


def _ask_gates(
    client: "MlflowClient", state: State, moved: Version, to: str, gates: Gates, force: bool
) -> tuple[GateResult, ...]:
    """What the gates say of a move that is allowed."""
    name, from_ = moved.name, stage_of(state, moved)
    if from_ != to and to not in ALLOWED[from_]:
        raise RequestError(
            f"version {moved.version} of '{name}', in {from_}, to {to}",
            f"{from_} -> {' or '.join(ALLOWED[from_])}",
            f"`hetfeat rollback {name}` undoes the last change of production",
        )
    displaced = state.holder_of(to)
    replaced = aliases.version_of(client, name, displaced) if displaced else None
    asked = Outcome(None, from_, to, tuple(gates(moved, replaced, to)))
    return _apply_gates(asked, moved, force)


def _is_alias(client: "MlflowClient", version: Version, stage: str) -> bool:
    """Whether the stage's alias says so, too: MLflow's own stage may be set past the gates."""
    state = aliases.read(client, version.name)
    return stage == "archived" or state.aliases.holder_of(stage) == version.version


def check_reason(reason: str, force: bool) -> None:
    """Refuses an override without a reason, and a reason that is too long.

    Raises:
        RequestError: Either, or bytes that are no text.
    """
    if force and not reason.strip():
        raise RequestError("--force true without --reason", "a reason", "add --reason TEXT")
    if any("\ud800" <= char <= "\udfff" for char in reason):
        raise RequestError("--reason with bytes that are no text", "UTF-8", "correct it")
    if len(reason) > MAX_REASON_CHARACTERS:
        raise RequestError(
            f"a reason of {len(reason)} characters",
            f"at most {MAX_REASON_CHARACTERS}",
            "shorten it",
        )


def _target(to: str) -> str:
    if to.lower() not in STAGES[1:]:
        raise RequestError(f"stage {to!r}", f"one of {', '.join(STAGES[1:])}", "correct --to")
    return to.lower()


def _apply_gates(asked: Outcome, version: Version, force: bool) -> tuple[GateResult, ...]:
    """What the gates said, with those overridden that refused."""
    refused = [result for result in asked.gates if result.outcome == REFUSED]
    altered = any(result.gate == ARTIFACTS for result in refused)
    if refused and (altered or not force):
        said = "; ".join(f"{result.gate} ({result.figures})" for result in refused)
        raise GateRefused(
            f"version {version.version} of '{version.name}' for {asked.to}, refused by {said}",
            "every gate passed",
            "restore its files, or register it anew; nothing overrides the gate of the artifacts"
            if altered
            else "train a better one, or override with --force true --reason TEXT",
            asked,
        )
    return tuple(
        GateResult(result.gate, OVERRIDDEN, result.figures) if result in refused else result
        for result in asked.gates
    )


def history(
    name: str, *, client: "MlflowClient | None" = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """The entries of a registered model, oldest first, and what is wrong with them.

    Raises:
        RequestError: There is no such model.
    """
    client = client or connect()
    with translated(f"read the history of {check_model_name(name)}"):
        check_known(client, name)
        tags = aliases.read(client, name).tags
        seen = [version.tags.get(ledger.HEAD) for version in aliases.versions_of(client, name)]
        return ledger.entries(tags), ledger.faults(name, tags, filter(None, seen))
