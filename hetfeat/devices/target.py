"""The TVM side of a probe: the target of this CPU, and micro-benchmarks compiled for it.

Run as a program, `python -m hetfeat.devices.target TARGET_JSON [PARENT_PID]`, it prints the
measured figures as JSON: measuring wants a process of its own whose `TVM_NUM_THREADS` is set
from the start.
"""

import functools
import json
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.support import cc
from tvm.target import codegen

from hetfeat.devices import host
from hetfeat.devices.death import die_with_parent
from hetfeat.errors import RequestError

ISAS = {
    "x86_64": (("avx512f", "avx512", 64), ("avx2", "avx2", 32), ("sse4.2", "sse42", 16)),
    "aarch64": (("sve", "sve", 16), ("neon", "neon", 16)),
}
"""Machine -> (LLVM feature, its name in a profile, vector bytes), widest first."""

REGISTER_TILES = ((8, 2), (12, 2), (14, 2), (6, 2), (4, 3))
"""Rows x vectors of accumulators tried for the peak; which fits depends on the register file."""

FILL = "tvm.contrib.random.random_fill"
"""TVM's function that fills an array of floats where it lies."""

CODE_FEATURES = re.compile(
    r"(avx|sse(?!4a)|fma$|bmi|f16c|popcnt|lzcnt|movbe|gfni|neon|sve|dotprod|fullfp16|i8mm|bf16|amx)"
)
"""CPU features that instructions are made from; a program runs without the others."""

WITHOUT_TILES = ["-amx-tile", "-amx-int8", "-amx-bf16", "-amx-fp16", "-amx-complex"]
"""TVM's attribute for a CPU whose tiles a hypervisor or Linux keeps from programs."""

ASK_FOR_TILES = Path(__file__).with_name("ask_for_tiles.s")
"""Assembly that libraries which may use tiles need."""

RESTRICTED_CPU = {"avx2": "haswell", "sse42": "x86-64-v2"}
"""ISA -> the LLVM CPU whose widest vectors it is."""

NO_VECTORS = ["-vectorize-slp:bool=0"]
"""Options that keep LLVM from packing the scalar kernel's neighbours into vectors of its own
accord."""

# Sizes of the micro-benchmarks: figures of profiles compare because all were measured with them.
FLOP_DEPTH, FLOP_PASSES, FLOP_JOBS = 128, 16, 64
"""Rows of both factors that a job multiplies, over and over: under 28 KB, which a first-level
cache keeps."""

STREAM_ELEMENTS = 32 * 1024 * 1024
"""Elements of an array: 128 MiB, beyond any cache this toolkit has met."""

READ_VECTORS = 8
"""Number of independent sums of a reading thread: enough to hide the latency of an addition."""

READ_BYTES = 64 * 1024 * 1024
"""Bytes that a thread reads from a cache in one run, over and over."""


def host_target(cores: int) -> dict[str, Any]:
    """TVM's target for this CPU as a dictionary.

    It names an Arm's triple: without one, whoever builds for it elsewhere would build for his own.
    """
    target = {"kind": "llvm", "mcpu": host.llvm_cpu(), "num-cores": cores}
    if has_tiles(target) and not host.allow_tiles():
        target["mattr"] = WITHOUT_TILES
    machine = platform.machine()
    return target if machine == "x86_64" else target | {"mtriple": f"{machine}-linux-gnu"}


def restricted(target: dict[str, Any], isa: str) -> dict[str, Any]:
    """The target of this CPU with vector instructions no wider than `isa`.

    Raises:
        RequestError: This CPU lacks them.
    """
    own = vector_isa(target)[0]
    isas = [name for _, name, _ in ISAS.get(platform.machine(), ())] + ["scalar"]
    available = [name for name in isas[isas.index(own) :] if name == own or name in RESTRICTED_CPU]
    if isa not in available:
        raise RequestError(
            f"--isa {isa} on this machine", f"one of {', '.join(available)}", "choose one"
        )
    return target if isa == own else target | {"mcpu": RESTRICTED_CPU[isa]}


def vector_isa(target: dict[str, Any]) -> tuple[str, int]:
    """Name and register width in bytes of the widest vector unit that a target has."""
    features = set(codegen.llvm_get_cpu_features(tvm.target.Target(target)))
    machine = target["mtriple"].split("-")[0] if "mtriple" in target else platform.machine()
    for feature, name, width in ISAS.get(machine, ()):
        if feature in features:
            return name, width
    return "scalar", 4


def code_features(target: Mapping[str, Any]) -> list[str]:
    """LLVM's names of the CPU features of a target that instructions are made from.

    What runs on the CPU beside a GPU is compiled for any CPU: there are none.
    """
    if target["kind"] != "llvm":
        return []
    found = codegen.llvm_get_cpu_features(tvm.target.Target(dict(target)))
    return sorted(str(name) for name in found if CODE_FEATURES.match(str(name)))


