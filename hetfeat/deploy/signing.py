"""Signs bundles with an Ed25519 key, if one is configured; `runtime` verifies them."""

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hetfeat.deploy.runtime import PUBLIC_KEY, SIGNATURE
from hetfeat.errors import RequestError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNING_KEY = "HETFEAT_SIGNING_KEY"
"""Variable with the path of a private key in PEM: an option would put it in run parameters."""


def sign(folder: Path, manifest: bytes) -> None:
    """Writes a bundle's signature, which binds its manifest and by that every file.

    Without a key none is written.

    Raises:
        RequestError: As `signing_key`.
    """
    if key := signing_key():
        (folder / SIGNATURE).write_bytes(base64.b64encode(key.sign(manifest)))


def signing_key() -> "Ed25519PrivateKey | None":
    """The configured key, or None.

    Raises:
        RequestError: It cannot be used, or there is none while a public key is configured, by
            which the bundle would be refused.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = os.environ.get(SIGNING_KEY)
    if not path:
        if os.environ.get(PUBLIC_KEY):
            raise RequestError(
                f"{PUBLIC_KEY} without {SIGNING_KEY}",
                "a key to sign with, or else the new bundle would be refused",
                f"set {SIGNING_KEY}, or unset {PUBLIC_KEY}",
            )
        return None
    try:
        key = load_pem_private_key(Path(path).read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise _unusable(path, str(error)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable(path, "of another kind")
    return key


def _unusable(path: str, why: str) -> RequestError:
    return RequestError(
        f"{SIGNING_KEY}={path}, which cannot be used ({why})",
        "an Ed25519 private key in PEM, without a password",
        f"make one with `openssl genpkey -algorithm ed25519 -out {path}`",
    )
