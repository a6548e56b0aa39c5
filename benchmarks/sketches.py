"""Random programs of MetaSchedule's sketches beside those of ours.

    python benchmarks/sketches.py [--network resnet50] [--tasks 12] [--programs 16]
                                  [--operator conv2d] [--device avx2.yaml]

Of the tasks of a network with the most FLOPs, each convolution in every way, so many random
programs of each kind are measured in turn on this machine, and the fastest and the median told: how
good a design space is before anything is searched in it. Nothing else may run.
"""

import argparse
import statistics
import sys
from itertools import chain, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from generations import largest

from hetfeat.devices.probe import find_profile
from hetfeat.measure.local import LocalMeasurer
from hetfeat.schedules.trace import is_custom_sketch
from hetfeat.workloads.relax import save_workload

DRAWN_PER_PROGRAM = 4
"""MetaSchedule has up to three sketches of a task, we have two."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--network", default="resnet50")
    options.add_argument("--tasks", type=int, default=12)
    options.add_argument("--programs", type=int, default=16)
    options.add_argument("--operator", help="by default all of them")
    options.add_argument("--device", default="local", help="this machine, or a part of it")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    profile = find_profile(given.device)
    rows = [
        "| task | MetaSchedule's: programs, fastest, median, ms | ours | "
        "ours / theirs: fastest, median |",
        "| --- | --- | --- | --- |",
    ]
    ratios = []
    with LocalMeasurer(profile) as measurer:
        tasks = largest(given.network, profile)
        wanted = (t for t in tasks if given.operator in (None, t.task.operator))
        for found in islice(wanted, given.tasks):
            task = found.task
            measurer.add_task(task, save_workload(found.module))
            drawn = measurer.sample(task, DRAWN_PER_PROGRAM * given.programs, given.seed)
            kinds = [
                [p for p in drawn if is_custom_sketch(p.trace) is ours] for ours in (False, True)
            ]
            if not all(kinds):
                continue
            turns = zip(*(islice(kind, given.programs) for kind in kinds), strict=False)
            done = measurer.measure([*chain.from_iterable(turns)], {})
            ran = [
                [
                    1e3 * m.latency_s
                    for m in done
                    if is_custom_sketch(m.program.trace) is own and m.latency_s
                ]
                for own in (False, True)
            ]
            if not all(ran):
                continue
            (best, median), (own_best, own_median) = (
                (min(latencies), statistics.median(latencies)) for latencies in ran
            )
            ratios.append((own_best / best, own_median / median))
            shapes = " ".join("x".join(map(str, shape)) for shape in task.shapes[:2])
            rows.append(
                f"| {task.operator} {shapes} | {len(ran[0])}, {best:.3f}, {median:.3f} "
                f"| {len(ran[1])}, {own_best:.3f}, {own_median:.3f} "
                f"| {ratios[-1][0]:.2f}, {ratios[-1][1]:.2f} |"
            )
            print(rows[-1], file=sys.stderr)
    print(*rows, sep="\n")
    means = [statistics.geometric_mean(column) for column in zip(*ratios, strict=True)]
    print(f"\nOurs / theirs, geometric means: fastest {means[0]:.2f}, median {means[1]:.2f}")


if __name__ == "__main__":
    main()
