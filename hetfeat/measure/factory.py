"""The measurer that a device's route asks for."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hetfeat.dataset.sidecar_files import quarantine
from hetfeat.devices.profile import DeviceProfile
from hetfeat.measure.base import DeviceMeasurer, need_cpu
from hetfeat.measure.cluster_builder import ClusterBuilder
from hetfeat.measure.elsewhere import ElsewhereMeasurer, GpuMeasurer
from hetfeat.measure.local import LocalMeasurer
from hetfeat.measure.remote.measurer import RemoteMeasurer

if TYPE_CHECKING:
    from distributed import Client


def measurer_of(
    profile: DeviceProfile,
    store: Path,
    builders: int | None = None,
    cluster: "Client | None" = None,
) -> DeviceMeasurer:
    """Measures here, or on the servers of the device's key.

    Args:
        profile: Profile of the device.
        store: Folder of the records; quarantined ones are kept apart from them.
        builders: Number of children that build for a device that is here; default None for one a
            thread of it.
        cluster: Client of a cluster whose workers build instead; default None for none.
    """
    builder = None if cluster is None else ClusterBuilder(cluster, profile)
    if not profile.route.is_local:
        return RemoteMeasurer(profile, partial(quarantine, store), builder=builder)
    if builder is not None:
        need_cpu(profile)  # a cluster builds no kernels of GPUs
        return ElsewhereMeasurer(profile, builder)
    if profile.target.is_gpu:
        return GpuMeasurer(profile, builders)
    return LocalMeasurer(profile, builders=builders)


def measurers_of(
    profiles: Sequence[DeviceProfile],
    store: Path,
    builders: int | None = None,
    cluster: "Client | None" = None,
) -> list[DeviceMeasurer]:
    """A measurer of each device; those that run the same machine code build it once."""
    made: list[DeviceMeasurer] = []
    for profile in profiles:
        for other in made:
            if isinstance(other, LocalMeasurer) and _runs_code_of(profile, other.profile):
                made.append(other.with_threads(profile))
                break
        else:
            made.append(measurer_of(profile, store, builders, cluster))
    return made


def _runs_code_of(profile: DeviceProfile, other: DeviceProfile) -> bool:
    """Whether only the number of threads differs: a child of `other` can lower it, not raise it."""
    code, others = (p.target | {"num-cores": None} for p in (profile, other))
    return (
        code == others
        and profile.route.is_local
        and other.route.is_local
        and profile.threads <= other.threads
    )
