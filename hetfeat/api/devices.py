"""The device that the Python API works for."""

from hetfeat.devices.probe import find_profile, local_profile, remember
from hetfeat.devices.probe import probe as measure_now
from hetfeat.devices.profile import DeviceProfile

Device = DeviceProfile | str


def probe(*, refresh: bool = False) -> DeviceProfile:
    """This machine's profile: its target, its parameters and its measured figures.

    It is measured once, about ten seconds, and kept in the user's cache folder. Keep the machine
    idle meanwhile: other work makes its figures too low.

    Args:
        refresh: Whether to measure again, and keep what comes out; default False.

    Raises:
        RequestError: Not a machine that the probe knows: neither an x86-64 nor a 64-bit Arm.
        WorkFailed: The micro-benchmarks failed.

    Examples:
        >>> import hetfeat
        >>> device = hetfeat.probe()
        >>> device.family in ("cpu-x86", "cpu-arm"), device.threads > 0
        (True, True)
    """
    if not refresh:
        return local_profile()
    profile = measure_now()
    remember(profile)
    return profile


def as_profile(device: Device) -> DeviceProfile:
    """A profile, or the one of a name: `local`, a preset's, or the path of a profile's file.

    Raises:
        RequestError: No such device.
    """
    return device if isinstance(device, DeviceProfile) else find_profile(device)
