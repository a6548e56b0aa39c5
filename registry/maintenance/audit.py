"""Finds what a crash, the UI or a vandal left inconsistent in the registry."""

import functools
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.deploy.runtime import MANIFEST as BUNDLE
from hetfeat.errors import DataError
from hetfeat.parsing import Json, Schema, decode
from registry.files.artifacts import Artifacts
from registry.files.manifest import MANIFEST
from registry.models import aliases, ledger, process
from registry.models.aliases import Shown, State
from registry.models.lock import LOCK, listed, locks_of
from registry.models.mlflow_client import (
    MISSING,
    RUNS_A_PAGE,
    error_code,
    is_foreign,
    is_refused,
    pages,
    translated,
)
from registry.models.version import LIVE_STAGES, MANIFEST_TAG, Version
from registry.models.versions import model_names
from registry.tracking.command_run import PROCESS_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

RUNNING = "running"
"""Code of a finding about a run, not a registered model."""
_CHOOSE = "look at both, then --repair true --to ledger, or --to aliases, makes one of them so"


class _Input(Schema):
    dtype: str


class _Bundle(Schema):
    """Of a bundle's manifest, what tells how it was verified."""

    inputs: list[_Input]
    verified_on: Json = None


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

    Codes of registered models are `unfinished`, `ledger`, `edited`, `unrecorded`, `digest`, `run`,
    `artifacts`, `verified`, `lock` and `running`.

    Attributes:
        code: Code of the problem: of a registered model as listed above; of a machine, the name of
            a check in `registry.maintenance.environment`, or `device`.
        model: Name of the registered model, or of what else it was found in.
        what: Description of what is wrong.
        action: Action of `--repair true`, or advice where that is not safe: `--to` chooses where
            history and aliases disagree.
        safe: Whether `--repair true` does it, default True.
    """

    code: str
    model: str
    what: str
    action: str
    safe: bool = True


def diagnose(
    client: "MlflowClient",
    names: list[str] | None = None,
    every_version: bool = False,
    settle_s: float = 0.5,
) -> list[Finding]:
    """Everything that is wrong with registered models.

    Args:
        client: Client of the registry.
        names: Names of registered models; default None for all.
        every_version: Whether to look for the runs and artifacts of all versions, not only of those
            in a stage or to roll back to; default False.
        settle_s: Seconds to wait before a second look at what seems wrong, default 0.5: promotions
            may have been under way between two of our reads.
    """
    with translated("examine the registry"):
        if names is None:
            yet = {"": list(unfinished_runs(client))}
            locks = listed(client)
            yet |= {
                name: list(examine(client, name, every_version, locks))
                for name in model_names(client)
            }
        else:
            yet = {name: list(examine(client, name, every_version)) for name in names}
        suspects = {name: findings for name, findings in yet.items() if name and findings}
        if suspects:
            time.sleep(settle_s)  # one wait for all
        for name, findings in suspects.items():
            again = set(examine(client, name, every_version))
            yet[name] = [finding for finding in findings if finding in again]
    return [finding for findings in yet.values() for finding in findings]


def examine(
    client: "MlflowClient",
    name: str,
    every_version: bool = False,
    locks: Sequence[Any] | None = None,
    old_lock_s: float = 600.0,
) -> Iterator[Finding]:
    """What is wrong with one registered model at this moment.

    Args:
        client: Client of the registry.
        name: Name of the registered model.
        every_version: Whether to look for the runs and artifacts of all versions, as in `diagnose`;
            default False.
        locks: Models that are locks, as for `locks_of`; default None.
        old_lock_s: Age in seconds at which a lock is nobody's, even if clocks differ by minutes;
            default 600.
    """
    shown = aliases.read(client, name)
    versions = aliases.versions_of(client, name)
    yield from _lock(client, name, locks, old_lock_s)
    if ledger.PENDING in shown.tags:
        yield Finding(
            "unfinished",
            name,
            "a promotion was cut short",
            "finishes it as it was asked for",
        )
        return
    entries = ledger.entries(shown.tags)
    witnesses = [v.tags[ledger.HEAD] for v in versions if ledger.HEAD in v.tags]
    if faults := ledger.faults(name, shown.tags, witnesses):
        yield _changed(name, shown, witnesses, faults[0])
        return
    yield from _state(name, shown, versions, entries)
    yield from _digests(name, versions, ledger.standing(name, shown.tags))
    held = set(asdict(shown.aliases).values())
    for version in versions:
        if every_version or version.version in held:
            yield from _files(client, version)


def unfinished_runs(client: "MlflowClient") -> Iterator[Finding]:
    """Runs of ours that are RUNNING and whose process is gone from this machine.

    Runs of other machines, and those that do not say which process logs into them, are left alone.
    """
    ids = [experiment.experiment_id for experiment in pages(client.search_experiments, RUNS_A_PAGE)]
    if not ids:
        return
    search = functools.partial(client.search_runs, ids, "attributes.status = 'RUNNING'")
    running = list(pages(search, RUNS_A_PAGE))
    here = [run for run in running if process.is_here(run.data.tags.get(PROCESS_TAG))]
    # Several workers log under the run of a study: it goes on as long as one of them does.
    parents = {run.data.tags.get("mlflow.parentRunId") for run in here}
    for run in running:
        if run.info.run_id not in parents and process.is_gone(run.data.tags.get(PROCESS_TAG)):
            what = f"'{run.info.run_name}' is still RUNNING, and its process is gone"
            yield Finding(RUNNING, f"run {run.info.run_id}", what, "ends it as KILLED")


def recorded(name: str, shown: Shown) -> State:
    """What the last entry says that stands; nothing where there is none."""
    entries = ledger.standing(name, shown.tags, mended=True)
    return State.of(entries[-1]["state"]) if entries else State()


def _changed(name: str, shown: Shown, heads: list[str], fault: str) -> Finding:
    """A damaged history, safe to repair where all that is left of it agrees with the aliases."""
    what = f"its history was changed: {fault}"
    last = ledger.last_sound(name, shown.tags, heads)
    if last is not None and State.of(last["state"]) == shown.aliases:
        does = "adds an entry that says so; what was cut cannot be brought back"
        return Finding("ledger", name, what, does)
    return Finding(
        "ledger",
        name,
        f"{what}; it says {_said(recorded(name, shown))}, the aliases {_said(shown.aliases)}",
        _CHOOSE,
        safe=False,
    )


def observed(shown: Shown) -> State:
    """What aliases say, or MLflow's stages where there is no alias."""
    held = asdict(shown.aliases)
    return State.of({**shown.latest, **{k: v for k, v in held.items() if v is not None}})