def linker(target: Mapping[str, Any]) -> Callable[..., Any]:
    """What links a library for a target: this machine's g++, or that of another's triple."""
    command = host.cross_compiler(target)
    if command is None:
        return _link_with_tiles if has_tiles(target) else cast(Callable[..., Any], cc.create_shared)
    # Without a triple TVM takes this machine's for what it packs beside object files.
    linked = cc.cross_compiler(command, get_target_triple=lambda: target["mtriple"])
    return cast(Callable[..., Any], linked)


def has_tiles(target: Mapping[str, Any]) -> bool:
    """Whether programs for a target may use AMX's tiles."""
    if target["kind"] != "llvm":
        return False
    return bool(codegen.target_has_features("amx-tile", tvm.target.Target(dict(target))))


@functools.wraps(cc.create_shared)
def _link_with_tiles(output: str, objects: Any, *arguments: Any, **options: Any) -> None:
    objects = [objects] if isinstance(objects, str) else objects
    cc.create_shared(output, [*objects, str(ASK_FOR_TILES)], *arguments, **options)


LIBRARY = "probe.so"


class ShortProbe:
    """One kernel of the peak, quick enough to be run at every connection to a device.

    Args:
        target: Target of the device.
        tile: Rows and vectors of accumulators, default (6, 2), which fits 16 registers.
        repeats: Number of runs in a row, default 10; the fastest counts.
        longest_s: Seconds for which it tries again while it finds too little, default 1.
    """

    def __init__(
        self,
        target: dict[str, Any],
        *,
        tile: tuple[int, int] = (6, 2),
        repeats: int = 10,
        longest_s: float = 1.0,
    ) -> None:
        self._target = target
        self._tile, self._repeats, self._longest_s = tile, repeats, longest_s
        self._library = bytearray()

    def on(self, remote: Any) -> Callable[[float], float]:
        """A function that measures GFLOP/s of an RPC session, which the kernel is sent to.

        It tries again, for `longest_s`, while it has found less than its argument.
        """
        lanes = vector_isa(self._target)[1] // 4
        schedule, shapes, work = _multiply_add_schedule(lanes, self._tile)
        if not self._library:  # kept as bytes: its process may be killed and leave a folder behind
            executable = tvm.compile(schedule.mod, tvm.target.Target(self._target))
            with tempfile.TemporaryDirectory(prefix="hetfeat-probe-") as folder:
                path = Path(folder) / LIBRARY
                executable.export_library(str(path), fcompile=linker(self._target))
                self._library = bytearray(path.read_bytes())
        remote.upload(self._library, LIBRARY)
        function, device = remote.load_module(LIBRARY), remote.cpu()
        arrays = [tvm.runtime.empty(shape, "float32", device) for shape in shapes]
        for array in arrays:
            remote.get_function(FILL)(array)

        def gflops(enough: float) -> float:
            timer = function.time_evaluator("main", device, number=1, repeat=self._repeats)
            best, started_s = 0.0, time.monotonic()
            while (best < enough and time.monotonic() - started_s < self._longest_s) or best == 0.0:
                best = max(best, work / float(min(timer(*arrays).results)))
            return best

        return gflops


