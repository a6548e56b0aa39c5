"""Removes archived versions that nobody needs, with their artifacts."""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hetfeat.errors import RequestError
from registry.files.artifacts import is_own, repository_of
from registry.models.digests import recorded_digest
from registry.models.ledger import HEAD, Head, manifests, standing
from registry.models.lineage import children_of
from registry.models.lock import locked
from registry.models.mlflow_client import (
    MISSING,
    condition,
    connect,
    error_code,
    patiently,
    translated,
)
from registry.models.names import check_model_name
from registry.models.transition import Situation, carry_out, content_of, situation
from registry.models.version import PARENT_TAG, Version
from registry.models.versions import check_known, search_versions

if TYPE_CHECKING:
    from mlflow import MlflowClient

_DAY_S = 86400.0


def candidates(
    name: str, older_than_days: float, *, client: "MlflowClient | None" = None
) -> list[Version]:
    """Archived versions that may go: old, not what `rollback` goes to, and nobody's parent.

    Args:
        name: Name of the registered model.
        older_than_days: Least age in days, counted from the last change of the version.
        client: Client of the registry; default None for the one that MLflow's variables name.
    """
    client = client or connect()
    if older_than_days < 0:
        raise RequestError(f"{older_than_days} days", "0 or more", "correct --older-than")
    with translated(f"list {check_model_name(name)}"):
        model = check_known(client, name)
        before_ms = _before_ms(older_than_days)
        held = {int(number) for number in model.aliases.values()}
        found = search_versions(client, condition("name", name))
        old = [Version.of(v) for v in found if (v.last_updated_timestamp or 0) <= before_ms]
        archived = [v for v in old if v.stage == "archived" and v.version not in held]
        parents = _parents(client, name) if archived else frozenset()
        return [v for v in archived if v.uri not in parents]


def prune(
    name: str,
    older_than_days: float,
    *,
    most: int | None = None,
    turn_s: float = 8.0,
    on_turn: Callable[[float], object] | None = None,
    client: "MlflowClient | None" = None,
) -> list[Version]:
    """Deletes `candidates` and their artifacts, each with an entry in the ledger.

    Args:
        name: Name of the registered model.
        older_than_days: Least age in days, as in `candidates`.
        most: Most candidates to look at, default None for all.
        turn_s: Seconds within which one turn at the lock begins to delete versions, default 8:
            less than half of the lock's hold.
        on_turn: Callable that is told for how many seconds a turn held the lock; default None.
        client: Client of the registry; default None for the one that MLflow's variables name.

    Returns:
        Versions that were deleted.
    """
    client = client or connect()
    pruned: list[Version] = []
    with translated(f"prune {name}"):
        left = candidates(name, older_than_days, client=client)[:most]
        while left:
            with locked(client, name) as lock:
                began_s = time.monotonic()
                before_ms = _before_ms(older_than_days)
                turn = _Turn(situation(client, name, lock), began_s + turn_s, before_ms)
                gone, left = turn.prune(left)
                held_s = time.monotonic() - began_s
            pruned += gone
            if on_turn is not None:
                on_turn(held_s)
    return pruned


def _before_ms(older_than_days: float) -> float:
    """When a version was changed last that has the age."""
    return (time.time() - older_than_days * _DAY_S) * 1000


@dataclass
class _Turn:
    """What is done while the lock is held once: the history is read once for all versions of it.

    Attributes:
        now: Situation of the registered model.
        until_s: Time by the monotonic clock, in seconds, from which no other version is begun;
            others want the lock, too.
        before_ms: Time in milliseconds since the epoch; a version that was changed since then
            stays.
        digests: SHA-256 of the manifests by version, as the ledger has them.
        shown: Whether aliases and stages were made to show the state in this turn, default False.
    """

    now: Situation
    until_s: float
    before_ms: float
    digests: Mapping[int, str] = field(init=False)
    last: Mapping[int, int] = field(init=False)
    shown: bool = False

    def __post_init__(self) -> None:
        history = standing(self.now.name, self.now.tags)
        self.digests, self.last = manifests(history), _last_entries(history)

    def prune(self, versions: list[Version]) -> tuple[list[Version], list[Version]]:
        """Deletes those versions that there is time for, one at least.

        Returns:
            Versions that were deleted, and those that were not looked at.
        """
        in_use = set(asdict(self.now.state).values())
        gone: list[Version] = []
        for at, version in enumerate(versions):
            if at and time.monotonic() > self.until_s:
                return gone, versions[at:]
            if version.version not in in_use and not self._has_changed(version):
                self._prune(version)
                gone.append(version)
        return gone, []

    def _has_changed(self, version: Version) -> bool:
        """Whether it is gone, was moved, or became a parent since it was looked at."""
        from mlflow.exceptions import MlflowException

        client = self.now.client
        try:
            found = client.get_model_version(version.name, str(version.version))
        except MlflowException as error:
            if error_code(error) in MISSING:
                return True
            raise
        now = Version.of(found)
        moved = now.stage != version.stage or now.aliases != version.aliases
        young = (found.last_updated_timestamp or 0) > self.before_ms
        return moved or young or any(True for _ in children_of(client, version.uri))

    def _prune(self, version: Version) -> None:
        last = self.last.get(version.version)
        reason = f"last moved in entry {last}" if last else ""
        manifest = recorded_digest(version, self.digests)
        said = content_of(
            "prune", version.version, "archived", "deleted", reason, manifest=manifest
        )
        entry = carry_out(self.now, said, self.now.state, shown=self.shown)
        self.shown = True
        head = str(Head(entry["n"], entry["digest"]))
        self.now = replace(self.now, tags={**self.now.tags, HEAD: head})
        _delete(self.now.client, version)


def _delete(client: "MlflowClient", version: Version) -> None:
    from mlflow.exceptions import MlflowException

    # Artifacts first: if they cannot be deleted, the version still says where they are.
    if not _is_shared(client, version):
        with contextlib.suppress(NotImplementedError):  # some stores leave that to `mlflow gc`
            repository_of(client, version).delete_artifacts()
    try:
        patiently(lambda: client.delete_model_version(version.name, str(version.version)))
    except MlflowException as error:
        if error_code(error) not in MISSING:
            raise


def _last_entries(history: list[dict[str, Any]]) -> dict[int, int]:
    """Version -> number of the newest entry about it."""
    return {entry["version"]: entry["n"] for entry in history if entry.get("version")}


def _parents(client: "MlflowClient", name: str) -> frozenset[str]:
    """URIs of the versions of a model from which others were made, in one search."""
    made = condition(f"tags.{PARENT_TAG}", f"models:/{name}/%", "LIKE")
    return frozenset(version.tags[PARENT_TAG] for version in search_versions(client, made))


def _is_shared(client: "MlflowClient", version: Version) -> bool:
    """Whether another version, here or elsewhere, was registered from the same files."""
    if not version.run_id or not is_own(client, version):
        return True  # nothing says who else uses them
    same_run = search_versions(client, condition("run_id", version.run_id))
    return sum(bool(found.source == version.source) for found in same_run) > 1
