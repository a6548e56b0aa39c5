"""One move of a registered model, written down before it is made.

The ledger says what should be; aliases say it to readers, and MLflow's own stages mirror it. A
move is first written down as pending, whole, and then done step by step, each step the same when
repeated: whoever holds the lock next finishes what a crash left, and nothing is half-done.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hetfeat.errors import DataError
from hetfeat.parsing import printable
from registry.models import aliases, ledger
from registry.models.aliases import Shown, State
from registry.models.ledger import Head
from registry.models.lock import Lock
from registry.models.mlflow_client import patiently, user
from registry.models.version import LIVE_STAGES, Version

if TYPE_CHECKING:
    from mlflow import MlflowClient


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
        return stage_of(self.state, version)


def stage_of(state: State, version: Version) -> str:
    """The stage of a version where this is so; MLflow's own counts for `archived` alone."""
    for stage in LIVE_STAGES:
        if state.holder_of(stage) == version.version:
            return stage
    return "archived" if version.stage == "archived" else "none"


def content_of(
    kind: str, version: int | None, from_: str, to: str, reason: str, **more: Any
) -> dict[str, Any]:
    """What an entry of the ledger says, but for who, when and its number."""
    known = {"kind": kind, "version": version, "from": from_, "to": to, "reason": reason}
    rest = {"forced": False, "gates": [], "replaced": None, "manifest": ""}
    return known | rest | more


def situation(client: "MlflowClient", name: str, lock: Lock, *, mending: bool = False) -> Situation:
    """Finishes what a crash left of an earlier move, and reads what is so now.

    Args:
        client: Client of the registry.
        name: Name of the registered model.
        lock: Lock that is held on the registered model.
        mending: Whether to take the aliases for what should be, as the ledger cannot be believed;
            default False.

    Raises:
        DataError: The ledger is not as it was written.
    """
    shown = aliases.read(client, name)
    if (text := shown.tags.get(ledger.PENDING)) is not None:
        pending = ledger.decode(text)
        if pending is not None and _can_be_finished(client, name, pending):
            _finish(client, lock, name, pending)
        patiently(lambda: client.delete_registered_model_tag(name, ledger.PENDING))
        shown = aliases.read(client, name)
    if mending:
        return Situation(client, lock, name, shown.tags, shown.aliases)
    return Situation(client, lock, name, shown.tags, recorded_state(client, name, shown))


def recorded_state(client: "MlflowClient", name: str, shown: Shown) -> State:
    """What is so by the ledger, less the versions that are gone.

    Raises:
        DataError: The ledger is not as it was written.
    """
    if found := ledger.faults(name, shown.tags, _witness(client, name, shown.aliases.production)):
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
        if number != getattr(shown.aliases, alias) and not aliases.exists(client, name, number)
    }
    return replace(state, **gone)


def _witness(client: "MlflowClient", name: str, production: int | None) -> list[str]:
    """The head of the ledger as the version in production has it."""
    if production is None:
        return []
    tags = aliases.version_of(client, name, production).tags
    return [tags[ledger.HEAD]] if ledger.HEAD in tags else []


def _can_be_finished(client: "MlflowClient", name: str, pending: Mapping[str, Any]) -> bool:
    """Not if it was changed, or if a version that it moves has been deleted meanwhile."""
    if pending.get("digest") != ledger.digest_of(pending) or pending.get("name") != name:
        return False
    held = [number for number in asdict(State.of(pending["state"])).values() if number]
    if pending.get("to") == "archived":
        held.append(pending["version"])
    return all(aliases.exists(client, name, number) for number in held)


def carry_out(
    now: Situation,
    content: Mapping[str, Any],
    state: State,
    head: Head | None = None,
    shown: bool = False,
) -> dict[str, Any]:
    """Writes an entry down as pending, makes it so, and adds it to the ledger.

    Args:
        now: Situation of the registered model.
        content: Content of the entry, but for who, when, and the state.
        state: State that shall be so afterwards.
        head: Head that the entry follows; default None for the end of the ledger.
        shown: Whether aliases and stages show the state already, default False: this holder of the
            lock made them.

    Returns:
        The entry as added to the ledger.
    """
    when = datetime.now(UTC).isoformat(timespec="milliseconds")
    whole = {
        "name": now.name,
        "who": printable(user(), None),
        "when": when,
        **content,
        "state": asdict(state),
    }
    entry = ledger.seal(whole, head or Head.parse(now.tags.get(ledger.HEAD)))
    now.lock.check()
    text = ledger.encode(entry)
    patiently(lambda: now.client.set_registered_model_tag(now.name, ledger.PENDING, text))
    _finish(now.client, now.lock, now.name, entry, shown)
    patiently(lambda: now.client.delete_registered_model_tag(now.name, ledger.PENDING))
    return entry


def _finish(
    client: "MlflowClient", lock: Lock, name: str, entry: Mapping[str, Any], shown: bool = False
) -> None:
    """Every step of a pending entry; the same when repeated after any of them."""
    state, number = State.of(entry["state"]), entry["n"]
    head = str(Head(number, entry["digest"]))
    archived = entry["version"] if entry["to"] == "archived" else None
    if not shown:
        aliases.apply(client, name, state, archived, lock.check)
    for key, text in ((ledger.key(number), ledger.encode(entry)), (ledger.HEAD, head)):
        lock.check()
        _set_tag(client, name, key, text)
    if state.production is not None:
        aliases.set_version_tag(client, name, state.production, ledger.HEAD, head)


def _set_tag(client: "MlflowClient", name: str, key: str, value: str) -> None:
    patiently(lambda: client.set_registered_model_tag(name, key, value))
