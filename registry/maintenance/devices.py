"""Profiles of devices: whether this CPU has what they compile for, and whether others answer."""

import json
import shutil
from collections.abc import Iterator

from hetfeat.devices import host
from hetfeat.devices.fleet import control
from hetfeat.devices.fleet.route import route_of
from hetfeat.devices.probe import find_profile, load_remembered
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import HetfeatError
from registry.maintenance.subprocess_check import CheckFinding, child, last_line

_PROBE = "run `hetfeat devices probe`"
_MISSING_FEATURES = """
import json, sys
from hetfeat.devices import host
from hetfeat.devices.target import code_features
here = code_features({"kind": "llvm", "mcpu": host.llvm_cpu()})
print(json.dumps(sorted(set(code_features(json.loads(sys.argv[1]))) - set(here))))
"""


def profile() -> Iterator[CheckFinding]:
    """What `local` means on this machine, if it has been probed."""
    try:
        profile = load_remembered()
    except HetfeatError as error:
        yield error.given, _PROBE
        return
    if profile is not None:
        yield from _local(profile, _PROBE)


def device(name: str) -> Iterator[CheckFinding]:
    """A device: it is this machine, or its tracker has a server of it.

    Args:
        name: Name or profile's file of the device, as for `--device`.
    """
    try:
        profile = find_profile(name)
        if profile.family == "gpu-nvidia" and shutil.which("nvcc") is None:
            yield f"no nvcc to compile for {profile.name} with", "install CUDA's toolkit"
        if profile.route.is_local:
            yield from _local(profile, "write the profile anew with `hetfeat devices probe`")
        else:
            yield from _remote(profile)
    except HetfeatError as error:
        yield error.given, error.action


def _local(profile: DeviceProfile, mend: str) -> Iterator[CheckFinding]:
    """Code for instructions that this CPU does not have ends in an illegal instruction."""
    if profile.threads > host.usable_cores():
        yield (
            f"profile {profile.name} has {profile.threads} threads where "
            f"{host.usable_cores()} cores may be used",
            mend,
        )
    done = child(_MISSING_FEATURES, json.dumps(dict(profile.target)))
    if done.returncode:
        yield f"the target of profile {profile.name} is not understood: {last_line(done)}", mend
    elif missing := json.loads(done.stdout):
        yield (
            f"profile {profile.name} is of a CPU with {', '.join(missing)}; this one has not",
            mend,
        )


def _remote(profile: DeviceProfile) -> Iterator[CheckFinding]:
    route = route_of(profile)
    keys = [row["device"] for row in control.status(route.tracker) if row["servers"]]
    if route.key not in keys:
        yield (
            f"tracker {route.tracker} has no server '{route.key}' for {profile.name} "
            f"(it has {', '.join(keys) or 'none'})",
            f"run `hetfeat fleet start-server --tracker {route.tracker} --key {route.key}` there",
        )
