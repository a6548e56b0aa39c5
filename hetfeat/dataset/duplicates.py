"""Which records of a store are older measurements of a program on the same device."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hetfeat.dataset.readers import JournalPart, Piece
from hetfeat.dataset.schema import median_latencies

Keys = npt.NDArray[np.uint64]


def older_duplicates(
    pieces: Iterable[Piece], wanted: Callable[[Piece], pc.Expression | None] = lambda _: None
) -> dict[int, list[int]]:
    """Rows that a newer record of the same program on the same device replaces.

    All records of a program on a device lie in one partition or in the journal. Memory is sixteen
    bytes a record of the largest partition, and more only for records that have duplicates.

    Args:
        pieces: Pieces of a store, in the order in which they will be read.
        wanted: Gives the condition on the records of a piece that are compared; by default None,
            for all.

    Returns:
        Row numbers, ascending, within what `read` gives of a piece under its condition, by its
        position.
    """
    partitions: dict[Path, list[tuple[int, Piece]]] = {}
    journal: list[tuple[int, Piece]] = []
    for position, piece in enumerate(pieces):
        if isinstance(piece, JournalPart):
            journal.append((position, piece))
        else:
            partitions.setdefault(piece.path.parent, []).append((position, piece))
    older = {
        row for part in partitions.values() or [[]] for row in _older([*part, *journal], wanted)
    }
    found: dict[int, list[int]] = {}
    for position, row in sorted(older):
        found.setdefault(position, []).append(row)
    return found


def _older(
    pieces: list[tuple[int, Piece]], wanted: Callable[[Piece], pc.Expression | None]
) -> Iterator[tuple[int, int]]:
    """Position and row of what is replaced within these pieces."""
    read = (record_keys(piece.read(_IDENTITY, wanted(piece))) for _, piece in pieces)
    keys = np.concatenate([np.empty(0, np.uint64), *read])
    keys.sort()
    repeated = np.unique(keys[1:][keys[1:] == keys[:-1]])
    del keys
    newest: dict[int, tuple[float, int, int]] = {}
    for position, piece in pieces if len(repeated) else []:
        table = piece.read([*_IDENTITY, "unix_s"], wanted(piece))
        found = record_keys(table)
        for row in np.flatnonzero(np.isin(found, repeated)).tolist():
            key, this = int(found[row]), (table["unix_s"][row].as_py(), position, row)
            other = newest.get(key, this)
            newest[key] = max(this, other)
            if other is not this:
                yield min(this, other)[1:]


_IDENTITY = ["device", "program"]


def record_keys(table: pa.Table) -> Keys:
    """64 bits that tell a program on a device from another, uint64 [rows].

    Two of TenSet's 51.6 million records share them with probability 7e-5.
    """
    keys = program_keys(table)
    devices = table["device"].combine_chunks().dictionary_encode()
    names = [hashlib.sha256(name.encode()).digest()[:8] for name in devices.dictionary.to_pylist()]
    salt = np.frombuffer(b"".join(names), ">u8").astype(np.uint64)
    return keys ^ salt[devices.indices.to_numpy()] if len(keys) else keys


def program_keys(table: pa.Table) -> Keys:
    """64 bits of each program's key, the same on every device, uint64 [rows]."""
    programs = pc.utf8_slice_codeunits(table["program"], 0, 16).to_pylist()
    return np.frombuffer(bytes.fromhex("".join(programs)), ">u8").astype(np.uint64)


def measurement_keys(table: pa.Table) -> Keys:
    """64 bits that tell a measurement from every other, one of the same program too."""
    keys = record_keys(table)
    latencies_s = median_latencies(table["latencies_s"])
    for values in (table["unix_s"].to_numpy(), latencies_s):
        bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
        keys = (keys ^ bits) * np.uint64(0x9E3779B97F4A7C15)  # modulo 2^64, one to one
        keys ^= keys >> np.uint64(32)
    return keys
