"""The way back: undoes the last change of what is in production."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetfeat.errors import RequestError
from registry import mirror
from registry.client import connect, translated
from registry.ledger import standing
from registry.lock import locked
from registry.moves import carry_out, content_of, situation
from registry.names import check_model_name
from registry.stages import Outcome, check_reason
from registry.versions import MANIFEST_TAG, check_known

if TYPE_CHECKING:
    from mlflow import MlflowClient


def rollback(name: str, *, reason: str = "", client: "MlflowClient | None" = None) -> Outcome:
    """Puts back into production what was there before; repeated, it goes further back.

    No gate is asked: the version was in production, and the way back must not be barred. What is
    displaced is archived.

    Args:
        name: Of the registered model.
        reason: Kept in the ledger.
        client: Of the registry; by default where MLflow's variables say.

    Raises:
        RequestError: Nothing was in production before.
    """
    client = client or connect()
    check_reason(reason, force=False)
    with translated(f"roll back {check_model_name(name)}"):
        check_known(client, name)
        with locked(client, name) as lock:
            now = situation(client, name, lock)
            back = [v for v in earlier(standing(name, now.tags)) if mirror.exists(client, name, v)]
            before = now.state.previous
            if not back and before is not None and mirror.exists(client, name, before):
                back = [before]  # set before there was a ledger
            if not back:
                raise RequestError(
                    f"rollback of '{name}'",
                    "an earlier version that was in production and is still there",
                    f"`hetfeat promote {name} VERSION --to production`",
                )
            target = mirror.version_of(client, name, back[0])
            state = now.state.after(target.version, "production")
            from_ = now.stage_of(target)
            said = content_of(
                *("rollback", target.version, from_, "production", reason),
                replaced=now.state.production,
                manifest=target.tags.get(MANIFEST_TAG, ""),
            )
            following = next(iter(back[1:]), None)
            entry = carry_out(now, said, replace(state, previous=following))
            return Outcome(entry, from_, "production", (), now.state.production)


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
    found = [version for version in reversed(stack) if version is not None]
    return [v for at, v in enumerate(found) if v != (found[at - 1] if at else current)]