def _state(
    name: str,
    shown: Shown,
    versions: list[Version],
    entries: list[dict[str, Any]],
) -> Iterator[Finding]:
    there = {version.version for version in versions}
    if not entries:
        if observed(shown) != State():
            yield Finding(
                "unrecorded",
                name,
                f"promoted past the gates, without history: {_said(observed(shown))}",
                _CHOOSE,
                safe=False,
            )
        return
    wanted = State.of(entries[-1]["state"])
    if gone := sorted({n for n in asdict(wanted).values() if n is not None and n not in there}):
        safe = wanted.production not in gone or shown.aliases.production is None
        yield Finding(
            "edited",
            name,
            f"version {', '.join(map(str, gone))} was deleted while in use",
            "writes down that it is gone"
            if safe
            else "promote another version to production, or delete the alias production",
            safe,
        )
        return
    if wrong := aliases.deviations(shown.aliases, versions, wanted):
        yield Finding(
            "edited",
            name,
            f"changed past the gates: {'; '.join(wrong)}",
            f"restores what went through the gates: {_said(wanted)}",
        )


def _digests(
    name: str, versions: list[Version], entries: list[dict[str, Any]]
) -> Iterator[Finding]:
    recorded = ledger.manifests(entries)
    for version in versions:
        digest = recorded.get(version.version)
        if digest and version.tags.get(MANIFEST_TAG) != digest:
            yield Finding(
                "digest",
                name,
                f"the digest of version {version.version} was changed after it was promoted",
                "puts back the one in the history",
            )


