"""Times built programs in this process; needs TVM's runtime alone, not its compiler."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from hetfeat.measure.latencies import SHORTEST_S
from hetfeat.measure.messages import Seconds
from hetfeat.measure.timing_options import TimingOptions
from hetfeat.records import spread

FLUSH = "cache_flush_cpu_non_first_arg"


class ProgramTimer:
    """Times programs on one device: a first run, then repeats until they are steady.

    Args:
        timing: Options of timing programs.
        gpu: Whether the device is the first NVIDIA GPU, and not the CPU.
    """

    def __init__(self, timing: TimingOptions, gpu: bool) -> None:
        self._timing, self._gpu = timing, gpu
        self._device = tvm.cuda() if gpu else tvm.cpu()
        self._arrays: dict[tuple[int, tuple[int, ...], str], Any] = {}

    def _latencies(
        self, library: Any, arguments: Any, incumbent_s: float | None, cold: bool
    ) -> Seconds:
        (first,) = self._time(library, arguments, number=1, repeat=1)
        if not SHORTEST_S <= first < float("inf"):
            return [first]  # no time at all: whoever asked will not believe it
        timing = self._timing
        if cold:
            repeat = max(1, min(timing.cold_runs, int(timing.cold_s / first)))
            return [*self._time(library, arguments, number=1, repeat=repeat, cold=True)]
        if first > max(timing.slow_ratio * (incumbent_s or float("inf")), timing.slow_s):
            return [first]
        return [*self._steady(library, arguments, self._runs_of(first))]

    def _steady(self, library: Any, arguments: Any, number: int) -> list[float]:
        timing, rounds = self._timing, list[list[float]]()
        while not rounds or (
            spread(rounds[-1]) > timing.steady_spread and len(rounds) < timing.rounds
        ):
            rounds.append(self._time(library, arguments, number, timing.repeats))
        return min(rounds, key=spread)

    def _runs_of(self, first_s: float) -> int:
        """Runs of a repeat."""
        return max(1, round(self._timing.repeat_s / first_s))

    def _time(
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


def load_library(path: str, kernels: str | None) -> Any:
    """A library that `hetfeat.measure.build_child` built.

    Args:
        path: Path of the library.
        kernels: Path of its machine code for a GPU, None for a CPU.
    """
    if kernels is not None:
        machine_code = Path(kernels).read_bytes()
        # In place of the kernels' source the library has a line; TVM asks to compile that.
        tvm_ffi.register_global_func(
            "tvm_callback_cuda_compile", lambda source: machine_code, override=True
        )
    return tvm.runtime.load_module(path)


@contextlib.contextmanager
def gone_on_failure() -> Iterator[None]:
    """Ends this process where a kernel fails: no other runs in it after that."""
    try:
        yield
    except Exception:
        os._exit(1)
