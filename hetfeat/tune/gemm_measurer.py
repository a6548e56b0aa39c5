"""Live searches for a matrix multiplication: a tile space, and measuring its states."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError
from hetfeat.measure.local import DEFAULTS, LocalMeasurer, MeasureOptions
from hetfeat.records import Program, Task
from hetfeat.search.base import State, Timed
from hetfeat.search.runner import Measure

CHILD = "hetfeat.measure.gemm_child"


@contextmanager
def gemm_measurer(
    profile: DeviceProfile,
    m: int,
    n: int,
    k: int,
    measured: dict[State, Timed] | None = None,
    options: MeasureOptions = DEFAULTS,
) -> Iterator[Measure]:
    """Measures states of `gemm_space(m, n, k)` on this machine, each once.

    Searches that share it are compared on the same times. A state much slower than the fastest so
    far is run once, or killed, and then counts as failed.

    Args:
        profile: Device that measures.
        m: Number of rows of the result.
        n: Number of its columns.
        k: Number of products in each sum.
        measured: States that were measured before; what is measured here is added. None, the
            default, for none.
        options: Settings of measuring on this machine, default `DEFAULTS`.

    Raises:
        RequestError: Not a device that runs here.
    """
    if not profile.target.is_cpu or not profile.route.is_local:
        raise RequestError(
            f"device '{profile.name}' ({profile.target.get('kind')}, {profile.route.get('kind')})",
            "this machine's CPU",
            "give --device local, or --space for a recorded one",
        )
    task = Task(f"gemm-{m}-{n}-{k}", "matmul", ((m, k), (k, n), (m, n)), "float32", 2.0 * m * n * k)
    measured = {} if measured is None else measured
    with LocalMeasurer(profile, options, child=CHILD) as measurer:
        measurer.add_task(task, json.dumps([m, n, k]))

        def measure(states: Sequence[State]) -> list[Timed]:
            new = [state for state in states if state not in measured]
            times_s = [timed.seconds for timed in measured.values() if timed.seconds is not None]
            incumbent_s = {task.hash: min(times_s)} if times_s else {}
            started = time.perf_counter()
            done = measurer.measure([Program(task, json.dumps(s)) for s in new], incumbent_s)
            each_s = (time.perf_counter() - started) / max(1, len(new))
            for state, measurement in zip(new, done, strict=True):
                measured[state] = Timed(state, measurement.latency_s, each_s)
            return [measured[state] for state in states]

        yield measure
