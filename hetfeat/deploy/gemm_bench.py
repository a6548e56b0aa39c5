"""Searched programs of a matrix multiplication beside the libraries' own."""

from collections.abc import Collection, Sequence

from hetfeat.deploy.bench import Latency, compare
from hetfeat.devices.profile import DeviceProfile
from hetfeat.search.base import State, Timed

LIBRARIES = ("torch_matmul", "openblas_matmul")
SEARCHED = "searched_matmul"


def finalists(measured: Collection[Timed | None], count: int = 3) -> list[State]:
    """The fastest few distinct states: what was fast in a search need not be in another process."""
    times = {timed.state: timed.seconds for timed in measured if timed and timed.seconds}
    return sorted(times, key=lambda state: times[state])[:count]


def compare_matmul(
    shape: Sequence[int], states: Sequence[State], profile: DeviceProfile, rounds: int
) -> tuple[State, dict[str, Latency | None]]:
    """Times programs and libraries in turns, each in a process of its own, with equal threads.

    Args:
        shape: States of `gemm_space`, at least one.
        states: States of `gemm_space`, at least one.
        profile: Profile of this machine.
        rounds: Number of turns of each.

    Returns:
        The fastest state, and the latencies of its program and of the libraries by engine; None
        for a library that could not be run.

    Raises:
        WorkFailed: The first state's program does not run.
    """
    gemm = list(shape)
    engines = {
        str(state): {"engine": SEARCHED, "state": list(state), "target": dict(profile.target)}
        for state in states
    }
    engines |= {name: {"engine": name} for name in LIBRARIES}
    engines = {name: {"gemm": gemm, **settings} for name, settings in engines.items()}
    timed = compare(engines, profile.threads, rounds)
    ran = {state: latency for state in states if (latency := timed[str(state)])}
    best = min(ran, key=lambda state: ran[state].median_ms)
    return best, {SEARCHED: ran[best], **{name: timed[name] for name in LIBRARIES}}
