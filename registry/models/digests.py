"""The digest of a version's files: what its tag says, what its history has, and what is right."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hetfeat.errors import DataError
from hetfeat.parsing import Digest, parse
from registry.models import ledger
from registry.models.version import MANIFEST_TAG, Version

if TYPE_CHECKING:
    from mlflow import MlflowClient

ReadFiles = Callable[["MlflowClient", Version, str], object]
"""Callable that reads the files of a version and compares them with the digest of its manifest;
raises DataError where a file is not what was registered."""

_ACTION = (
    "do not use it; `hetfeat doctor` explains what was changed, and `--repair true` puts back "
    "what the history has"
)


def agreed_digest(version: Version, tags: Mapping[str, str], mended: bool = False) -> str:
    """SHA-256 of a version's manifest, on which its tag and the ledger agree.

    Args:
        version: Version whose digest is asked for.
        tags: Tags of its registered model.
        mended: Whether to read the ledger as if mended, as in `registry.models.ledger.standing`;
            default False.

    Returns:
        The digest; empty where neither has one.

    Raises:
        DataError: They do not agree, or the tag holds something else.
    """
    entries = ledger.standing(version.name, tags, mended)
    recorded = ledger.manifests(entries).get(version.version, "")
    text = version.tags.get(MANIFEST_TAG, "")
    if recorded and recorded != text:
        raise DataError(
            f"{version.uri}, whose digest was changed after it was promoted",
            "the digest in its history",
            _ACTION,
        )
    if not text:
        return ""
    return parse(text, Digest, what=f"the digest of {version.uri}", action=_ACTION)


def known_digest(version: Version, tags: Mapping[str, str]) -> str:
    """What the ledger has, else the tag; empty where that is no digest.

    For what is put away: that must be possible whatever was done to it.
    """
    return recorded_digest(version, ledger.manifests(ledger.standing(version.name, tags)))


def recorded_digest(version: Version, recorded: Mapping[int, str]) -> str:
    """`known_digest` for many versions of a model: `recorded` is the ledger's, read once."""
    try:
        return recorded.get(version.version) or agreed_digest(version, {})
    except DataError:
        return ""


def registered_digest(client: "MlflowClient", version: Version) -> str:
    """SHA-256 of a version's manifest, on which its tag and the ledger agree.

    Raises:
        DataError: They do not, or there is none.
    """
    digest = agreed_digest(version, client.get_registered_model(version.name).tags)
    if not digest:
        raise DataError(
            f"{version.uri} without a digest of its files",
            "a version registered by hetfeat",
            "register it anew",
        )
    return digest


def verified_digest(
    client: "MlflowClient", version: Version, read_files: ReadFiles, mended: bool = False
) -> str:
    """The digest that tag and ledger agree on, of files that were read and found as registered.

    Args:
        client: Client of the registry.
        version: Version whose digest is asked for.
        read_files: Callable that reads the files.
        mended: Whether to read the ledger as if mended, as in `registry.models.ledger.standing`;
            default False.

    Returns:
        The digest; empty for a version that has none, which nobody can pull.

    Raises:
        DataError: They do not agree, or a file is not what was registered.
    """
    tags = client.get_registered_model(version.name).tags
    digest = agreed_digest(version, tags, mended)
    if digest:
        read_files(client, version, digest)
    return digest
