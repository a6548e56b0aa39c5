"""Moves of versions between stages: allowed, gated, locked, recorded.

The ledger says what should be; aliases say it to readers, and MLflow's own stages mirror it. A
move is first written down as pending, whole, and then done step by step, each step the same when
repeated: whoever holds the lock next finishes what a crash left, and nothing is half-done.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hetfeat.errors import DataError, GateRefused, RequestError
from registry import ledger, mirror
from registry.client import connect, patiently, translated, user
from registry.ledger import Head
from registry.lock import Lock, locked
from registry.mirror import State
from registry.names import check_model_name
from registry.versions import LIVE_STAGES, MANIFEST_TAG, STAGES, Version, check_known

if TYPE_CHECKING:
    from mlflow import MlflowClient

ALLOWED = {
    "none": ("staging", "production", "archived"),
    "staging": ("production", "archived"),
    "production": ("archived",),
    "archived": ("staging", "production"),
}
MAX_REASON_CHARACTERS = 500


@dataclass(frozen=True)
class GateResult:
    """What one gate said.

    Attributes:
        gate: Its name.
        outcome: `passed`, `refused`, `overridden` or `skipped`.
        figures: What it compared, for people.
    """

    gate: str
    outcome: str
    figures: str


Gates = Callable[[Version, Version | None, str], list[GateResult]]
"""Of the version to move, the one it would replace, and the stage."""


@dataclass(frozen=True)
class Outcome:
    """What a command did.

    Attributes:
        entry: As written in the ledger, or None if there was nothing to do.
        from_: Stage before.
        to: Stage after.
        gates: What they said.
        previous: The version that was replaced, if any.
    """

    entry: Mapping[str, Any] | None
    from_: str
    to: str
    gates: tuple[GateResult, ...] = ()
    previous: int | None = None


@dataclass(frozen=True)
class Situation:
    """A registered model as the holder of its lock finds it, nothing pending."""

    client: "MlflowClient"
    lock: Lock
    name: str
    tags: Mapping[str, str]
    state: State

    def stage_of(self, version: Version) -> str:
        """By the ledger; what was set past it does not count, but for `archived`."""
        for stage in LIVE_STAGES:
            if self.state.holder_of(stage) == version.version:
                return stage
        return "archived" if version.stage == "archived" else "none"


def promote(
    name: str,
    version: int,
    to: str,
    *,
    reason: str = "",
    force: bool = False,
    gates: Gates | None = None,
    client: "MlflowClient | None" = None,
) -> Outcome:
    """Moves a version to a stage, through the gates, inside the lock.

    Args:
        name: Of the registered model.
        version: To move.
        to: `staging`, `production` or `archived`.
        reason: Kept in the ledger.
        force: Moves it even if a gate refuses; needs a reason.
        gates: What to ask first.
        client: Of the registry; by default where MLflow's variables say.

    Returns:
        What was done; without an entry if the version was there already.

    Raises:
        RequestError: Unknown model, version or move, or not allowed to this user.
        GateRefused: A gate said no.
    """
    client = client or connect()
    to = _target(to)
    check_reason(reason, force)
    with translated(f"promote {check_model_name(name)}"):
        mirror.version_of(client, name, version)  # before the lock: a wrong name leaves no trace
        with locked(client, name) as lock:
            now = situation(client, name, lock)
            moved = mirror.version_of(client, name, version)
            from_ = now.stage_of(moved)
            if from_ == to and not mirror.differences(client, name, now.state):
                return Outcome(None, from_, to, previous=now.state.previous)
            if from_ != to and to not in ALLOWED[from_]:
                raise RequestError(
                    f"version {version} of '{name}', in {from_}, to {to}",
                    f"{from_} -> {' or '.join(ALLOWED[from_])}",
                    f"`hetfeat rollback {name}` undoes the last change of production",
                )
            displaced = now.state.holder_of(to)
            replaced = mirror.version_of(client, name, displaced) if displaced else None
            results = tuple(gates(moved, replaced, to) if gates else ())
            results = _judged(results, moved, to, force)
            content = {
                "kind": "promote",
                "version": version,
                "from": from_,
                "to": to,
                "reason": reason,
                "forced": force,
                "gates": [asdict(result) for result in results],
                "replaced": displaced,
                "manifest": moved.tags.get(MANIFEST_TAG, ""),
            }
            entry = carry_out(now, content, now.state.after(version, to))
            return Outcome(entry, from_, to, results, displaced)


def situation(client: "MlflowClient", name: str, lock: Lock) -> Situation:
    """Finishes what a crash left of an earlier move, and reads what is so now.

    Raises:
        DataError: The ledger is not as it was written.
    """
    shown = mirror.read(client, name)
    if (text := shown.tags.get(ledger.PENDING)) is not None:
        pending = ledger.decode(text)
        if pending is not None and pending.get("digest") == ledger.digest_of(pending):
            _finish(client, lock, name, pending)
        patiently(lambda: client.delete_registered_model_tag(name, ledger.PENDING))
        shown = mirror.read(client, name)
    if found := ledger.faults(name, shown.tags, None):
        raise DataError(
            f"the history of '{name}', in which {found[0]}",
            "every entry as it was written",
            "`hetfeat doctor` explains it; `hetfeat doctor --repair true` writes it down",
        )
    entries = ledger.entries(shown.tags)
    state = State.of(entries[-1]["state"]) if entries else shown.aliases
    gone = {
        alias: None
        for alias, number in asdict(state).items()
        if number != getattr(shown.aliases, alias) and not mirror.exists(client, name, number)
    }
    return Situation(client, lock, name, shown.tags, replace(state, **gone))


def carry_out(now: Situation, content: Mapping[str, Any], state: State) -> dict[str, Any]:
    """Writes an entry down as pending, makes it so, and adds it to the ledger.

    Args:
        now: Of the registered model.
        content: Of the entry, but for who, when, and the state.
        state: What shall be so afterwards.

    Returns:
        The entry.
    """
    when = datetime.now(UTC).isoformat(timespec="milliseconds")
    whole = {"name": now.name, "who": user(), "when": when, **content, "state": asdict(state)}
    entry = ledger.seal(whole, Head.parse(now.tags.get(ledger.HEAD)))
    now.lock.check()
    text = ledger.encode(entry)
    patiently(lambda: now.client.set_registered_model_tag(now.name, ledger.PENDING, text))
    _finish(now.client, now.lock, now.name, entry)
    patiently(lambda: now.client.delete_registered_model_tag(now.name, ledger.PENDING))
    return entry


def _finish(client: "MlflowClient", lock: Lock, name: str, entry: Mapping[str, Any]) -> None:
    """Every step of a pending entry; the same when repeated after any of them."""
    state, number = State.of(entry["state"]), entry["n"]
    head = str(Head(number, entry["digest"]))
    archived = entry["version"] if entry["to"] == "archived" else None
    mirror.apply(client, name, state, archived, lock.check)
    for key, text in ((ledger.key(number), ledger.encode(entry)), (ledger.HEAD, head)):
        lock.check()
        _set_tag(client, name, key, text)
    if state.production is not None:
        mirror.set_version_tag(client, name, state.production, ledger.HEAD, head)


def check_reason(reason: str, force: bool) -> None:
    """Refuses an override without a reason, and a reason that is too long.

    Raises:
        RequestError: Either.
    """
    if force and not reason.strip():
        raise RequestError("--force true without --reason", "a reason", "add --reason TEXT")
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


def _judged(
    results: tuple[GateResult, ...], version: Version, to: str, force: bool
) -> tuple[GateResult, ...]:
    refused = [result for result in results if result.outcome == "refused"]
    if refused and not force:
        said = "; ".join(f"{result.gate} ({result.figures})" for result in refused)
        raise GateRefused(
            f"version {version.version} of '{version.name}' for {to}, refused by {said}",
            "every gate passed",
            "train a better one, or override with --force true --reason TEXT",
        )
    return tuple(
        GateResult(result.gate, "overridden", result.figures) if result in refused else result
        for result in results
    )


def _set_tag(client: "MlflowClient", name: str, key: str, value: str) -> None:
    patiently(lambda: client.set_registered_model_tag(name, key, value))


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
        shown = mirror.read(client, name)
        return ledger.entries(shown.tags), ledger.faults(name, shown.tags, None)
