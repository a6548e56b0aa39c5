"""What an importer is."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from hetfeat.dataset.schema import to_row, to_table
from hetfeat.devices.profile import DeviceProfile
from hetfeat.records import Measurement


@dataclass(frozen=True)
class Batch:
    """What an importer found in a stretch of its files.

    Attributes:
        records: Rows of `dataset.schema.SCHEMA`, all measured on the same hardware; at most some
            ten thousand, so that memory stays bounded.
        skipped: How many entries are no records, by reason.
        profile: The hardware as the records describe it; None where they say nothing.
    """

    records: pa.Table
    skipped: Counter[str] = field(default_factory=Counter)
    profile: DeviceProfile | None = None


class Importer(Protocol):
    """Reads files of one format, a bounded batch at a time.

    What is wrong with a line is a reason in `Batch.skipped`, never an exception: each entry of a
    file is either a row of a batch or counted as skipped.
    """

    def __call__(self, files: Iterable[Path], device: str) -> Iterator[Batch]:
        """The records of `files`, which `looks` takes for this format, as measured on `device`."""


def batch_of(
    measurements: Iterable[Measurement],
    skipped: Counter[str] | None = None,
    profile: DeviceProfile | None = None,
) -> Batch:
    """A batch from single measurements, for formats of few records."""
    return Batch(to_table(to_row(m) for m in measurements), skipped or Counter(), profile)
