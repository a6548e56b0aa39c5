"""Whether a server is the device that its key says."""

from hetfeat.devices.fleet.report import ServerReport
from hetfeat.devices.fleet.route import route_of
from hetfeat.devices.probe import FAMILY_OF_MACHINE
from hetfeat.devices.profile import DeviceProfile

SPEED_FACTOR = 2.0
"""Factor slower or faster than the profile's peak at which a server is another machine, a throttled
or a busy one; what is said of it names the factor in words."""


def mismatch(profile: DeviceProfile, report: ServerReport) -> str | None:
    """What a server reports that its profile contradicts, or None.

    Args:
        profile: Profile of the device that the server should be.
        report: Report of the server.
    """
    cpu = route_of(profile).cpu
    if FAMILY_OF_MACHINE.get(report.machine) != profile.family:
        return f"{report.machine}, not {profile.family}"
    if cpu is not None and report.cpu != cpu:
        return f"processor '{report.cpu}', not '{cpu}'"
    if report.missing:
        return f"'{report.cpu}' without {', '.join(report.missing)}"
    if report.threads != profile.threads or report.cores < profile.threads:
        return (
            f"{report.threads} threads on {report.cores} cores, "
            f"not {profile.threads} on as many or more"
        )
    if report.gflops is None:
        return "a server whose speed was not measured"
    return slow_or_fast(profile, report.gflops)


def fast_enough(profile: DeviceProfile) -> float:
    """GFLOP/s that a server of the device reaches at least; 0 for a profile without a peak."""
    return (profile.peak_gflops or 0.0) / SPEED_FACTOR


def slow_or_fast(profile: DeviceProfile, gflops: float) -> str | None:
    """How far a server's speed is off, or None; a profile without a peak allows any."""
    peak = profile.peak_gflops
    if peak is None or fast_enough(profile) <= gflops <= peak * SPEED_FACTOR:
        return None
    if gflops < peak:
        found, why = "under half", "a busy one"
    else:
        found, why = "over twice", "it was probed while busy: do that again"
    return f"{gflops:.3g} GFLOP/s, {found} the profile's {peak:.3g}: another machine, or {why}"
