"""What an importer is."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from hetfeat.dataset.schema import to_row, to_table
from hetfeat.devices.profile import DeviceProfile
from hetfeat.records import Measurement


@dataclass(frozen=True)
class ImportedBatch:
    """What an importer found in a stretch of its files.

    Attributes:
        records: Rows of `dataset.schema.SCHEMA`, all measured on the same hardware; at most some
            ten thousand, so that memory stays bounded.
        skipped: Number of entries that are no records, by reason; none by default.
        profile: Hardware as the records describe it; None, the default, where they say nothing.
        modules: Serialised TVM modules of tasks, by task hash; none by default.
        networks: Occurrences of tasks, by network and task hash; none by default.
    """

    records: pa.Table
    skipped: Counter[str] = field(default_factory=Counter)
    profile: DeviceProfile | None = None
    modules: Mapping[str, str] = field(default_factory=dict)
    networks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class Importer(Protocol):
    """Reads files of one format, a bounded batch at a time.

    What is wrong with a line is a reason in `ImportedBatch.skipped`, never an exception: each entry
    of a file is either a row of a batch or counted as skipped.
    """

    def __call__(self, files: Iterable[Path], device: str) -> Iterator[ImportedBatch]:
        """The records of `files`, which `sniff` takes for this format, as measured on `device`."""


def batch_of(
    measurements: Iterable[Measurement],
    skipped: Counter[str] | None = None,
    profile: DeviceProfile | None = None,
    modules: Mapping[str, str] | None = None,
) -> ImportedBatch:
    """A batch from single measurements, for formats of few records."""
    records = to_table(to_row(m) for m in measurements)
    return ImportedBatch(records, skipped or Counter(), profile, modules or {})
