"""Puts right what `registry.doctor` found, where that is safe."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from registry import ledger, mirror
from registry.client import patiently, translated
from registry.doctor import RUNNING, Finding, diagnose, observed, unfinished_runs
from registry.ledger import Head
from registry.lock import discard, locked
from registry.mirror import State
from registry.moves import carry_out, content_of, situation
from registry.versions import MANIFEST_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

_ROUNDS = 4
"""One repair uncovers the next: an unfinished move may hide an edit in the UI."""


def repair(
    client: "MlflowClient", findings: list[Finding], every_version: bool = False
) -> list[Finding]:
    """Repairs what is safe to repair.

    Args:
        client: Of the registry.
        findings: From `diagnose`.
        every_version: As it was given to `diagnose`.

    Returns:
        What is left.
    """
    left = findings
    for _ in range(_ROUNDS):
        if not any(finding.safe for finding in left):
            break
        for finding in left:
            if finding.safe:
                with translated(f"repair {finding.model}"):
                    _REPAIRS[finding.code](client, finding)
        models = sorted({finding.model for finding in left if finding.code != RUNNING})
        runs = [*unfinished_runs(client)] if any(f.code == RUNNING for f in left) else []
        left = [*runs, *diagnose(client, models, every_version)]
    return left


def _running(client: "MlflowClient", finding: Finding) -> None:
    client.set_terminated(finding.model.removeprefix("run "), "KILLED")


def _unfinished(client: "MlflowClient", finding: Finding) -> None:
    with locked(client, finding.model) as lock:
        situation(client, finding.model, lock, mending=True)


def _ledger(client: "MlflowClient", finding: Finding) -> None:
    name = finding.model
    with locked(client, name) as lock:
        now = situation(client, name, lock, mending=True)
        seen = [version.tags.get(ledger.HEAD) for version in mirror.versions_of(client, name)]
        heads = [Head.parse(text).count for text in (now.tags.get(ledger.HEAD), *seen)]
        last = max([*ledger.numbers(now.tags), *heads])
        mends = ledger.rest_digest(now.tags, last + 1)
        carry_out(now, _said(now.state, finding, mends=mends), now.state, Head(last, ""))


def _edited(client: "MlflowClient", finding: Finding) -> None:
    with locked(client, finding.model) as lock:
        now = situation(client, finding.model, lock)
        carry_out(now, _said(now.state, finding), now.state)


def _unrecorded(client: "MlflowClient", finding: Finding) -> None:
    with locked(client, finding.model) as lock:
        now = situation(client, finding.model, lock)
        state = observed(mirror.read(client, finding.model))
        carry_out(now, _said(state, finding), state)


def _digest(client: "MlflowClient", finding: Finding) -> None:
    with locked(client, finding.model) as lock:
        now = situation(client, finding.model, lock)
        for number, digest in ledger.manifests(ledger.standing(finding.model, now.tags)).items():
            if mirror.exists(client, finding.model, number):
                mirror.set_version_tag(client, finding.model, number, MANIFEST_TAG, digest)


def _lock(client: "MlflowClient", finding: Finding) -> None:
    patiently(lambda: discard(client, finding.model))


def _said(state: State, finding: Finding, **more: Any) -> dict[str, Any]:
    version = state.production or state.staging
    return content_of("repair", version, "", "", finding.what[:500], **more)


_REPAIRS: dict[str, Callable[["MlflowClient", Finding], None]] = {
    RUNNING: _running,
    "unfinished": _unfinished,
    "ledger": _ledger,
    "edited": _edited,
    "unrecorded": _unrecorded,
    "digest": _digest,
    "lock": _lock,
}
