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

REPEATS = 3
REPEAT_S = 0.01
"""Each repeat runs the program often enough to last this long."""
SLOW_RATIO, SLOW_S = 3.0, 0.02
"""A first run over both 3x the best so far and 20 ms settles the matter: no repeats."""
COLD_RUNS, COLD_S = 20, 4.0
"""Runs with cold weights, or as many as take so long, within what a child may take."""
FLUSH = "cache_flush_cpu_non_first_arg"
BIG_CORES_FIRST = 1
"""How TVM's thread pool chooses cores."""
STEADY_SPREAD, ROUNDS = 0.1, 3
"""Repeats that differ by more are taken again, up to so many rounds; the steadiest are kept."""


class Service:
    """State of the child: the tasks it knows and the programs it has built."""

    def __init__(self, target: dict[str, Any], cache_line_bytes: int) -> None:
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
        if cold:
            repeat = max(1, min(COLD_RUNS, int(COLD_S / first)))
            return self._timed(library, arguments, number=1, repeat=repeat, cold=True)
        if first > max(SLOW_RATIO * (incumbent_s or float("inf")), SLOW_S):
            return [first]
        return self._steady(library, arguments, runs_of(first))

    def _steady(self, library: Any, arguments: Any, number: int) -> list[float]:
        rounds: list[list[float]] = []
        while not rounds or (spread(rounds[-1]) > STEADY_SPREAD and len(rounds) < ROUNDS):
            rounds.append(self._timed(library, arguments, number, REPEATS))
        return min(rounds, key=spread)

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


def runs_of(first_s: float) -> int:
    """Runs of a repeat."""
    return max(1, round(REPEAT_S / first_s))


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
