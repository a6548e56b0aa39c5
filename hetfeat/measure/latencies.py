"""Latencies that a child or a server gives, checked where they come in."""

from typing import Annotated

from pydantic import Field

from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError
from hetfeat.parsing import PositiveFloat, parse
from hetfeat.records import Task

SHORTEST_S = 1e-9
"""Shortest time in seconds that is believed: no program is as quick."""
MOST = 1000
"""Most repeats of a run, in the form of a reply."""
_LATENCIES = Annotated[list[PositiveFloat], Field(min_length=1, max_length=MOST)]
_ACTION = "update and restart the server, and set its clock right"


def latencies_of(
    value: object, task: Task, profile: DeviceProfile, *, beyond_peak: float = 100.0
) -> list[float]:
    """Seconds of a run, a mean per repeat.

    Args:
        value: Answer of a child or a server.
        task: Task of the program.
        profile: Profile of the device.
        beyond_peak: Multiple of the profile's peak, default 100, by which no device is faster.

    Raises:
        DataError: No list of such numbers, or one that is too small to be true.
    """
    found: list[float] = parse(value, _LATENCIES, what="latencies", action=_ACTION)
    peak = (profile.peak_gflops or 0.0) * 1e9
    shortest_s = max(SHORTEST_S, task.flops / (beyond_peak * peak) if peak else 0.0)
    if min(found) < shortest_s:
        raise DataError(f"a latency of {min(found):g} s", f"{shortest_s:.3g} s or more", _ACTION)
    return [float(s) for s in found]
