"""Records that a command reads, wherever they are."""

from pathlib import Path

from hetfeat.dataset.tables.uri import AsOf, Place
from hetfeat.errors import RequestError


def local(place: Place | None, as_of: AsOf | None) -> Path | None:
    """The folder of a store, of a table's copy, or None where none is named.

    Raises:
        RequestError: A version is asked for of what has none.
        DataError: There is no such table, or no such version.
        WorkFailed: The storage does not answer.
    """
    if place is None:
        if as_of is not None:
            raise RequestError("--as-of without records", "a table", "name it by --records")
        return None
    from hetfeat.dataset.tables.local_copy import local_records

    return local_records(place, as_of)
