"""The measuring child: proposes, builds and times programs of tasks it was given.

    python -m hetfeat.measure.child FILE_DESCRIPTOR TARGET_JSON CACHE_LINE_BYTES MEMORY_LIMIT_BYTES

Requests and replies are JSON; a failed request is answered with its kind of error.
"""

import base64
import contextlib
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from hetfeat.measure.latencies import SHORTEST_S
from hetfeat.measure.worker_loop import serve
from hetfeat.records import ErrorKind, spread
from hetfeat.schedules.design_space import TaskSpace, as_candidate, replay
from hetfeat.workloads.relax import load_workload

FLUSH = "cache_flush_cpu_non_first_arg"
BIG_CORES_FIRST = 1
"""Mode in which TVM's thread pool chooses cores: the big ones first."""


@dataclass(frozen=True)
class TimingOptions:
    """How a program is timed.

    Attributes:
        repeats: Number of repeats of a round, default 3; each is one latency.
        repeat_s: Least seconds of a repeat, default 0.01: shorter runs are made several times.
        slow_ratio: First run, as a multiple of the best so far, above which the first run is the
            latency, without repeats; default 3. It must be over `slow_s`, too.
        slow_s: Seconds below which a program is repeated however slow it is, default 0.02.
        cold_runs: Most runs with cold weights, default 20.
        cold_s: Seconds that runs with cold weights take together at most, default 4: less than
            `run_timeout_s`.
        steady_spread: Spread of repeats above which a round is taken again, default 0.1.
        rounds: Most rounds, default 3; the steadiest is kept.
    """

    repeats: int = 3
    repeat_s: float = 0.01
    slow_ratio: float = 3.0
    slow_s: float = 0.02
    cold_runs: int = 20
    cold_s: float = 4.0
    steady_spread: float = 0.1
    rounds: int = 3


TIMING = TimingOptions()


