"""Signs registered versions with an Ed25519 key, if one is configured, and checks what is pulled.

A signature binds the model's name and the digest of its manifest, and by that every file. It does
not bind the version's number, its stage or its figures: an older version that the same key signed
for the same name is as good as the newest.
"""

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hetfeat.deploy.runtime import PUBLIC_KEY
from hetfeat.deploy.signing import SIGNING_KEY, signing_key
from hetfeat.errors import DataError, RequestError
from registry.version import SIGNATURE_TAG, Version

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def signature_tags(name: str, manifest_sha256: str) -> dict[str, str]:
    """The tags that sign a version to be registered; none without a signing key.

    Raises:
        RequestError: The key cannot be used.
    """
    key = signing_key() if os.environ.get(SIGNING_KEY) else None
    if key is None:
        return {}
    signature = key.sign(_statement(name, manifest_sha256))
    return {SIGNATURE_TAG: base64.b64encode(signature).decode()}


def check_signature(version: Version, manifest_sha256: str) -> None:
    """Refuses a version that the key of `HETFEAT_PUBLIC_KEY`, if there is one, has not signed.

    Args:
        version: As it was resolved.
        manifest_sha256: Digest of the manifest that its files are compared with.

    Raises:
        DataError: It is unsigned, or signed by another key, for other files or another name.
        RequestError: The key cannot be used.
    """
    key = _public_key()
    if key is None:
        return
    from cryptography.exceptions import InvalidSignature

    by = f"a signature by the key of {os.environ[PUBLIC_KEY]}"
    text = version.tags.get(SIGNATURE_TAG)
    if not text:
        action = f"register it anew with {SIGNING_KEY} set, or unset {PUBLIC_KEY} to trust it"
        raise DataError(f"{version.uri}, unsigned", by, action)
    try:
        signature = base64.b64decode(text, validate=True)
        key.verify(signature, _statement(version.name, manifest_sha256))
    except (InvalidSignature, ValueError) as error:
        action = "do not use it: it was changed, or signed by someone else or for another name"
        raise DataError(f"{version.uri} with another signature", by, action) from error


def _statement(name: str, manifest_sha256: str) -> bytes:
    """What is signed; a bundle's own signature is of its `bundle.json`, and never looks so."""
    return f"hetfeat version\n{name}\n{manifest_sha256}\n".encode()


def _public_key() -> "Ed25519PublicKey | None":
    path = os.environ.get(PUBLIC_KEY)
    if not path:
        return None
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise _unusable(path, str(error)) from error
    if not isinstance(key, Ed25519PublicKey):
        raise _unusable(path, "of another kind")
    return key


def _unusable(path: str, why: str) -> RequestError:
    return RequestError(
        f"{PUBLIC_KEY}={path}, which cannot be used ({why})",
        "an Ed25519 public key in PEM",
        f"correct it, or unset {PUBLIC_KEY} to load without checking signatures",
    )
