"""The engine of shared tables, deltalake: where it writes, who may commit, how it fails."""

import contextlib
import os
import secrets
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyarrow.fs import LocalFileSystem, S3FileSystem, SubTreeFileSystem

from hetfeat.dataset.tables.uri import TableUri
from hetfeat.errors import DataError, WorkFailed
from hetfeat.parsing import printable

LOCK = "HETFEAT_TABLE_LOCK"
"""Variable with the URI of a PostgreSQL whose advisory locks guard commits."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "MLFLOW_S3_ENDPOINT_URL")
_SECRET = ("SECRET", "TOKEN", "PASSWORD", "KEY_ID")


def storage_options(uri: TableUri, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the library does not read from the environment itself: the endpoint that MLflow uses.

    Args:
        uri: URI of the table.
        environment: Variables; those of this process by default.
    """
    endpoint = next((environment[name] for name in _ENDPOINTS if environment.get(name)), None)
    if not uri.is_s3 or endpoint is None:
        return {}
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower(),
    }


def file_system(uri: TableUri) -> SubTreeFileSystem:
    """What reads the files of a table: Arrow's own, whose threads need no Python."""
    if not uri.is_s3:
        return SubTreeFileSystem(uri.path, LocalFileSystem())
    endpoint = storage_options(uri).get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return SubTreeFileSystem(uri.path, S3FileSystem(endpoint_override=endpoint, region=region))


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Errors of the library, of Arrow and of the network as one line without credentials.

    Raises:
        WorkFailed: The server or the library refused.
    """
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (OSError, DeltaError, pa.ArrowException) as error:
        raise WorkFailed(
            f"{doing} ({_said(error)})",
            "a server that answers, and a table that can be read",
            "check the URI, the network and AWS_*; the same call goes on",
        ) from error


def _said(error: Exception) -> str:
    """What an error says, on one line and without the values of secret variables."""
    text = " ".join(str(error).replace("↳", "").split())
    for name, value in os.environ.items():
        if value and len(value) > 3 and any(word in name for word in _SECRET):
            text = text.replace(value, "***")
    return printable(text.replace("\x1b[31m", "").replace("\x1b[0m", ""), 300)


@contextlib.contextmanager
def committing(uri: TableUri) -> Iterator[None]:
    """Lets one process at a time commit to a table, where `LOCK` says how.

    The lock ends with the connection, and so with the process, however that ends.

    Raises:
        WorkFailed: The database does not answer.
    """
    if (database := os.environ.get(LOCK)) is None:
        yield
        return
    import psycopg2

    try:
        connection = psycopg2.connect(database.replace("postgresql+psycopg2:", "postgresql:", 1))
    except psycopg2.Error as error:
        raise WorkFailed(
            f"the database of {LOCK}, which refuses ({type(error).__name__})",
            "a PostgreSQL that can be reached",
            f"check {LOCK}",
        ) from None  # the message may quote the URI
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", (zlib.crc32(uri.encode()),))
        yield


def check_conditional_writes(uri: TableUri, writers: int = 20, rounds: int = 5) -> None:
    """Refuses storage that admits two writers of one key at once: commits would be lost.

    Nothing is refused where `LOCK` guards commits, or where the table is a folder.

    Args:
        uri: URI of a table.
        writers: Number of writers of a key; 20 by default.
        rounds: Number of keys; 5 by default: the storage may do well by chance.

    Raises:
        DataError: Two were admitted.
    """
    if not uri.is_s3 or LOCK in os.environ:
        return
    for _ in range(rounds):
        if (admitted := admitted_writers(uri, writers)) != 1:
            raise DataError(
                f"storage of '{uri}' that admits {admitted} of {writers} writers of one key",
                "exactly one",
                f"set {LOCK} to a PostgreSQL that all writers reach",
            )


def admitted_writers(uri: TableUri, writers: int) -> int:
    """How many of so many concurrent conditional writes to a new key of a bucket succeed."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, key = uri.removeprefix("s3://").split("/", 1)
    key = f"{key}/_probe/{secrets.token_hex(16)}"
    settings = Config(max_pool_connections=writers, retries={"max_attempts": 1})
    endpoint = storage_options(uri).get("AWS_ENDPOINT_URL")
    client: Any = boto3.client("s3", endpoint_url=endpoint, config=settings)

    def write(number: int) -> bool:
        try:
            client.put_object(Bucket=bucket, Key=key, Body=b"%d" % number, IfNoneMatch="*")
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status not in (409, 412):
                raise
            return False
        return True

    try:
        with ThreadPoolExecutor(writers) as pool:
            admitted = sum(pool.map(write, range(writers)))
        client.delete_object(Bucket=bucket, Key=key)
    except (BotoCoreError, ClientError) as error:
        raise WorkFailed(
            f"write to '{uri}' ({_said(error)})", "a bucket that exists", "check the URI and AWS_*"
        ) from error
    return admitted
