"""Fetches a version by presigned URLs, on a device that has neither MLflow nor boto3."""

import contextlib
import io
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

from hetfeat.errors import DataError, WorkFailed
from hetfeat.parsing import printable
from registry.files.atomic_folder import refuse_in_use, whole
from registry.files.manifest import MANIFEST, MAX_MANIFEST_BYTES, check_manifest, parse_manifest
from registry.models.signatures import check_text

FORMAT = 1
MAX_REQUEST_BYTES = 32 << 20
"""Most bytes of a request: part of the format. It has a URL for each file of a manifest."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ASK_ANEW = "ask for a new one, made by `hetfeat share`"


@dataclass(frozen=True)
class Request:
    """What to fetch, and how to know it.

    Attributes:
        model: Name of what the folder holds, for people.
        manifest_sha256: SHA-256 of the manifest, which has the digest of every other file.
        urls: URLs by path in the folder.
        signature: Signature of the version, if it is signed; default None.
    """

    model: str
    manifest_sha256: str
    urls: Mapping[str, str]
    signature: str | None = None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A presigned URL is the address itself; another one was signed by nobody."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def read_request(path: Path) -> Request:
    """A request from a file of `hetfeat share`.

    Raises:
        DataError: The file is not one.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_REQUEST_BYTES + 1)
        content = json.loads(data) if len(data) <= MAX_REQUEST_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        raise _no_request(f"'{path}'") from error
    return parse_request(content, f"'{path}'")


def parse_request(content: Any, where: str) -> Request:
    """A request from what `registry.files.s3_upload.presign` returned.

    Args:
        content: Content of the request, decoded from JSON.
        where: Name of its origin, for an error.

    Raises:
        DataError: It is something else.
    """
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise _no_request(where)
    model, digest, urls = (content.get(key) for key in ("model", "manifest_sha256", "urls"))
    sound = isinstance(model, str) and isinstance(digest, str) and _DIGEST.fullmatch(digest)
    if not sound or not isinstance(urls, dict) or MANIFEST not in urls:
        raise _no_request(where)
    # urllib would open file:// as well.
    if not all(isinstance(url, str) and re.match("https?://", url) for url in urls.values()):
        raise DataError(f"{where} with another address", "http:// or https:// only", _ASK_ANEW)
    signature = content.get("signature")
    return Request(str(model), str(digest), urls, signature if isinstance(signature, str) else None)


def fetch_presigned(request: Request, out: Path, timeout_s: float = 60.0) -> None:
    """Fetches every file of a request, each checked against the manifest.

    Args:
        request: Request from `read_request`.
        out: Folder to write, new or empty.
        timeout_s: Seconds for which the storage may send nothing, default 60.

    Raises:
        DataError: A file is not what was shared, and nothing is kept; or the version is not
            signed by the key that is configured.
        RequestError: `out` is in use.
        WorkFailed: The request expired, or the storage does not answer; nothing is kept.
    """
    refuse_in_use(out)
    name = request.model.removeprefix("models:/").rpartition("/")[0]
    check_text(name, printable(request.model), request.manifest_sha256, request.signature)
    with _translated(request.model), whole(out) as draft:
        manifest = io.BytesIO()
        _copy(request, MANIFEST, MAX_MANIFEST_BYTES, manifest, timeout_s)
        entries = parse_manifest(manifest.getvalue(), request.model, request.manifest_sha256)
        if request.urls.keys() != {MANIFEST, *(entry.path for entry in entries)}:
            raise DataError(
                f"addresses of other files than {request.model} has",
                f"one for each file of its {MANIFEST}",
                _ASK_ANEW,
            )
        (draft / MANIFEST).write_bytes(manifest.getvalue())
        for entry in entries:
            (draft / entry.path).parent.mkdir(parents=True, exist_ok=True)
            with (draft / entry.path).open("xb") as file:
                _copy(request, entry.path, entry.bytes, file, timeout_s)
        check_manifest(draft, request.manifest_sha256)


def _copy(request: Request, path: str, max_bytes: int, into: IO[bytes], timeout_s: float) -> None:
    with _OPENER.open(request.urls[path], timeout=timeout_s) as answer:
        while chunk := answer.read(1 << 20):
            max_bytes -= len(chunk)
            if max_bytes < 0:
                raise DataError(
                    f"'{path}' of {request.model}, larger than listed",
                    "the bytes that were shared",
                    _ASK_ANEW,
                )
            into.write(chunk)


@contextlib.contextmanager
def _translated(model: str) -> Iterator[None]:
    """One line for each failure, without the URL: who has it may fetch, too."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise WorkFailed(
            f"{model} refused by the storage with status {error.code}",
            "a request that has not expired, and files still there",
            _ASK_ANEW,
        ) from None
    except (OSError, HTTPException, ValueError) as error:
        said = f": {error}" if isinstance(error, OSError) else ""
        raise WorkFailed(
            f"no way to fetch {model} ({type(error).__name__}{said})",
            "storage that answers, and room on the disk",
            "check both, then repeat the command",
        ) from None


def _no_request(where: str) -> DataError:
    return DataError(where, "a file written by `hetfeat share`", _ASK_ANEW)
