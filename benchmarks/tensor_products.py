"""Products of two quantised tensors, as attentions have them: random programs of both kinds.

    python benchmarks/tensor_products.py [--device avx2.yaml] [--programs 24]

Of each kernel the fastest and the median of MetaSchedule's programs and of ours are told, in
milliseconds, on random data. Nothing else may run.
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from concatenations import timed

from hetfeat.devices.probe import find_profile
from hetfeat.schedules.trace import is_custom_sketch

KERNELS = ((12, 208, 64, 208), (12, 208, 208, 64), (12, 128, 64, 128), (12, 128, 128, 64))
"""Heads, rows, depth and columns: scores and shares times values of ViT-B/16 and BERT-base."""


def kernel(heads: int, rows: int, depth: int, columns: int) -> Any:
    import tvm
    from tvm import te

    left = te.placeholder((1, heads, rows, depth), "int16", name="left")
    right = te.placeholder((1, heads, depth, columns), "int16", name="right")
    along = te.reduce_axis((0, depth), name="k")
    summed = te.compute(
        (1, heads, rows, columns),
        lambda i, head, row, column: te.sum(
            left[i, head, row, along].astype("int32")
            * right[i, head, along, column].astype("int32"),
            axis=along,
        ),
        name="matmul",
    )
    scaled = te.compute(summed.shape, lambda *at: summed(*at).astype("float32") * 0.01)
    return tvm.IRModule({"main": te.create_prim_func([left, right, scaled])})


def row(shape: tuple[int, ...], target: Any, line_bytes: int, programs: int) -> str:
    from hetfeat.schedules.design_space import TaskSpace, replay

    module = kernel(*shape)
    took_ms: dict[bool, list[float]] = {False: [], True: []}
    for trace, _ in TaskSpace(module, target, line_bytes, all_sketches=True).sample(programs, 0):
        us, _ = timed(replay(module, trace).mod, target)
        took_ms[is_custom_sketch(trace)].append(us / 1e3)
    cells = [
        f"{len(took)}, {min(took):.3f}, {statistics.median(took):.3f}" for took in took_ms.values()
    ]
    ratio = min(took_ms[True]) / min(took_ms[False])
    heads, rows, depth, columns = shape
    name = f"{heads} of {rows}x{depth} and {depth}x{columns}"
    return f"| {name} | {' | '.join(cells)} | {ratio:.2f} |"


def main() -> None:
    from hetfeat.workloads.relax import as_target

    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device", default="local", help="this machine, or a part of it")
    options.add_argument("--programs", type=int, default=24, help="programs of both kinds")
    given = options.parse_args()
    profile = find_profile(given.device)
    print("| kernel | MetaSchedule's: programs, fastest, median, ms | ours: the same | ratio |")
    print("| --- | --- | --- | --- |")
    for shape in KERNELS:
        cells = row(shape, as_target(profile.target), profile.cache_line_bytes, given.programs)
        print(cells, flush=True)


if __name__ == "__main__":
    main()
