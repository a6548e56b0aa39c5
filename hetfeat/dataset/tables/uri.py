"""Where records are: a folder of this machine, or a table that many share."""

import os
import re
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hetfeat.errors import DataError, RequestError
from hetfeat.parsing import Count, decode, printable

_S3 = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_=.@+-]+)+"
MAX_CHARACTERS = 1024
LOG = "_delta_log"


class TableUri(str):
    """The URI of a Delta Lake table, `s3://BUCKET/KEY` or `file:///FOLDER`; see `as_place`."""

    __slots__ = ()

    @property
    def is_s3(self) -> bool:
        """Whether the table is in a bucket of S3."""
        return self.startswith("s3://")

    @property
    def path(self) -> str:
        """The folder, or bucket and key."""
        parts = urlsplit(self)
        return unquote(parts.path) if not self.is_s3 else parts.netloc + parts.path


Place = Path | TableUri
"""A local record store, or a table."""


def as_place(text: str | os.PathLike[str]) -> Place:
    """What `--records` and `--out` name: a URI, a folder that is a table, or a local store.

    Raises:
        DataError: It is a URI of something else.
    """
    given = os.fspath(text)
    if "://" in given:
        return _as_uri(given.rstrip("/"))
    path = Path(given)
    return TableUri(path.resolve().as_uri()) if (path / LOG).is_dir() else path


def _as_uri(given: str) -> TableUri:
    action = "correct the URI, or name a folder"
    if given.startswith("file:///"):
        path = Path(os.path.normpath(TableUri(given).path))
        return TableUri(path.as_uri())
    if (
        not re.fullmatch(_S3, given)
        or len(given) > MAX_CHARACTERS
        or {".", ".."} & {*given.split("/")}
    ):
        raise DataError(
            f"'{printable(given)}' as a table of records",
            "s3://BUCKET/KEY or file:///FOLDER",
            action,
        )
    return TableUri(given)


AsOf = int | datetime
"""A version of a table, or the last one before a moment."""


def as_of(text: str) -> AsOf:
    """What `--as-of` names.

    Raises:
        RequestError: It is neither a version nor a time of ISO 8601.
    """
    if re.fullmatch(r"\d+", text):
        version: int = decode(text, Count, what="--as-of", action="say a version or a time")
        return version
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(
            f"--as-of '{printable(text)}'",
            "a version, or a time as 2026-11-28T12:00+00:00",
            "see `hetfeat records stats` for the version",
        ) from None
    return moment.astimezone()  # one without an offset is of this machine's zone
