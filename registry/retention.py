"""Removes archived versions that nobody needs, with their artifacts."""

import contextlib
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hetfeat.errors import RequestError
from registry.artifacts import is_own, repository_of
from registry.client import MISSING, connect, error_code, patiently, translated
from registry.digests import known_digest
from registry.ledger import entries
from registry.lineage import children_of
from registry.lock import locked
from registry.moves import Situation, carry_out, content_of, situation
from registry.names import check_model_name
from registry.versions import Version, check_known

if TYPE_CHECKING:
    from mlflow import MlflowClient

_DAY_S = 86400.0


def candidates(
    name: str, older_than_days: float, *, client: "MlflowClient | None" = None
) -> list[Version]:
    """Archived versions that may go: old, not what `rollback` goes to, and nobody's parent.

    Args:
        name: Of the registered model.
        older_than_days: Since the last change of the version.
        client: Of the registry; by default where MLflow's variables say.
    """
    client = client or connect()
    if older_than_days < 0:
        raise RequestError(f"{older_than_days} days", "0 or more", "correct --older-than")
    with translated(f"list {check_model_name(name)}"):
        check_known(client, name)
        before_ms = (time.time() - older_than_days * _DAY_S) * 1000
        model = client.get_registered_model(name)
        held = {int(number) for number in model.aliases.values()}
        found = client.search_model_versions(f"name = '{name}'")
        old = [Version.of(v) for v in found if (v.last_updated_timestamp or 0) <= before_ms]
        archived = [v for v in old if v.stage == "archived" and v.version not in held]
        return [v for v in archived if not any(True for _ in children_of(client, v.uri))]


def prune(
    name: str, older_than_days: float, *, client: "MlflowClient | None" = None
) -> list[Version]:
    """Deletes `candidates` and their artifacts, each with an entry in the ledger.

    Returns:
        What was deleted.
    """
    client = client or connect()
    pruned: list[Version] = []
    for candidate in candidates(name, older_than_days, client=client):
        with translated(f"prune {candidate.uri}"), locked(client, name) as lock:
            # Looked at again: it may have been promoted, or become a parent, meanwhile.
            if candidate in candidates(name, older_than_days, client=client):
                now = situation(client, name, lock)
                if candidate.version not in asdict(now.state).values():
                    _prune(now, candidate)
                    pruned.append(candidate)
    return pruned


def last_entry(history: list[dict[str, Any]], version: int) -> dict[str, Any] | None:
    """The newest entry about a version."""
    return next((e for e in reversed(history) if e.get("version") == version), None)


def _prune(now: Situation, version: Version) -> None:
    from mlflow.exceptions import MlflowException

    previous = last_entry(entries(now.tags), version.version)
    reason = f"last moved in entry {previous['n']}" if previous else ""
    manifest = known_digest(version, now.tags)
    said = content_of("prune", version.version, "archived", "deleted", reason, manifest=manifest)
    carry_out(now, said, now.state)
    # Artifacts first: if they cannot be deleted, the version still says where they are.
    if not _is_shared(now.client, version):
        with contextlib.suppress(NotImplementedError):  # some stores leave that to `mlflow gc`
            repository_of(now.client, version).delete_artifacts()
    try:
        patiently(lambda: now.client.delete_model_version(version.name, str(version.version)))
    except MlflowException as error:
        if error_code(error) not in MISSING:
            raise


def _is_shared(client: "MlflowClient", version: Version) -> bool:
    """Whether another version, here or elsewhere, was registered from the same files."""
    if not version.run_id or not is_own(client, version):
        return True  # nothing says who else uses them
    same_run = client.search_model_versions(f"run_id = '{version.run_id}'")
    return sum(found.source == version.source for found in same_run) > 1