def measure(target: dict[str, Any], *, rounds: int = 8) -> dict[str, float]:
    """All figures of a target, by the names of the fields of `DeviceProfile`.

    All kernels take turns, so that another process that runs for a second spoils none of them.

    Args:
        target: TVM's target, with its number of cores.
        rounds: Turns of each kernel, default 8; the fastest counts.
    """
    lanes = vector_isa(target)[1] // 4
    threads = int(target["num-cores"])
    kernels = {
        "peak_gflops": [_multiply_add(target, lanes, tile) for tile in REGISTER_TILES],
        "scalar_gflops": [
            _multiply_add(target | {"cl-opt": NO_VECTORS}, 1, tile) for tile in REGISTER_TILES
        ],
        "bandwidth_gb_s": [_scale(target)],
        "fork_join_us": [_fork_join(target)],
    }
    for level, size in host.cache_bytes().items():
        share = size // threads if level == 3 else size
        kernels[f"l{level}_gb_s"] = [_read(target, lanes, share // 2)]
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, variants in kernels.items():
            best[name] = max([best.get(name, 0.0), *(kernel.rate() for kernel in variants)])
    return best | {"fork_join_us": 1e6 / best["fork_join_us"]}


@dataclass(frozen=True)
class _Kernel:
    """A compiled micro-benchmark.

    Attributes:
        function: Compiled function whose `main` takes `arrays`.
        arrays: Arrays of fp32, on the CPU.
        work: Amount that a run does, in units of the figure times seconds.
        number: Number of runs timed as one.
    """

    function: Any
    arrays: list[Any]
    work: float
    number: int

    def rate(self) -> float:
        """Work a second, the best of a few repeats."""
        timer = self.function.time_evaluator("main", tvm.cpu(), number=self.number, repeat=3)
        return self.work / float(min(timer(*self.arrays).results))


def _kernel(
    schedule: Schedule,
    target: dict[str, Any],
    shapes: list[tuple[int, ...]],
    work: float,
    number: int,
) -> _Kernel:
    function = tvm.compile(schedule.mod, tvm.target.Target(target)).jit()
    arrays = [tvm.runtime.tensor(np.ones(shape, "float32")) for shape in shapes]
    return _Kernel(function, arrays, work, number)


def _multiply_add(target: dict[str, Any], lanes: int, tile: tuple[int, int]) -> _Kernel:
    """GFLOP/s of a register-blocked multiply-add that stays in the first-level cache."""
    schedule, shapes, work = _multiply_add_schedule(lanes, tile)
    return _kernel(schedule, target, shapes, work, number=10)


def _multiply_add_schedule(
    lanes: int, tile: tuple[int, int]
) -> tuple[Schedule, list[tuple[int, ...]], float]:
    """The kernel of the peak, the shapes of its arguments, and its GFLOP."""
    rows, columns = tile[0], tile[1] * lanes
    shapes: list[tuple[int, ...]] = [
        (FLOP_JOBS, FLOP_DEPTH, rows),
        (FLOP_JOBS, FLOP_DEPTH, columns),
        (FLOP_JOBS, rows, columns),
    ]
    a, b = te.placeholder(shapes[0], name="a"), te.placeholder(shapes[1], name="b")
    again = te.reduce_axis((0, FLOP_PASSES), name="again")
    k = te.reduce_axis((0, FLOP_DEPTH), name="k")
    c = te.compute(
        shapes[2], lambda j, r, n: te.sum(a[j, k, r] * b[j, k, n], axis=[again, k]), name="c"
    )
    schedule = Schedule(te.create_prim_func([a, b, c]))
    job, row, column, *reduced = schedule.get_loops(schedule.get_sblock("c"))
    vector, lane = schedule.split(column, [None, lanes])
    schedule.reorder(job, *reduced, row, vector, lane)
    _keep_in_registers(schedule, job, reduced[0], [row, vector], lane)
    work = 2 * FLOP_JOBS * FLOP_PASSES * FLOP_DEPTH * rows * columns / 1e9
    return schedule, shapes, work


def _read(target: dict[str, Any], lanes: int, thread_bytes: int) -> _Kernel:
    """GB/s of all threads reading, each its own `thread_bytes` over and over."""
    threads, columns = int(target["num-cores"]), lanes * READ_VECTORS
    rows = max(1, thread_bytes // (4 * columns))
    passes = max(1, READ_BYTES // (4 * columns * rows))
    a = te.placeholder((threads, rows, columns), name="a")
    again, row = te.reduce_axis((0, passes), name="again"), te.reduce_axis((0, rows), name="row")
    c = te.compute(
        (threads, columns), lambda t, n: te.sum(a[t, row, n], axis=[again, row]), name="c"
    )
    schedule = Schedule(te.create_prim_func([a, c]))
    thread, column, *reduced = schedule.get_loops(schedule.get_sblock("c"))
    vector, lane = schedule.split(column, [None, lanes])
    schedule.reorder(thread, *reduced, vector, lane)
    _keep_in_registers(schedule, thread, reduced[0], [vector], lane)
    shapes: list[tuple[int, ...]] = [(threads, rows, columns), (threads, columns)]
    work = 4 * threads * passes * rows * columns / 1e9
    return _kernel(schedule, target, shapes, work, number=3)


def _scale(target: dict[str, Any]) -> _Kernel:
    """GB/s of `b = 2a` in DRAM, the read and the write counted once each."""
    schedule = _doubling((STREAM_ELEMENTS,))
    outer, inner = schedule.split(schedule.get_loops(schedule.get_sblock("b"))[0], [None, 16])
    schedule.parallel(outer)
    schedule.vectorize(inner)
    work = 2 * 4 * STREAM_ELEMENTS / 1e9
    return _kernel(schedule, target, [(STREAM_ELEMENTS,)] * 2, work, number=1)


def _fork_join(target: dict[str, Any]) -> _Kernel:
    """Parallel loops a second, of one multiplication a thread."""
    shape = (int(target["num-cores"]),)
    schedule = _doubling(shape)
    schedule.parallel(schedule.get_loops(schedule.get_sblock("b"))[0])
    return _kernel(schedule, target, [shape] * 2, 1.0, number=2000)


def _doubling(shape: tuple[int]) -> Schedule:
    source = te.placeholder(shape, name="a")
    doubled = te.compute(shape, lambda i: source[i] * te.const(2.0, "float32"), name="b")
    return Schedule(te.create_prim_func([source, doubled]))


def _keep_in_registers(
    schedule: Schedule, job: Any, reduced: Any, unrolled: list[Any], lane: Any
) -> None:
    """Sums of block `c` in registers while the loops from `reduced` on run; jobs in parallel."""
    block = schedule.get_sblock("c")
    lanes = schedule.get(lane).extent
    registers = schedule.cache_write(block, 0, "local")
    schedule.parallel(job)
    schedule.reverse_compute_at(registers, job)
    for loop in unrolled:
        schedule.unroll(loop)
    schedule.vectorize(lane)
    _, written = schedule.split(schedule.get_loops(registers)[-1], [None, lanes])
    schedule.vectorize(written)
    schedule.decompose_reduction(block, reduced)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    sys.stdout.write(json.dumps(measure(json.loads(sys.argv[1]))))
