"""A verified local copy of a version; no code of an artifact is ever run here."""

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hetfeat.errors import DataError, WorkFailed
from hetfeat.parsing import Digest, Schema
from registry.files import cache
from registry.files.artifacts import Artifacts
from registry.files.atomic_folder import refuse_in_use, whole
from registry.files.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    RESTORE,
    check_manifest,
    parse_manifest,
)
from registry.models.digests import registered_digest
from registry.models.mlflow_client import connect, translated
from registry.models.recorded_alias import recorded_version
from registry.models.signatures import check_signature
from registry.models.version import Version
from registry.models.versions import alias_of, resolve

if TYPE_CHECKING:
    from mlflow import MlflowClient


@dataclass(frozen=True)
class Pulled:
    """A version on this machine.

    Attributes:
        version: The version, resolved once.
        folder: Folder with the version's files; the cache's own copy unless another was asked for.
        manifest_sha256: SHA-256 of the manifest that the files were verified against.
        source: `registry`, `cache` (nothing had to be fetched), or `offline` (the registry did not
            answer, and the name means what it last meant).
    """

    version: Version
    folder: Path
    manifest_sha256: str
    source: str


def pull(
    name_or_uri: str,
    stage: str | None = None,
    *,
    device: str | None = None,
    out: Path | None = None,
    unrecorded: bool = False,
    settle_s: float = 0.5,
    client: "MlflowClient | None" = None,
) -> Pulled:
    """Resolves a version once and brings its files here, each checked against its digest.

    Args:
        name_or_uri: Name or URI of the version, as in `registry.models.versions.resolve`.
        stage: Stage of a plain name, as in `registry.models.versions.resolve`; default None.
        device: Device whose version is preferred, as in `registry.models.versions.resolve`; default
            None.
        out: Folder to copy the files to, new or empty; default None for no copy beside the cache's.
        unrecorded: Whether to follow an alias to where no promotion put it, too; default False.
        settle_s: Seconds to wait before an alias is looked at again that is where no promotion put
            it, as in `registry.models.recorded_alias.recorded_version`; default 0.5.
        client: Client of the registry; default None for the one that MLflow's variables name.

    Raises:
        DataError: A file is not what was registered, and nothing is kept; an alias is where no
            promotion put it; or the version is not signed by the key that is configured.
        RequestError: There is no such version, or `out` is in use.
        WorkFailed: The registry does not answer and nothing is known from before.
    """
    if out is not None:
        refuse_in_use(out)
    version, digest, offline = _resolve_or_recall(
        name_or_uri, stage, device, client, unrecorded, settle_s
    )
    check_signature(version, digest)
    folder, source = cache.find(digest), "offline" if offline else "cache"
    if folder is None:
        if offline:
            raise WorkFailed(
                f"{version.uri}, whose copy is gone, while the registry does not answer",
                "a registry that answers",
                "repeat the command when it does",
            )
        folder, source = fetch(client or connect(), version, digest), "registry"
    if out is not None:
        folder = _copy(folder, out, digest)
    return Pulled(version, folder, digest, source)


def fetch(client: "MlflowClient", version: Version, digest: str) -> Path:
    """Brings the files of a version into the cache, whatever is there already.

    Args:
        client: Client of the registry.
        version: Version to fetch.
        digest: SHA-256 of the version's manifest.

    Returns:
        The copy's folder in the cache.

    Raises:
        DataError: A file is not what was registered; nothing is kept.
    """
    with translated(f"fetch {version.uri}"), cache.draft() as draft:
        artifacts = Artifacts.of(client, version)
        sizes = artifacts.sizes()
        if sizes.pop(MANIFEST) > MAX_MANIFEST_BYTES:
            raise DataError(
                f"{MANIFEST} of {version.uri} over {MAX_MANIFEST_BYTES} bytes", "less", RESTORE
            )
        data = artifacts.fetch(MANIFEST, draft).read_bytes()
        listed = {e.path: e.bytes for e in parse_manifest(data, version.uri, digest)}
        # What is not as listed is never fetched; what is fetched is read again below.
        if wrong := sorted(path for path, size in sizes.items() if listed.get(path) != size):
            raise DataError(
                f"'{wrong[0]}' of {version.uri}, added or of another size",
                "the files that were registered",
                RESTORE,
            )
        for path in sizes:
            artifacts.fetch(path, draft)
        _remove_empty_folders(draft)
        check_manifest(draft, digest)
        return cache.keep(draft, digest)


class _Answer(Schema):
    """What a name meant, as it is kept for when the registry does not answer."""

    version: Version
    manifest_sha256: Digest


def _resolve_or_recall(
    name_or_uri: str,
    stage: str | None,
    device: str | None,
    client: "MlflowClient | None",
    unrecorded: bool,
    settle_s: float,
) -> tuple[Version, str, bool]:
    """The version, the digest of its manifest, and whether the registry did not answer."""
    import mlflow

    where = client.tracking_uri if client else mlflow.get_tracking_uri()
    question = (where, name_or_uri, stage or "", device or "", *(["unrecorded"] * unrecorded))
    try:
        known = client or connect()
        alias = alias_of(name_or_uri, stage)

        def look_up() -> Version:
            return resolve(name_or_uri, stage, device=device, client=known)

        with translated(f"look up {name_or_uri}"):
            version = recorded_version(known, look_up, alias, unrecorded, settle_s)
            digest = registered_digest(known, version)
    except WorkFailed:
        kept = cache.recall(question, _Answer)
        if kept is None:
            raise
        return kept.version, kept.manifest_sha256, True
    cache.remember(question, {"version": asdict(version), "manifest_sha256": digest})
    return version, digest, False


def _copy(folder: Path, out: Path, digest: str) -> Path:
    with whole(out) as draft:
        shutil.copytree(folder, draft, dirs_exist_ok=True)
        check_manifest(draft, digest)
    return out


def _remove_empty_folders(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
