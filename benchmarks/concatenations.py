"""Ways to compute a concatenation along channels, scaled, shifted and activated.

    python benchmarks/concatenations.py [--device avx2.yaml] [--limit 60]

Beside a random program of MetaSchedule's, channels are cut into pieces: as long as the inputs'
boundaries allow, of which each is code of its own or one step of a loop, or of one register.
Times are of this machine, whose profile `--device` may restrict. Nothing else may run.
"""

import argparse
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hetfeat.devices.probe import find_profile

KERNELS = (
    (7, 512, 32, 8),
    (7, 512, 32, 16),
    (14, 256, 32, 24),
    (28, 128, 32, 4),
    (28, 128, 32, 12),
    (56, 64, 32, 6),
    (14, 96, 48, 12),
    (14, 240, 240, 1),
)
"""Side of the image, channels of the first input, of each other, and how many others."""


def kernel(side: int, first: int, growth: int, others: int) -> Any:
    import tvm
    from tvm import te, topi

    channels = [first] + [growth] * others
    parts = [te.placeholder((1, side, side, c), name=f"part{at}") for at, c in enumerate(channels)]
    scale, shift = (te.placeholder((1, 1, 1, sum(channels)), name=name) for name in "ab")
    found = topi.nn.relu(topi.add(topi.multiply(topi.concatenate(parts, -1), scale), shift))
    return tvm.IRModule({"main": te.create_prim_func([*parts, scale, shift, found])})


def in_pieces(module: Any, piece: int, unrolled: bool) -> Any:
    from tvm.s_tir import Schedule

    schedule = Schedule(module)
    *others, output = schedule.get_child_blocks(schedule.get_sblock("root"))
    for block in others:
        schedule.compute_inline(block)
    *rows, channels = schedule.get_loops(output)
    pieces, elements = schedule.split(channels, [None, piece])
    schedule.vectorize(elements)
    if unrolled:
        schedule.unroll(pieces)
    schedule.parallel(schedule.fuse(*rows))
    return schedule.mod


def of_metaschedule(module: Any, target: Any) -> Any:
    import tvm.s_tir.meta_schedule as ms

    context = ms.TuneContext(
        module, target=target, space_generator="post-order-apply", num_threads=1, rand_state=1
    )
    (schedule, *_) = context.generate_design_space()
    schedule.enter_postproc()
    assert all(step.apply(schedule) for step in context.space_generator.postprocs)
    return schedule.mod


def timed(module: Any, target: Any) -> tuple[float, float]:
    """Microseconds of a run, and seconds to compile."""
    import numpy as np
    import tvm
    import tvm.s_tir.meta_schedule as ms

    start = time.perf_counter()
    built = tvm.compile(module, target)
    compiled_s = time.perf_counter() - start
    rng = np.random.default_rng(0)
    arguments = [
        tvm.runtime.tensor(
            (3 * rng.standard_normal([int(n) for n in given.shape])).astype(str(given.dtype))
        )
        for given in ms.arg_info.ArgInfo.from_entry_func(module, remove_preproc=False)
    ]
    timer = built.mod.time_evaluator("main", tvm.cpu(), number=30, repeat=9)
    return 1e6 * statistics.median(timer(*arguments).results), compiled_s


def ways(shape: tuple[int, ...], lanes: int, target: Any) -> dict[str, Callable[[], Any]]:
    from hetfeat.schedules.concatenated import LARGEST_PIECE

    module = kernel(*shape)
    _, first, growth, _ = shape
    whole = math.gcd(first, growth)
    whole = max(size for size in range(1, LARGEST_PIECE + 1) if whole % size == 0)
    return {
        "MetaSchedule's": lambda: of_metaschedule(module, target),
        "pieces in a loop": lambda: in_pieces(module, whole, False),
        "pieces unrolled": lambda: in_pieces(module, whole, True),
        "registers unrolled": lambda: in_pieces(module, math.gcd(whole, lanes), True),
    }


def run(shape: tuple[int, ...], way: str, device: str, answer: Any) -> None:
    from hetfeat.workloads.relax import as_target

    profile = find_profile(device)
    target = as_target(profile.target)
    lanes = (profile.vector_unit_bytes or 4) // 4
    answer.put(timed(ways(shape, lanes, target)[way](), target))


def told(shape: tuple[int, ...], way: str, device: str, limit_s: float) -> str:
    """The figures of a way, in a process of its own: LLVM may take minutes."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    child = context.Process(target=run, args=(shape, way, device, answer))
    child.start()
    child.join(limit_s)
    if child.is_alive():
        child.kill()
        return f"-, over {limit_s:.0f}"
    us, compiled_s = answer.get()
    return f"{us:.1f}, {compiled_s:.2f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device", default="local", help="this machine, or a part of it")
    options.add_argument("--limit", type=float, default=60, help="seconds for each figure")
    given = options.parse_args()
    names = list(ways(KERNELS[0], 8, None))
    print(f"| kernel | {' | '.join(f'{name}: us, compiled in s' for name in names)} |")
    print("| --- " * (len(names) + 1) + "|")
    for shape in KERNELS:
        side, first, growth, others = shape
        cells = [told(shape, name, given.device, given.limit) for name in names]
        print(
            f"| {side}x{side}: {first} and {others} x {growth} | {' | '.join(cells)} |", flush=True
        )


if __name__ == "__main__":
    main()
