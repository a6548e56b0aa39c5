"""The measurer that a device's route asks for."""

from functools import partial
from pathlib import Path

from hetfeat.dataset.notes import quarantine
from hetfeat.devices.profile import DeviceProfile
from hetfeat.measure.base import DeviceMeasurer
from hetfeat.measure.local import LocalMeasurer
from hetfeat.measure.remote.measurer import RemoteMeasurer


def measurer_of(profile: DeviceProfile, store: Path, builders: int | None = None) -> DeviceMeasurer:
    """Measures here, or on the servers of the device's key.

    Args:
        profile: The device.
        store: Folder of the records, where quarantined ones are kept apart from them.
        builders: Children that build for a device that is here; by default one a thread of it.
    """
    if profile.route.get("kind") == "local":
        return LocalMeasurer(profile, builders=builders)
    return RemoteMeasurer(profile, partial(quarantine, store))
