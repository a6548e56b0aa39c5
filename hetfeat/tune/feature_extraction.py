"""Per-store features for imported records, so that they are as good as measured ones."""

from collections.abc import Mapping
from contextlib import ExitStack

import pyarrow as pa

from hetfeat.dataset.schema import from_table, with_stores
from hetfeat.devices import host
from hetfeat.devices.profile import DeviceProfile
from hetfeat.measure.local import CHILD
from hetfeat.measure.worker_pool import WorkerPool


class FeatureExtraction(ExitStack):
    """Fills `stores` of the records of one device whose tasks' modules came with them."""

    def __init__(self) -> None:
        super().__init__()
        self._pool: WorkerPool | None = None
        self._modules: dict[str, str] = {}

    def __call__(
        self, records: pa.Table, profile: DeviceProfile, modules: Mapping[str, str]
    ) -> pa.Table:
        """The records, with features where their traces replay.

        Args:
            records: Records as a table of the store's schema.
            profile: Profile of their device.
            modules: Serialised TVM modules by task hash; those of earlier calls stay known.
        """
        self._modules |= modules
        if not self._modules or not records.num_rows:
            return records
        if self._pool is None:  # nothing is timed: the device may be elsewhere, or a GPU
            self._pool = self.enter_context(WorkerPool(profile, CHILD, host.usable_cores()))
        programs = [measurement.program for measurement in from_table(records)]
        for task in {program.task for program in programs}:
            if task.hash in self._modules:
                self._pool.add_task(task, self._modules[task.hash])
        with_features = self._pool.with_features(programs)
        return with_stores(records, [program.stores for program in with_features])