class Service:
    """State of the child: the tasks it knows and the programs it has built.

    Args:
        target: TVM's target of the device.
        cache_line_bytes: Length of a cache line of the device in bytes.
        timing: Options of timing programs, default `TIMING`.
    """

    def __init__(
        self, target: dict[str, Any], cache_line_bytes: int, timing: TimingOptions = TIMING
    ) -> None:
        self._timing = timing
        self._target = tvm.target.Target(target)
        self._cache_line_bytes = cache_line_bytes
        self._spaces: dict[str, TaskSpace] = {}
        self._built: dict[str, Any] = {}
        self._arrays: dict[tuple[int, tuple[int, ...], str], Any] = {}
        self._gpu = self._target.kind.name == "cuda"
        self._device = tvm.cuda() if self._gpu else tvm.cpu()

    def hello(self) -> None:
        """Answers."""

    def task(self, task: str, module: str) -> None:
        """Makes a task known."""
        self._spaces[task] = TaskSpace(load_workload(module), self._target, self._cache_line_bytes)

    def sample(self, task: str, count: int, seed: int) -> list[list[str]]:
        """Random programs, `[trace, features]` each."""
        return [_packed(*found) for found in self._spaces[task].sample(count, seed)]

    def vary(self, task: str, parents: list[str], count: int, seed: int) -> list[list[str]]:
        """Programs near `parents`, `[trace, features]` each."""
        return [_packed(*found) for found in self._spaces[task].vary(parents, count, seed)]

    def apply(self, task: str, traces: list[str]) -> list[list[str]]:
        """The programs of `traces`, `[trace, features]` each, less what does not apply."""
        return [_packed(*found) for found in self._spaces[task].apply(traces)]

    def features(self, task: str, traces: list[str]) -> list[str | None]:
        """Per-store features of recorded programs, None for those that do not replay."""
        found = map(self._spaces[task].features, traces)
        return [None if features is None else _encoded(features) for features in found]

    def build(self, task: str, program: str, trace: str) -> None:
        """Compiles a program in memory and keeps it for `run`."""
        executable, arguments = self._compiled(task, trace)
        library = executable.jit()
        library["main"]  # LLVM compiles on the first look-up: here, not in the timed run
        self._built[program] = library, [self._array(i, *a) for i, a in enumerate(arguments)]

    def run(
        self,
        program: str,
        incumbent_s: float | None,
        cold: bool = False,
        threads: int | None = None,
        keep: bool = False,
    ) -> list[float]:
        """Seconds of one run, a mean per repeat; the built program is let go unless `keep`.

        `cold`: of single runs, each after all arguments but the first have left the caches. In a
        network the first, the data, has just been written; the weights are long gone.
        """
        library, arguments = self._built[program] if keep else self._built.pop(program)
        if self._gpu:
            with gone_on_failure():
                return self._latencies(library, arguments, incumbent_s, cold)
        if threads is not None:
            tvm.get_global_func("runtime.config_threadpool")(BIG_CORES_FIRST, threads)
        return self._latencies(library, arguments, incumbent_s, cold)

    def _latencies(
        self, library: Any, arguments: Any, incumbent_s: float | None, cold: bool
    ) -> list[float]:
        (first,) = self._timed(library, arguments, number=1, repeat=1)
        if not SHORTEST_S <= first < float("inf"):
            return [first]  # no time at all: whoever asked will not believe it
        timing = self._timing
        if cold:
            repeat = max(1, min(timing.cold_runs, int(timing.cold_s / first)))
            return self._timed(library, arguments, number=1, repeat=repeat, cold=True)
        if first > max(timing.slow_ratio * (incumbent_s or float("inf")), timing.slow_s):
            return [first]
        return self._steady(library, arguments, self._runs_of(first))

    def _steady(self, library: Any, arguments: Any, number: int) -> list[float]:
        timing, rounds = self._timing, list[list[float]]()
        while not rounds or (
            spread(rounds[-1]) > timing.steady_spread and len(rounds) < timing.rounds
        ):
            rounds.append(self._timed(library, arguments, number, timing.repeats))
        return min(rounds, key=spread)

    def _runs_of(self, first_s: float) -> int:
        """Runs of a repeat."""
        return max(1, round(self._timing.repeat_s / first_s))

    def _compiled(self, task: str, trace: str) -> tuple[Any, list[tuple[tuple[int, ...], str]]]:
        """A program's executable, and the shape and type of each of its arguments."""
        candidate = as_candidate(replay(self._spaces[task].module, trace))
        module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(candidate.sch.mod)
        arguments = [(tuple(int(n) for n in a.shape), str(a.dtype)) for a in candidate.args_info]
        return tvm.compile(module, self._target), arguments

    def _timed(
        self, library: Any, arguments: Any, number: int, repeat: int, cold: bool = False
    ) -> list[float]:
        flush: dict[str, Any] = {}
        if cold and self._gpu:
            flush = {"cache_flush_bytes": 2 * self._device.l2_cache_size_bytes}
        elif cold:
            flush = {"f_preproc": FLUSH}
        timer = library.time_evaluator("main", self._device, number=number, repeat=repeat, **flush)
        return [float(s) for s in timer(*arguments).results]

    def _array(self, position: int, shape: tuple[int, ...], dtype: str) -> Any:
        key = (position, shape, dtype)
        if key not in self._arrays:
            values = np.random.default_rng(position).random(shape).astype(dtype)
            self._arrays[key] = tvm.runtime.tensor(values, self._device)
        return self._arrays[key]


@contextlib.contextmanager
def gone_on_failure() -> Iterator[None]:
    """Ends this process where a kernel fails: no other runs in it after that."""
    try:
        yield
    except Exception:
        os._exit(1)


def error_kind(request: str, error: Exception) -> ErrorKind:
    """The kind of a failed request."""
    if isinstance(error, MemoryError) or "bad_alloc" in str(error):
        return "memory"
    kinds: dict[str, ErrorKind] = {"build": "build", "run": "run"}
    return kinds.get(request, "schedule")


def _packed(trace: str, features: Any) -> list[str]:
    return [trace, _encoded(features)]


def _encoded(features: Any) -> str:
    return base64.b64encode(features.tobytes()).decode()


def main(
    service: type[Service],
    arguments: list[str],
    kind_of: Callable[[str, Exception], ErrorKind] = error_kind,
) -> None:
    """Serves until the parent is gone; `arguments` are those of the process."""
    descriptor, target_json, line, limit = arguments[1:5]
    target = json.loads(target_json)
    if target["kind"] == "cuda":
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
    else:  # a GPU's driver reserves addresses by the hundred GB
        resource.setrlimit(resource.RLIMIT_AS, (int(limit), int(limit)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(Connection(int(descriptor)), service(target, int(line)), kind_of)


if __name__ == "__main__":
    main(Service, sys.argv)