def _files(client: "MlflowClient", version: Version) -> Iterator[Finding]:
    action = f"archive it or roll back, then `hetfeat retention {version.name}`"
    yield from _run(client, version, action)
    if not version.tags.get(MANIFEST_TAG):
        return
    try:
        files = Artifacts.of(client, version)
        sizes = files.sizes()
        there = MANIFEST in sizes
        if BUNDLE in sizes and (what := _not_verified(files)):
            todo = "deploy the network anew with --refresh true, and promote that"
            yield Finding(
                "verified", version.name, f"version {version.version} {what}", todo, False
            )
    except DataError:
        there = False
    except Exception as error:  # each kind of storage has its own
        if not is_foreign(error):
            raise
        what = f"the artifacts of version {version.version} cannot be read ({type(error).__name__})"
        todo = "check the storage and the right to read it, then repeat"
        yield Finding("artifacts", version.name, what, todo, safe=False)
        return
    if not there:
        what = f"the artifacts of version {version.version} are gone"
        yield Finding("artifacts", version.name, what, action, safe=False)


def _not_verified(files: Artifacts, max_bytes: int = 2**28) -> str | None:
    """What is wrong with the verification of a bundle, told by its manifest alone.

    Args:
        files: Files of the bundle.
        max_bytes: Most bytes of the manifest that are read, default 256 MiB: it holds the traces of
            all tasks.
    """
    with tempfile.TemporaryDirectory() as work:
        text = files.fetch(BUNDLE, Path(work)).read_bytes()
    try:
        found = decode(
            text,
            _Bundle,
            what="a bundle's manifest",
            action="deploy it anew",
            max_bytes=max_bytes,
        )
    except DataError:
        return f"has a {BUNDLE} that is no manifest of a bundle"
    if found.verified_on is None and any("int" in one.dtype for one in found.inputs):
        return "has integer inputs, and was compared on one draw of them, perhaps zeros"
    return None


def _run(client: "MlflowClient", version: Version, action: str) -> Iterator[Finding]:
    from mlflow.exceptions import MlflowException

    what = f"the run of version {version.version} is gone"
    todo = f"restore the run, or {action}"
    try:
        if not version.run_id or client.get_run(version.run_id).info.lifecycle_stage == "active":
            return
    except MlflowException as error:
        if is_refused(error):
            what = f"the run of version {version.version} cannot be read"
            todo = "check the right to read it, then repeat"
        elif error_code(error) not in MISSING:
            raise
    yield Finding("run", version.name, what, todo, safe=False)


def _lock(
    client: "MlflowClient", name: str, locks: Sequence[Any] | None, old_s: float
) -> Iterator[Finding]:
    for lock in locks_of(client, name, locks):
        gone = process.is_gone(lock.owner)
        age_s = time.time() - lock.created_s
        if gone or age_s > old_s:
            why = "whose process is gone" if gone else f"{age_s / 60:.0f} minutes old"
            yield Finding(
                "lock",
                name,
                f"a lock of {lock.holder}, {why}, is left behind as '{lock.key}'",
                f"deletes it, or spares others the wait of {LOCK.stale_s:.0f} s where only "
                f"{lock.holder} may",
            )


def _said(state: State) -> str:
    held: Mapping[str, int | None] = asdict(state)
    said = [f"{alias} {held[alias]}" for alias in (*LIVE_STAGES, "previous") if held[alias]]
    return ", ".join(said) or "nothing in any stage"
