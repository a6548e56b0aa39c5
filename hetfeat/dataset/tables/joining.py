"""Records that join others: what is there already, and whose device is whose."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from hetfeat.dataset.duplicates import measurement_keys, record_keys
from hetfeat.dataset.importers.key_set import KeySet
from hetfeat.devices.hardware import differing
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError

IDENTITY = ["device", "program", "latencies_s", "unix_s"]
"""Columns by which measurements are told from each other."""


@dataclass
class Joined:
    """What became of the records that were read.

    Attributes:
        records: Number of those that joined.
        duplicates: Number of those left out: the same measurement is there already.
        measured_again: Number of those that joined, and whose program the device had been measured
            on before; readers take the newest.
        devices: Names of the devices that records joined.
    """

    records: int = 0
    duplicates: int = 0
    measured_again: int = 0
    devices: set[str] = field(default_factory=set)


class Joining:
    """Tells new measurements from those that are there already; sixteen bytes a record.

    Args:
        there: Tables of `IDENTITY`'s columns that are there.
    """

    def __init__(self, there: Iterable[pa.Table]) -> None:
        self.joined = Joined()
        self._measurements, self._programs = KeySet(), KeySet()
        for table in there:
            self._measurements.add_keys(measurement_keys(table))
            self._programs.add_keys(record_keys(table))

    def fresh(self, table: pa.Table) -> pa.Table:
        """The measurements of a table that are not there yet."""
        if not table.num_rows:
            return table
        new = self._measurements.add_keys(measurement_keys(table))
        again = ~self._programs.add_keys(record_keys(table))
        self.joined.duplicates += int(np.sum(~new))
        self.joined.measured_again += int(np.sum(new & again))
        fresh = table if new.all() else table.filter(pa.array(new))
        self.joined.records += fresh.num_rows
        self.joined.devices.update(fresh["device"].unique().to_pylist())
        return fresh


def check_profiles(
    known: Mapping[str, DeviceProfile], joining: Mapping[str, DeviceProfile], into: str, of: str
) -> None:
    """Refuses devices that have the name of another device.

    Figures that were measured anew do not make another device: those that are known remain.

    Args:
        known: Profiles where the records go, by name.
        joining: Profiles of the records, by name.
        into: Words for where they go.
        of: Words for where they are from.

    Raises:
        DataError: A device has the name of another.
    """
    others = {
        name: words
        for name, profile in sorted(joining.items())
        if name in known and (words := differing(known[name], profile))
    }
    if others:
        told = "; ".join(f"{name}: {words}" for name, words in others.items())
        raise DataError(
            f"devices of {of} that have the names of others in {into} ({told})",
            "one device of a name",
            "say --rename NAME=NEW",
        )


def renamed(table: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """Records with other names of devices."""
    if not names or not table.num_rows:
        return table
    devices = table["device"].combine_chunks().dictionary_encode()
    new = pa.array([names.get(name, name) for name in devices.dictionary.to_pylist()])
    column = pa.DictionaryArray.from_arrays(devices.indices, new).cast(pa.string())
    return table.set_column(table.column_names.index("device"), table.field("device"), column)


def shard_name(sha256: str, names: Mapping[str, str]) -> str:
    """Name of a shard in a table; that of renamed devices' records is another."""
    if not names:
        return sha256[:32]
    text = "\n".join([sha256, *(f"{old}={new}" for old, new in sorted(names.items()))])
    return hashlib.sha256(text.encode()).hexdigest()[:32]
