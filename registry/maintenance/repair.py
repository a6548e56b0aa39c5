"""Puts right what `registry.maintenance.audit` found, where that is safe."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from hetfeat.errors import DataError
from hetfeat.parsing import printable
from registry.files.pull import fetch
from registry.maintenance.audit import (
    RUNNING,
    Finding,
    diagnose,
    observed,
    recorded,
    unfinished_runs,
)
from registry.models import aliases, ledger
from registry.models.aliases import Shown, State
from registry.models.digests import verified_digest
from registry.models.ledger import Head
from registry.models.lock import discard, locked
from registry.models.mlflow_client import patiently, translated
from registry.models.transition import carry_out, content_of, situation
from registry.models.version import MANIFEST_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

LEDGER, ALIASES = "ledger", "aliases"
"""Values that `to` may have."""
_CHOICES = ("ledger", "unrecorded", "edited")
"""Codes of findings where history and aliases disagree."""


def repair(
    client: "MlflowClient",
    findings: list[Finding],
    every_version: bool = False,
    to: str | None = None,
    *,
    rounds: int = 4,
    settle_s: float = 0.5,
) -> list[Finding]:
    """Repairs what is safe to repair.

    Args:
        client: Client of the registry.
        findings: Findings from `diagnose`.
        every_version: Whether all versions are examined, as given to `diagnose`; default False.
        to: `ledger` or `aliases`: what counts where the two disagree; default None repairs only
            what is safe.
        rounds: Most rounds, default 4: one repair uncovers the next, as an unfinished move may hide
            an edit in the UI.
        settle_s: Seconds to wait before a second look, as in `diagnose`; default 0.5.

    Returns:
        Findings that are left.
    """
    left = findings
    refused: dict[Finding, Finding] = {}
    for _ in range(rounds):
        chosen = [f for f in left if f.safe or (to is not None and f.code in _CHOICES)]
        if not (chosen := [finding for finding in chosen if finding not in refused.values()]):
            break
        for finding in chosen:
            try:
                with translated(f"repair {finding.model}"):
                    _REPAIRS[finding.code](client, finding, to)
            except DataError as error:
                refused[finding] = replace(finding, action=f"not done: {error}", safe=False)
        models = sorted({finding.model for finding in left if finding.code != RUNNING})
        runs = [*unfinished_runs(client)] if any(f.code == RUNNING for f in left) else []
        again = [*runs, *diagnose(client, models, every_version, settle_s)]
        left = [refused.get(finding, finding) for finding in again]
    return left


def _running(client: "MlflowClient", finding: Finding, to: str | None) -> None:
    client.set_terminated(finding.model.removeprefix("run "), "KILLED")


def _unfinished(client: "MlflowClient", finding: Finding, to: str | None) -> None:
    with locked(client, finding.model) as lock:
        situation(client, finding.model, lock, mending=True)


def _ledger(client: "MlflowClient", finding: Finding, to: str | None) -> None:
    name = finding.model
    intact: dict[int, str] = {}
    if not finding.safe:
        _verify(client, name, _chosen(client, name, aliases.read(client, name), to), intact)
    with locked(client, name) as lock:
        now = situation(client, name, lock, mending=True)
        shown = aliases.read(client, name)
        versions = aliases.versions_of(client, name)
        heads = [v.tags[ledger.HEAD] for v in versions if ledger.HEAD in v.tags]
        sound = ledger.last_sound(name, now.tags, heads)
        if to is None and (sound is None or State.of(sound["state"]) != shown.aliases):
            return  # changed meanwhile: nothing is safe any more
        state = _chosen(client, name, shown, to)
        _verify(client, name, state, intact)
        counts = [Head.parse(text).count for text in (now.tags.get(ledger.HEAD, ""), *heads)]
        last = max([*ledger.numbers(now.tags), *counts])
        mends = ledger.rest_digest(now.tags, last + 1)
        said = _said(state, finding, intact, mends=mends)
        carry_out(now, said, state, Head(last, ""))


def _edited(client: "MlflowClient", finding: Finding, to: str | None) -> None:
    name = finding.model
    with locked(client, name) as lock:
        now = situation(client, name, lock)
        intact: dict[int, str] = {}
        state = observed(aliases.read(client, name)) if to == ALIASES else now.state
        _verify(client, name, state, intact)
        carry_out(now, _said(state, finding, intact), state)


def _verify(client: "MlflowClient", name: str, state: State, intact: dict[int, str]) -> None:
    """Finds the files of the versions of a state to be what was registered, and their digests.

    Args:
        client: Client of the registry.
        name: Name of the registered model.
        state: State that is to be made so.
        intact: Digests by version; those that are there already are not looked for again.

    Raises:
        DataError: Those of one are not; a version in a stage that cannot be believed is put
            nowhere by a repair.
    """
    for number in sorted(set(filter(None, asdict(state).values())) - set(intact)):
        version = aliases.version_of(client, name, number)
        intact[number] = verified_digest(client, version, fetch, mended=True)


def _chosen(client: "MlflowClient", name: str, shown: Shown, to: str | None) -> State:
    """What is to be so, of a damaged history and the aliases beside it."""
    if to != LEDGER:
        return shown.aliases
    held = asdict(recorded(name, shown))
    there = {alias: n for alias, n in held.items() if aliases.exists(client, name, n)}
    return State.of(there)


def _digest(client: "MlflowClient", finding: Finding, to: str | None) -> None:
    with locked(client, finding.model) as lock:
        now = situation(client, finding.model, lock)
        for number, digest in ledger.manifests(ledger.standing(finding.model, now.tags)).items():
            if aliases.exists(client, finding.model, number):
                aliases.set_version_tag(client, finding.model, number, MANIFEST_TAG, digest)


def _lock(client: "MlflowClient", finding: Finding, to: str | None) -> None:
    patiently(lambda: discard(client, finding.model))


def _said(state: State, finding: Finding, intact: Mapping[int, str], **more: Any) -> dict[str, Any]:
    version = state.production or state.staging
    digests = {str(number): digest for number, digest in intact.items() if digest}
    what = printable(finding.what, 500)
    return content_of("repair", version, "", "", what, manifests=digests, **more)


_REPAIRS: dict[str, Callable[["MlflowClient", Finding, str | None], None]] = {
    RUNNING: _running,
    "unfinished": _unfinished,
    "ledger": _ledger,
    "edited": _edited,
    "unrecorded": _edited,
    "digest": _digest,
    "lock": _lock,
}
