"""Refuses a machine that cannot run the programs of a pack, or not as the pack's device does."""

from pathlib import Path

from hetfeat.deploy import runtime
from hetfeat.deploy.runtime import BundleError
from hetfeat.devices import host
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError
from hetfeat.packs.archive import Pack
from hetfeat.packs.messages import DeviceFacts
from hetfeat.parsing import printable


def check_cpu(path: Path, pack: Pack, profile: DeviceProfile) -> None:
    """Checks the CPU's instructions and cores, before any code of the pack is loaded.

    Raises:
        RequestError: It lacks some.
    """
    facts = {"code_features": pack.manifest.code_features, "device": profile.name}
    try:
        runtime.check_cpu(path, facts)
    except BundleError as error:
        raise RequestError(
            error.parts[0].replace("bundle", "pack", 1), error.parts[1], "run it on its device"
        ) from error
    if (cores := host.usable_cores()) < profile.threads:
        raise RequestError(
            f"pack '{path}' for {profile.threads} threads on {cores} cores",
            "as many cores as threads, or its figures would be another device's",
            "run it on its device, or build it for a profile of fewer threads",
        )


def check_device(path: Path, pack: Pack, profile: DeviceProfile, facts: DeviceFacts) -> None:
    """Checks TVM's version and the GPU.

    Raises:
        RequestError: Another TVM built the programs, or the GPU cannot run their kernels.
    """
    if facts.tvm != pack.manifest.tvm:
        raise RequestError(
            f"pack '{path}' of TVM {pack.manifest.tvm} on a machine with TVM {facts.tvm}",
            "the TVM that built it",
            f"install apache-tvm=={pack.manifest.tvm} here",
        )
    if not profile.target.is_gpu:
        return
    wanted, found = str(profile.target.get("arch")), facts.arch
    if found is None or not runs_code_of(found, wanted):
        why = f" ({printable(facts.missing)})" if facts.missing else ""
        raise RequestError(
            f"pack '{path}' for {wanted} on {found or 'no NVIDIA GPU'}{why}",
            "a GPU of the same major architecture, as late as that or later",
            "run it on its device, or build it for this one",
        )


def runs_code_of(found: str, wanted: str) -> bool:
    """Whether a GPU runs machine code of an architecture: of its own major version alone."""
    own, of_code = (int("".join(filter(str.isdigit, arch))) for arch in (found, wanted))
    exact = not wanted[-1].isdigit()  # code of `sm_90a` runs on that architecture and no other
    return own == of_code or (own // 10 == of_code // 10 and own > of_code and not exact)
