"""Importing: every entry read is kept, failed, skipped or a duplicate, and none is lost."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hetfeat.cluster import Over
from hetfeat.dataset.importers.base import ImportedBatch
from hetfeat.dataset.importers.files import walk
from hetfeat.dataset.importers.formats import FORMATS, importer
from hetfeat.dataset.importers.key_set import KeySet
from hetfeat.dataset.importers.sniff import sniff
from hetfeat.dataset.store import RecordStore
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.dataset.tables.shared_store import share, store_at
from hetfeat.dataset.tables.uri import Place
from hetfeat.devices.hardware import PARAMETERS, differing
from hetfeat.devices.presets import preset
from hetfeat.devices.profile import DeviceProfile, check_name
from hetfeat.errors import DataError, WorkFailed, not_one_of

Complete = Callable[[pa.Table, DeviceProfile, Mapping[str, str]], pa.Table]


@dataclass
class Counts:
    """What became of the entries read so far; `read` is always the sum of the others."""

    kept: int = 0
    failed: int = 0
    duplicates: int = 0
    skipped_reasons: Counter[str] = field(default_factory=Counter)
    tasks: set[str] = field(default_factory=set)
    started: float = field(default_factory=time.monotonic)

    @property
    def skipped(self) -> int:
        """Entries that are no records."""
        return self.skipped_reasons.total()

    @property
    def read(self) -> int:
        """Entries in all."""
        return self.kept + self.failed + self.duplicates + self.skipped

    def check(self, most_shown: int = 5) -> None:
        """Refuses an import in which no entry was a record: that is no success.

        Args:
            most_shown: Reasons that the error names, the most common first; 5 by default.

        Raises:
            WorkFailed: No entry was a record.
        """
        if self.kept or self.failed or self.duplicates:
            return
        common = self.skipped_reasons.most_common(most_shown)
        reasons = [f"{count} x {why}" for why, count in common]
        raise WorkFailed(
            f"{self.read} entries of which none is a record ({'; '.join(reasons) or 'no entry'})",
            "at least one record",
            "correct the files, or give others",
        )

    def summary(self) -> dict[str, Any]:
        """The counts as plain data."""
        return {
            "read": self.read,
            "kept": self.kept,
            "failed": self.failed,
            "skipped": self.skipped,
            "duplicates": self.duplicates,
            "tasks": len(self.tasks),
            "seconds": time.monotonic() - self.started,
            "skipped_reasons": dict(self.skipped_reasons.most_common()),
        }


def import_records(
    format_name: str,
    device: str,
    paths: Sequence[Path],
    out: Place,
    progress: Callable[[Counts], None] = lambda counts: None,
    complete: Complete = lambda records, profile, modules: records,
    options: StoreConfig = StoreConfig(compression_level=3),
    over: Over = map,
) -> Counts:
    """Reads foreign records into the store at `out`, made if there is none.

    A program that the store holds for this device is a duplicate. The first record of a device
    without a profile gives it one; records of other hardware are skipped. An interrupt leaves
    what was read in the store, and the same call goes on from there.

    Args:
        format_name: Name of the format, one of `FORMATS`.
        device: Name that the records get, that of a profile in the store or a new one.
        paths: Files to read, and folders that are walked.
        out: Folder of the store, or URI of a table.
        progress: Function called with the counts after each batch; by default it does nothing.
        complete: Function that completes new records, given their device's profile and their
            modules by task hash, before they are written; by default it changes nothing.
        options: Sizes and compression of the shards written; those of `StoreConfig` by default,
            but for level 3 of compression, so that writing does not hold up reading.
        over: Function that applies another to each file; `map` by default. Any other holds all
            records of a file at once.

    Raises:
        RequestError: A path, device or format that is not one; a path with no file of the format.
    """
    check_name(device)
    _refuse_other_formats(format_name, paths)
    store, counts = store_at(out, [device], options), Counts()
    with store.writing():
        sink = _Sink(store, device, complete)
        try:
            for batch in _batches(format_name, device, _fitting(format_name, paths, counts), over):
                sink.add(batch, counts)
                progress(counts)
        finally:
            sink.close()
    share(store)
    return counts


def _batches(
    format_name: str, device: str, files: Iterator[Path], over: Over
) -> Iterator[ImportedBatch]:
    if over is map:
        return importer(format_name)(files, device)
    read = partial(_batches_of_file, format_name, device)
    return chain.from_iterable(over(read, (file.resolve() for file in files)))


def _batches_of_file(format_name: str, device: str, file: Path) -> list[ImportedBatch]:
    if not file.is_file():
        raise DataError(f"a worker that does not see '{file}'", "its path there", "mount it there")
    return list(importer(format_name)([file], device))


class _Sink:
    """Where batches go: hardware checked, duplicates dropped, shards of a useful size.

    A new device is the preset of its name, or else what its first records say.
    """

    def __init__(self, store: RecordStore, device: str, complete: Complete) -> None:
        self._store, self._device, self._complete = store, device, complete
        self._seen = KeySet()
        for programs in store.program_keys(device):
            self._seen.add(programs)
        self._profile = store.devices().get(device)
        self._writer = store.writer()

    def add(self, batch: ImportedBatch, counts: Counts) -> None:
        """Takes the records of a batch and counts all of its entries."""
        counts.skipped_reasons.update(+batch.skipped)
        if batch.modules:
            self._store.add_workloads(batch.modules)
        for name, weights in batch.networks.items():
            self._store.add_network(name, weights, {})
        records = batch.records
        if not records.num_rows:
            return
        if self._profile is None and (own := preset(self._device) or batch.profile):
            self._profile = own
            self._store.add_device(own)
        if other := self._other_hardware(batch.profile):
            counts.skipped_reasons[f"measured on other hardware ({other})"] += records.num_rows
            return
        counts.tasks.update(pc.unique(records["task"]).to_pylist())
        new = self._seen.add(records["program"].to_pylist())
        fresh = records if new.all() else records.filter(pa.array(new))
        failed = fresh.num_rows - fresh["error"].null_count
        counts.failed += failed
        counts.kept += fresh.num_rows - failed
        counts.duplicates += records.num_rows - fresh.num_rows
        if self._profile is not None:
            fresh = self._complete(fresh, self._profile, batch.modules)
        self._writer.add(fresh)

    def close(self) -> None:
        """Writes what waits."""
        self._writer.close()

    def _other_hardware(self, found: DeviceProfile | None) -> str:
        """The parameters in which the records' hardware differs from the device's."""
        known = self._profile
        if found is None or known is None:
            return ""
        return differing(known, found, PARAMETERS)


def _refuse_other_formats(format_name: str, paths: Iterable[Path]) -> None:
    if format_name not in FORMATS:
        raise not_one_of("format", format_name, FORMATS, "choose one of them")
    for path in paths:
        sniffed = (sniff(file) for file in walk([path]))
        first = next(sniffed, (None, "an empty folder"))
        if first[0] != format_name and all(name != format_name for name, _ in sniffed):
            raise DataError(
                f"'{path}', which looks like {first[1]}",
                f"{format_name} records",
                f"choose --format ({', '.join(FORMATS)}), or convert the file",
            )


def _fitting(format_name: str, paths: Iterable[Path], counts: Counts) -> Iterator[Path]:
    """The files of the format; others, which only folders can bring, are one entry each."""
    for path in walk(paths):
        name, words = sniff(path)
        if name == format_name:
            yield path
        else:
            counts.skipped_reasons[f"whole file: {words}"] += 1
