"""Signs registered versions with an Ed25519 key, if one is configured, and checks what is pulled.

A signature binds the model's name and the digest of its manifest, and by that every file. It does
not bind the version's number, its stage or its figures: an older version that the same key signed
for the same name is as good as the newest.
"""

import base64
import os
from typing import TYPE_CHECKING

from hetfeat.deploy.runtime import PUBLIC_KEY, BundleError, public_key
from hetfeat.deploy.signing import SIGNING_KEY, signing_key
from hetfeat.errors import DataError, RequestError
from registry.models.version import SIGNATURE_TAG, Version

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


def check_signing_key() -> None:
    """Finds a configured key to be one, before the work whose outcome it is to sign.

    Raises:
        RequestError: It cannot be used.
    """
    signature_tags("", "")


def check_signature(version: Version, manifest_sha256: str) -> None:
    """`check_text` of a version's own tag; `manifest_sha256` is that of what is compared."""
    check_text(version.name, version.uri, manifest_sha256, version.tags.get(SIGNATURE_TAG))


def check_text(name: str, uri: str, manifest_sha256: str, text: str | None) -> None:
    """Refuses a version that the key of `HETFEAT_PUBLIC_KEY`, if there is one, has not signed.

    Args:
        name: Name of the registered model.
        uri: URI of the version, for the error.
        manifest_sha256: Digest of the manifest that its files are compared with.
        text: Signature of the version, if it has one.

    Raises:
        DataError: It is unsigned, or signed by another key, for other files or another name.
        RequestError: The key cannot be used.
    """
    key = _public_key()
    if key is None:
        return
    from cryptography.exceptions import InvalidSignature

    by = f"a signature by the key of {os.environ[PUBLIC_KEY]}"
    if not text:
        action = f"register it anew with {SIGNING_KEY} set, or unset {PUBLIC_KEY} to trust it"
        raise DataError(f"{uri}, unsigned", by, action)
    try:
        signature = base64.b64decode(text, validate=True)
        key.verify(signature, _statement(name, manifest_sha256))
    except (InvalidSignature, ValueError) as error:
        action = "do not use it: it was changed, or signed by someone else or for another name"
        raise DataError(f"{uri} with another signature", by, action) from error


def _statement(name: str, manifest_sha256: str) -> bytes:
    """What is signed; a bundle's own signature is of its `bundle.json`, and never looks so."""
    return f"hetfeat version\n{name}\n{manifest_sha256}\n".encode()


def _public_key() -> "Ed25519PublicKey | None":
    try:
        key: Ed25519PublicKey | None = public_key()
    except BundleError as error:
        raise RequestError(*error.parts) from error
    return key
