"""Where a transfer takes a device's records from: what was recorded, or what it measures now."""

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hetfeat.dataset.store import RecordStore
from hetfeat.devices.probe import find_profile
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError
from hetfeat.features.assemble import assemble
from hetfeat.features.out_of_core import room_bytes
from hetfeat.transfer.finetune import FewShot, few_shot
from hetfeat.transfer.selection import heaviest
from hetfeat.tune.collect import Plan
from registry.jobs import collect

if TYPE_CHECKING:
    from distributed import Client

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Division:
    """How a device's records are divided.

    Attributes:
        budget_per_task: Number of measurements of each task to learn from.
        flops_share: Share of all FLOPs that the tasks learnt from hold, in (0, 1].
        seed: Seed of the choice of measurements.
    """

    budget_per_task: int
    flops_share: float
    seed: int


@dataclass(frozen=True)
class DividedRecords:
    """A device's records, divided.

    Attributes:
        data: Records to learn from, and those to test on.
        dataset_digest: Digest of the store that holds them.
    """

    data: FewShot
    dataset_digest: str


Check = Callable[[FewShot], None]
"""Callable that raises RequestError for records that the source model cannot learn from."""


class DeviceRecords(Protocol):
    """Records of the device that a model is adapted to."""

    store: RecordStore
    profile: DeviceProfile

    def prepare(self, check: Check) -> None:
        """Refuses what can be refused without measuring, before a run exists."""

    def divide(self, check: Check) -> DividedRecords:
        """The divided records; within a run."""


class ReplayedRecords:
    """Records of a store, read back.

    Args:
        path: Folder of the record store.
        device: Name of a device of the records, or `local`.
        division: Division of the records.

    Raises:
        RequestError: The store has no records of the device.
    """

    def __init__(self, path: Path, device: str, division: Division) -> None:
        self.store = RecordStore.open(path)
        self.profile = _recorded_profile(self.store, device)
        self._division = division
        self._divided: DividedRecords | None = None

    def prepare(self, check: Check) -> None:
        """Reads, divides and checks the records."""
        self._divided = divided_records(self.store, self.profile, self._division)
        check(self._divided.data)

    def divide(self, check: Check) -> DividedRecords:
        """What `prepare` has read."""
        if self._divided is None:
            self.prepare(check)
        assert self._divided is not None
        return self._divided


class LiveMeasurement:
    """Records that are measured now, of the tasks of networks.

    Args:
        device: Name of a device, or the file of its profile.
        networks: Names of the networks whose tasks are measured.
        out: Folder of the record store; made, or added to.
        division: Division of the records.
        cluster: Client of a cluster whose workers build the programs; default None for none.
        test_programs: Number of programs of each task measured beyond the budget, default 16: the
            figures are of them.

    Raises:
        RequestError: The device cannot be measured from here, or there is no such network.
    """

    def __init__(
        self,
        device: str,
        networks: Sequence[str],
        out: Path,
        division: Division,
        cluster: "Client | None" = None,
        *,
        test_programs: int = 16,
    ) -> None:
        profile = find_profile(device)
        self.store, profiles, tasks, self._modules = collect.prepare(
            [profile], tuple(networks), out
        )
        self.profile = profiles[0]
        self._division, self._cluster = division, cluster
        self._plan = Plan(division.budget_per_task + test_programs, seed=division.seed)
        flops = {name: task.flops for name, task in tasks.items()}
        selected = heaviest(flops, self.store.networks(), division.flops_share)
        self._tasks = {name: task for name, task in tasks.items() if name in selected}

    def prepare(self, check: Check) -> None:
        """Nothing: there are no records yet."""

    def divide(self, check: Check) -> DividedRecords:
        """Measures, divides and checks; other records of the store are tested on only."""
        profiles = [self.profile]
        collect.measure(self.store, profiles, self._tasks, self._modules, self._plan, self._cluster)
        divided = divided_records(self.store, self.profile, self._division, set(self._tasks))
        check(divided.data)
        return divided


@contextmanager
def kept_folder(folder: Path | None) -> Iterator[Path]:
    """Where records are kept: for good in a given folder, else until all has been done."""
    if folder is not None:
        yield folder
        return
    temporary = Path(tempfile.mkdtemp(prefix="hetfeat-transfer-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        try:
            yield temporary / "records"
        except BaseException:
            if (out := temporary / "records").exists() and RecordStore.open(out).measured_devices():
                stack.pop_all()
                log.warning("add --out '%s' to go on from what was measured", out)
            raise


def divided_records(
    store: RecordStore,
    profile: DeviceProfile,
    division: Division,
    selected: set[str] | None = None,
) -> DividedRecords:
    """The device's records of a store, divided, and the digest of the store.

    Args:
        store: Record store of the device.
        profile: Profile of the device.
        division: Division of the records.
        selected: Hashes of the tasks to learn from; default None selects the heaviest of the
            records.
    """
    with store.undisturbed() as digest:
        examples = assemble(store, room_bytes=room_bytes(), devices=[profile.name]).examples
    if selected is None:
        columns = store.read(["task", "flops"]).to_pydict()
        flops_of = dict(zip(columns["task"], columns["flops"], strict=True))
        flops = {task: flops_of[task] for task in set(examples.task.tolist())}
        selected = heaviest(flops, store.networks(), division.flops_share)
    data = few_shot(examples, division.budget_per_task, division.seed, selected)
    return DividedRecords(data, digest)


def _recorded_profile(store: RecordStore, device: str) -> DeviceProfile:
    profiles = store.devices()
    name = find_profile(device).name if device == "local" and device not in profiles else device
    if name not in profiles:
        raise RequestError(
            f"device '{name}'",
            f"a device of the records ({', '.join(profiles) or 'none'})",
            "correct --device or --records",
        )
    return profiles[name]
