"""Folders in S3 for devices without MLflow: uploaded with checksums, lent by presigned URLs."""

import base64
import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hetfeat.errors import DataError, WorkFailed
from registry.files.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    RESTORE,
    FileEntry,
    check_manifest,
    parse_manifest,
)
from registry.files.presigned_fetch import FORMAT
from registry.models.mlflow_client import translated

PART_BYTES = 8 << 20
"""Bytes of a part; a file of this size or more is uploaded in parts of it. S3 takes parts from
5 MiB, 10,000 a file; the checksum of a file depends on it."""


def connect() -> Any:
    """A client where MLflow's and boto3's own variables say."""
    import boto3
    from botocore.config import Config

    with translated("connect to S3"):
        return boto3.client(
            "s3",
            endpoint_url=os.environ.get("MLFLOW_S3_ENDPOINT_URL"),
            # boto3 would presign with version 2 in some regions.
            config=Config(signature_version="s3v4"),
        )


def upload_folder(folder: Path, bucket: str, prefix: str, client: Any) -> str:
    """Uploads a folder with a manifest, and sees that each object arrived as it was sent.

    Each object carries its SHA-256 in its metadata. The server checks every part against a SHA-256,
    too, unless boto3's AWS_REQUEST_CHECKSUM_CALCULATION is `when_required`.

    Args:
        folder: Folder with a manifest, as `check_manifest` wants it.
        bucket: Name of a bucket that exists.
        prefix: Text before the path of each file.
        client: Client of S3, from `connect`.

    Returns:
        SHA-256 of the manifest.

    Raises:
        DataError: The folder is not as its manifest says, or an object is not as it was sent.
        WorkFailed: The storage refuses or does not answer.
    """
    digest = check_manifest(folder)
    data = (folder / MANIFEST).read_bytes()
    with translated(f"upload '{folder}' to bucket '{bucket}'"):
        for entry in parse_manifest(data, str(folder), digest):
            _upload(folder, entry, bucket, prefix, client)
        # Last: where there is a manifest, everything is.
        _upload(folder, FileEntry(MANIFEST, len(data), digest), bucket, prefix, client)
    return digest


def presign(
    model: str, manifest_sha256: str, bucket: str, prefix: str, expires: int, client: Any
) -> dict[str, Any]:
    """What `registry.files.presigned_fetch.fetch_presigned` needs to fetch an uploaded folder.

    Args:
        model: Name of what the folder holds, for people.
        manifest_sha256: SHA-256 of the manifest, from `upload_folder`.
        bucket: Name of the bucket, as in `upload_folder`.
        prefix: Text before the path of each file, as in `upload_folder`.
        expires: Seconds for which the URLs hold.
        client: Client of S3, from `connect`.

    Raises:
        DataError: The manifest there is another one.
        WorkFailed: The storage refuses or does not answer.
    """
    until = datetime.now(UTC) + timedelta(seconds=expires)
    with translated(f"presign {model} in bucket '{bucket}'"):
        body = client.get_object(Bucket=bucket, Key=_key(prefix, MANIFEST))["Body"]
        entries = parse_manifest(body.read(MAX_MANIFEST_BYTES), model, manifest_sha256)
        urls = {
            path: client.generate_presigned_url(
                "get_object", {"Bucket": bucket, "Key": _key(prefix, path)}, ExpiresIn=expires
            )
            for path in (MANIFEST, *(entry.path for entry in entries))
        }
    return {
        "format": FORMAT,
        "model": model,
        "manifest_sha256": manifest_sha256,
        "expires_at": until.isoformat(timespec="seconds"),
        "urls": urls,
    }


def _upload(folder: Path, entry: FileEntry, bucket: str, prefix: str, client: Any) -> None:
    from boto3.exceptions import S3UploadFailedError
    from boto3.s3.transfer import TransferConfig

    path, key = folder / entry.path, _key(prefix, entry.path)
    settings: dict[str, Any] = {"Metadata": {"sha256": entry.sha256}}
    if client.meta.config.request_checksum_calculation != "when_required":
        settings["ChecksumAlgorithm"] = "SHA256"
    transfer = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES)
    try:
        client.upload_file(str(path), bucket, key, ExtraArgs=settings, Config=transfer)
    except S3UploadFailedError as error:
        if "(NotImplemented)" not in str(error):
            raise
        raise WorkFailed(
            f"bucket '{bucket}', whose server knows no checksums of parts",
            "a server that does, or none asked for",
            "set AWS_REQUEST_CHECKSUM_CALCULATION=when_required",
        ) from error
    if not _arrived(path, entry, bucket, key, client):
        raise DataError(
            f"'{entry.path}' changed on its way to bucket '{bucket}'",
            f"SHA-256 {entry.sha256[:16]}...",
            "repeat the command",
        )


def _arrived(path: Path, entry: FileEntry, bucket: str, key: str, client: Any) -> bool:
    """By the server's own checksum where it gives the one expected, else by reading it back."""
    head = client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    if head["ContentLength"] != entry.bytes:
        return False
    # Behind a `-` most servers say how many parts there were.
    if head.get("ChecksumSHA256", "").partition("-")[0] == _checksum(path, entry):
        return True
    whole = hashlib.sha256()
    body = client.get_object(Bucket=bucket, Key=key)["Body"]
    for chunk in body.iter_chunks(1 << 20):
        whole.update(chunk)
    return whole.hexdigest() == entry.sha256


def _checksum(path: Path, entry: FileEntry) -> str:
    """As S3 keeps it: of the file, or of the checksums of its parts."""
    whole, parts = hashlib.sha256(), []
    for part in _parts(path):
        whole.update(part)
        parts.append(hashlib.sha256(part).digest())
    if whole.hexdigest() != entry.sha256:
        raise DataError(f"'{path}', changed meanwhile", "the bytes that were listed", RESTORE)
    kept = hashlib.sha256(b"".join(parts)) if entry.bytes >= PART_BYTES else whole
    return base64.b64encode(kept.digest()).decode()


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(PART_BYTES):
            yield part


def _key(prefix: str, path: str) -> str:
    return f"{prefix.strip('/')}/{path}" if prefix.strip("/") else path
