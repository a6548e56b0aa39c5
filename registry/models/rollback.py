"""The way back: undoes the last change of what is in production."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetfeat.errors import DataError, RequestError
from registry.models import aliases
from registry.models.digests import ReadFiles, agreed_digest, verified_digest
from registry.models.ledger import standing
from registry.models.lock import locked
from registry.models.mlflow_client import connect, translated
from registry.models.names import check_model_name
from registry.models.stages import Outcome, check_reason
from registry.models.transition import carry_out, content_of, situation
from registry.models.version import Version
from registry.models.versions import check_known

if TYPE_CHECKING:
    from mlflow import MlflowClient


def rollback(
    name: str,
    *,
    read_files: ReadFiles,
    reason: str = "",
    client: "MlflowClient | None" = None,
) -> Outcome:
    """Puts back into production what was there before; repeated, it goes further back.

    No gate is asked but that of the artifacts: the version was in production, and its files must
    be those of then. What is displaced is archived.

    Args:
        name: Name of the registered model.
        read_files: Callable that reads the version's files; `registry.files.moves.rollback` hands
            it in.
        reason: Text kept in the ledger, default empty.
        client: Client of the registry; default None for the one that MLflow's variables name.

    Raises:
        RequestError: Nothing was in production before.
        DataError: The files of the version, or the digest of them, were changed since.
    """
    client = client or connect()
    check_reason(reason, force=False)
    with translated(f"roll back {check_model_name(name)}"):
        check_known(client, name)
        intact = _verified_beforehand(client, name, read_files)
        with locked(client, name) as lock:
            now = situation(client, name, lock)
            back = _way_back(client, name, now.tags, now.state.previous)
            target = _target(client, name, back)
            digest = agreed_digest(target, now.tags)
            if intact != (target.version, digest):
                verified_digest(client, target, read_files)
            state = now.state.after(target.version, "production")
            from_ = now.stage_of(target)
            said = content_of(
                *("rollback", target.version, from_, "production", reason),
                replaced=now.state.production,
                manifest=digest,
            )
            following = next(iter(back[1:]), None)
            entry = carry_out(now, said, replace(state, previous=following))
            return Outcome(entry, from_, "production", (), now.state.production)


def _verified_beforehand(
    client: "MlflowClient", name: str, read_files: ReadFiles
) -> tuple[int, str] | None:
    """What is probably gone back to and its digest, its files found intact.

    Before the lock is taken: they may be large.
    """
    shown = aliases.read(client, name)
    back = _way_back(client, name, shown.tags, shown.aliases.previous)
    with contextlib.suppress(DataError):  # said in the lock, if it is this one
        if back:
            version = aliases.version_of(client, name, back[0])
            return version.version, verified_digest(client, version, read_files)
    return None


def _way_back(
    client: "MlflowClient", name: str, tags: Mapping[str, str], before: int | None
) -> list[int]:
    """Versions to go back to that are still there, nearest first."""
    back = [v for v in earlier(standing(name, tags)) if aliases.exists(client, name, v)]
    if not back and before is not None and aliases.exists(client, name, before):
        return [before]  # set before there was a ledger
    return back


def _target(client: "MlflowClient", name: str, back: Sequence[int]) -> Version:
    if not back:
        raise RequestError(
            f"rollback of '{name}'",
            "an earlier version that was in production and is still there",
            f"`hetfeat promote {name} VERSION --to production`",
        )
    return aliases.version_of(client, name, back[0])


def earlier(history: Sequence[dict[str, Any]]) -> list[int]:
    """Versions to go back to, nearest first: each change of production, less those undone."""
    stack: list[int | None] = []
    current = history[0]["replaced"] if history and history[0]["to"] == "production" else None
    for entry in history:
        new = entry["state"]["production"]
        if new == current:
            continue
        if entry["kind"] == "rollback":
            while stack and stack.pop() != new:
                pass
        else:
            stack.append(current)
        current = new
    stacked = [version for version in reversed(stack) if version is not None]
    return [v for at, v in enumerate(stacked) if v != (stacked[at - 1] if at else current)]
