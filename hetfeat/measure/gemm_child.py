"""The measuring child for GEMM: a task is a shape, a trace is a state of its tile space.

Its arguments are those of `hetfeat.measure.child`. The program packs B into panels as wide as its
innermost tile, within the timed run: libraries do the same with theirs.

Many states are slow, so programs run in a fork of this process, which is killed when one takes too
long: what is built stays, and neither TVM is imported nor a program built once more.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.s_tir.schedule import Schedule

from hetfeat.measure.child import BIG_CORES_FIRST, TIMING, Service, TimingOptions, error_kind, main
from hetfeat.measure.fork import Fork
from hetfeat.records import ErrorKind

LANES = 64
"""Most elements of a vectorised loop; LLVM splits it into registers. A wider tile gets a loop."""
UNROLLED = 64
"""Most vectors of the innermost tile that is unrolled; more would not fit registers and take LLVM
minutes."""
VECTOR = 16
"""Elements of the widest vector register, of AVX-512."""


@dataclass(frozen=True)
class RankingOptions:
    """When the first run of a state tells enough.

    Attributes:
        ranked_ratio: Multiple of the best time above which a state need only be ranked, default
            1.5: one repeat does it.
        slow_ranked_ratio: The same multiple for runs over `TimingOptions.slow_s`, default 1.2: they
            cost more, and one alone is near the median of steady repeats.
        kill_ratio: Multiple of the best time at which a first run is killed, default 10.
        kill_floor_s: Seconds that every first run gets, default 0.3.
    """

    ranked_ratio: float = 1.5
    slow_ranked_ratio: float = 1.2
    kill_ratio: float = 10.0
    kill_floor_s: float = 0.3


RANKING = RankingOptions()


def matmul(m: int, n: int, k: int, state: Sequence[int]) -> tvm.IRModule:
    """C[m, n] = A[m, k] B[k, n] in float32, tiled by a state: 4 factors of m, 2 of k, 4 of n.

    Loops are, from the outside, m0 n0 (parallel) m1 n1 k0 m2 n2 k1 m3 n3 (TVM's SSRSRS); a tile of
    m2 m3 by n2 n3 is summed up beside C.
    """
    rows, depth, columns = list(state[:4]), list(state[4:6]), list(state[6:])
    width = columns[3]
    schedule = Schedule(_computation(m, n, k, width))
    block = schedule.get_sblock("C")
    i, j, reduced = schedule.get_loops(block)
    i0, i1, i2, i3 = schedule.split(i, rows)
    j0, j1, j2, j3 = schedule.split(j, columns)
    k0, k1 = schedule.split(reduced, depth)
    schedule.reorder(i0, j0, i1, j1, k0, i2, j2, k1, i3, j3)
    written = schedule.cache_write(block, 0, "global")
    schedule.reverse_compute_at(written, j1)
    schedule.vectorize(schedule.split(schedule.get_loops(written)[-1], [None, _lanes(width)])[1])
    vectors, lanes = schedule.split(j3, [None, _lanes(width)])
    schedule.vectorize(lanes)
    if rows[3] * width <= UNROLLED * VECTOR:
        schedule.unroll(i3)
        schedule.unroll(vectors)
    schedule.parallel(schedule.fuse(i0, j0))
    schedule.decompose_reduction(block, k0)
    pack = schedule.get_sblock("packed")
    panel, row, column = schedule.get_loops(pack)
    schedule.vectorize(schedule.split(column, [None, _lanes(width)])[1])
    schedule.parallel(schedule.fuse(panel, row) if n // width < VECTOR else panel)
    return schedule.mod


def _computation(m: int, n: int, k: int, width: int) -> tvm.IRModule:
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    packed = te.compute((n // width, k, width), lambda o, r, c: b[r, o * width + c], name="packed")
    along = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, along] * packed[j // width, along, j % width], along),
        name="C",
    )
    return tvm.IRModule({"main": te.create_prim_func([a, b, c])})


def _lanes(width: int) -> int:
    """The largest divisor of a tile's width that one vector operation takes."""
    return next(lanes for lanes in range(min(width, LANES), 0, -1) if width % lanes == 0)


def compiled(
    target: dict[str, Any], state: Sequence[int], a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]
) -> Callable[[], None]:
    """The program of a state, ready to run on operands."""
    (m, k), n = a.shape, b.shape[1]
    run = tvm.compile(matmul(m, n, k, state), tvm.target.Target(target)).jit()["main"]
    arrays = [tvm.runtime.tensor(array) for array in (a, b, np.zeros((m, n), np.float32))]
    return lambda: run(*arrays)


