"""What proposing and building take, by the way a convolution is computed.

    python benchmarks/builds.py [--network resnet18] [--programs 8]

Of the network's largest tasks, one of each way, so many random programs are drawn with their
features, then built, one after the other in one process. Nothing else may run.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hetfeat.devices.probe import local_profile
from hetfeat.measure.child import Service
from hetfeat.measure.messages import AddTask, BuildProgram, SamplePrograms
from hetfeat.measure.worker_pool import PoolOptions
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.relax import (
    as_target,
    extract_tasks,
    import_network,
    in_layout,
    into_kernels,
    save_workload,
)
from hetfeat.workloads.winograd import TRANSFORMS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--programs", type=int, default=8)
    given = parser.parse_args()
    profile = local_profile()
    target = as_target(profile.target)
    prepared = in_layout(import_network(load_network(given.network)), target)
    service = Service(PoolOptions().start(profile))
    print(
        "| way | proposing, s a program | building, s: median | most |\n| --- | --- | --- | --- |"
    )
    for tile in (None, *TRANSFORMS):
        tasks = extract_tasks(into_kernels(prepared, target, lambda _, tile=tile: tile), target)
        operator = "winograd" if tile else "conv2d"
        task = next(t for t in tasks if t.task.operator == operator)
        key = task.task.hash
        service.add_task(AddTask(task=key, module=save_workload(task.module)))
        service.sample(SamplePrograms(task=key, count=1, seed=1))  # makes the design space
        started = time.monotonic()
        found = service.sample(SamplePrograms(task=key, count=given.programs, seed=0))
        proposing_s = (time.monotonic() - started) / len(found)
        took_s = []
        for number, (trace, _) in enumerate(found):
            started = time.monotonic()
            name = f"{operator} {tile} {number}"
            service.build(BuildProgram(task=key, program=name, trace=trace))
            took_s.append(time.monotonic() - started)
        way = f"F({tile},3)" if tile else "direct"
        print(
            f"| {way} | {proposing_s:.3f} | {statistics.median(took_s):.2f} | {max(took_s):.2f} |"
        )


if __name__ == "__main__":
    main()