class GemmService(Service):
    """The measuring child's service, for GEMM states instead of traces.

    Args:
        target: TVM's target of the device.
        cache_line_bytes: Length of a cache line of the device in bytes.
        timing: Options of timing programs, default `TIMING`.
        ranking: Options that say when a first run tells enough, default `RANKING`.
    """

    def __init__(
        self,
        target: dict[str, Any],
        cache_line_bytes: int,
        timing: TimingOptions = TIMING,
        ranking: RankingOptions = RANKING,
    ) -> None:
        super().__init__(target, cache_line_bytes, timing)
        self._ranking = ranking
        self._shapes: dict[str, tuple[int, int, int]] = {}
        self._fork: Fork | None = None
        self._forked: set[str] = set()

    def task(self, task: str, module: str) -> None:
        """Makes a shape `[m, n, k]`, as JSON, known."""
        m, n, k = json.loads(module)
        self._shapes[task] = m, n, k

    def build(self, task: str, program: str, trace: str) -> None:
        """Compiles a state, as JSON, and keeps it for `run`."""
        m, n, k = self._shapes[task]
        library = tvm.compile(matmul(m, n, k, json.loads(trace)), self._target).jit()
        library["main"]  # LLVM compiles on the first look-up: here, not in the timed run
        shapes = ((m, k), (k, n), (m, n))
        arrays: list[Any] = [self._array(i, shape, "float32") for i, shape in enumerate(shapes)]
        self._built[program] = library, arrays

    def run(self, program: str, incumbent_s: float | None) -> list[float]:  # type: ignore[override]
        """As `Service.run`, of warm runs: nobody asks for a GEMM's with cold weights.

        Raises:
            TimeoutError: Its first run takes too long.
            EOFError: It brings its process down.
        """
        if program not in self._forked:
            self._fork_anew()
        assert self._fork is not None
        best, ranking = incumbent_s or float("inf"), self._ranking
        longest_s = max(ranking.kill_floor_s, ranking.kill_ratio * best)
        allowed_s = longest_s if incumbent_s else None
        try:
            first = self._fork.ask(allowed_s, "once", program=program)
            if first > max(ranking.slow_ranked_ratio * best, self._timing.slow_s):
                return [first]
            return list(self._fork.ask(None, "more", program=program, first_s=first, best_s=best))
        except (TimeoutError, EOFError, ConnectionError):
            self._forked.clear()  # the next run has another
            raise
        finally:
            del self._built[program]

    def _fork_anew(self) -> None:
        if self._fork is not None:
            self._fork.end()
        self._fork, self._forked = Fork(self, kind_of), set(self._built)
        self._fork.ask(None, "warm")

    def warm(self) -> None:
        """In the fork: starts the threads, and gets pages of its own for what programs write."""
        tvm.get_global_func("runtime.config_threadpool")(BIG_CORES_FIRST, 0)
        for array in self._arrays.values():
            array.copyfrom(array.numpy())

    def once(self, program: str) -> float:
        """In the fork: seconds of one run."""
        library, arguments = self._built[program]
        main = library["main"]
        started = time.perf_counter()
        main(*arguments)
        return time.perf_counter() - started

    def more(self, program: str, first_s: float, best_s: float) -> list[float]:
        """In the fork: seconds of one repeat where the state is slower than the best, or of all."""
        library, arguments = self._built[program]
        enough = self._ranking.ranked_ratio * best_s
        if first_s > enough:
            (first_s,) = self._timed(library, arguments, self._runs_of(first_s), repeat=1)
            if first_s > enough:
                return [first_s]
        return self._steady(library, arguments, self._runs_of(first_s))


def kind_of(request: str, error: Exception) -> ErrorKind:
    """The kind of a failed request, that of a fork that is gone included."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, EOFError | ConnectionError):
        return "crash"
    return error_kind(request, error)


if __name__ == "__main__":
    main(GemmService, sys.argv, kind_of)
