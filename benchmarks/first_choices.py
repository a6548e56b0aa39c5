"""What a CPU wants of our sketches: sums in registers, steps that are unrolled, divided weights.

    python benchmarks/first_choices.py sums STORE STORE ...
    python benchmarks/first_choices.py divided STORE STORE ...
    python benchmarks/first_choices.py steps [--network resnet50] [--tasks 8] [--programs 4]
                                             [--isa avx2]

`sums` reads records: of the programs of our sketches, by device, operator and range of sums, how
much slower than their task's fastest they are. Tasks of fewer than 12 programs are left out.

`divided` reads records: of tasks with two programs at least of each sketch, how much slower the
fastest whose cores divide rows is than the fastest whose cores divide channels.

`steps` draws programs of this CPU's sketches that unroll some steps of each sum, and compiles the
same programs without. Both run on one thread in turn, warm; the least CPU time of a run counts.
"""

import argparse
import json
import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from generations import largest
from register_tiles import Built, loops_of

from hetfeat.dataset.store import RecordStore
from hetfeat.devices.probe import local_profile, probe
from hetfeat.schedules import trace as traces
from hetfeat.schedules.design_space import TaskSpace
from hetfeat.schedules.registers import STEPS, sums_of, unit_of
from hetfeat.schedules.threads import first_kept
from hetfeat.workloads.relax import NetworkTask, as_target

MIB = 2**20
RANGES = ((1, 3), (4, 7), (8, 11), (12, 15), (16, 23), (24, 28), (29, 10**6))
LEAST_PROGRAMS = 12


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def header(*names: str) -> None:
    row(*names)
    row(*("---" for _ in names))


def tasks_of(stores: Iterable[Path]) -> dict[tuple[str, str, str], list[tuple[int, float]]]:
    """Sums and seconds of the programs of our sketches, by device, operator and task."""
    found = defaultdict(list)
    for path in stores:
        store = RecordStore.open(path)
        lanes = {name: unit_of(profile).lanes for name, profile in store.devices().items()}
        for table in store.scan(["device", "operator", "task", "trace", "latencies_s"]):
            for record in table.to_pylist():
                sums = sums_of(json.loads(record["trace"]), lanes[record["device"]])
                if sums and record["latencies_s"]:
                    key = record["device"], record["operator"], record["task"]
                    found[key].append((sums, statistics.median(record["latencies_s"])))
    return found


def print_sums(stores: list[Path]) -> None:
    shares: dict[tuple[str, str], dict[tuple[int, int], list[list[float]]]]
    shares = defaultdict(lambda: defaultdict(list))
    for (device, operator, _), programs in tasks_of(stores).items():
        if len(programs) < LEAST_PROGRAMS:
            continue
        fastest = min(latency_s for _, latency_s in programs)
        for least, most in RANGES:
            if some := [one_s / fastest for sums, one_s in programs if least <= sums <= most]:
                shares[device, operator][least, most].append(some)
    header("device", "operator", "sums", "tasks", "the fastest of them", "the median")
    for (device, operator), by_range in sorted(shares.items()):
        for (least, most), tasks in sorted(by_range.items()):
            within = f"{least} to {most}" if most < RANGES[-1][1] else f"{least} and more"
            figures = [statistics.geometric_mean(map(of, tasks)) for of in (min, statistics.median)]
            row(device, operator, within, len(tasks), *(f"{figure:.2f}" for figure in figures))


def divides_rows(trace: traces.Trace) -> bool | None:
    """Whether cores divide rows, by a program of our sketches; None of others.

    By rows the parallel loop is fused.
    """
    instructions, _ = traces.without_postproc(trace)
    fused = {outputs[0] for kind, _, _, outputs in instructions if kind == "Fuse"}
    parallel = [inputs[0] for kind, inputs, *_ in instructions if kind == "Parallel"]
    return parallel[0] in fused if parallel else None


def print_divided(stores: list[Path]) -> None:
    seconds = defaultdict(lambda: ([], []))
    for path in stores:
        columns = ["device", "operator", "task", "shapes", "trace", "latencies_s"]
        for table in RecordStore.open(path).scan(columns):
            for record in table.to_pylist():
                rows = divides_rows(json.loads(record["trace"]))
                if rows is not None and record["latencies_s"]:
                    key = record["device"], record["operator"], record["task"], record["shapes"]
                    seconds[key][rows].append(statistics.median(record["latencies_s"]))
    ratios = defaultdict(list)
    for (device, operator, _, shapes), (channels_s, rows_s) in seconds.items():
        data, weights = (4 * math.prod(shape) for shape in json.loads(shapes)[:2])
        if operator in ("conv2d", "matmul", "winograd") and min(map(len, (channels_s, rows_s))) > 1:
            large = weights >= max(4 * MIB, data)
            ratios[device, operator, large].append(min(rows_s) / min(channels_s))
    header("device", "operator", "large weights", "tasks", "by rows, of by channels")
    for (device, operator, large), found in sorted(ratios.items()):
        row(device, operator, large, len(found), f"{statistics.geometric_mean(found):.2f}")


def rolled(trace: traces.Trace, sketch: traces.Trace) -> traces.Trace:
    """The same program of the sketch that unrolls no steps: the innermost loop has them all."""
    instructions, decisions = trace
    steps = {
        outputs[0]: inputs[-1]
        for kind, inputs, _, outputs in instructions
        if kind == "Split" and inputs[-1] in STEPS
    }
    drawn = []
    for index, value in decisions:
        times = steps.get(instructions[index][1][0] if instructions[index][1] else None, 1)
        drawn.append([*value[:-1], value[-1] * times] if times > 1 else value)
    return [sketch[0], [[at, value] for (at, _), value in zip(sketch[1], drawn, strict=True)]]


def own_sketches(space: TaskSpace) -> list[traces.Trace]:
    texts = (traces.dump(sketch.as_json()) for sketch in space._sketches)
    return [json.loads(text) for text in texts if traces.is_custom_sketch(text)]


def pairs(found: NetworkTask, target: Any, line_bytes: int, count: int) -> Iterator[list[Built]]:
    """Programs, each without unrolled steps and with."""
    without, with_steps = (
        TaskSpace(found.module, target, line_bytes, full_rate=rate) for rate in (False, True)
    )
    sketches = list(zip(own_sketches(without), own_sketches(with_steps), strict=True))
    rng = random.Random(0)
    for number in range(count if sketches else 0):
        plain, unrolling = sketches[number % len(sketches)]
        drawn = first_kept(partial(traces.drawn_anew, unrolling, rng), with_steps._keeps)
        applied = [
            without._applied(rolled(drawn, plain), rng),
            with_steps._applied(drawn, rng),
        ]
        if all(map(without._finish, applied)):
            texts = [traces.dump(schedule.trace.as_json()) for schedule in applied]
            yield [Built(found.module, text, target) for text in texts]


def print_steps(network: str, tasks: int, programs: int, rounds: int, isa: str | None) -> None:
    profile = probe(isa=isa) if isa else local_profile()
    target = as_target({**profile.target, "num-cores": 1})
    header("task", "loops", "counted, ms", "of it with unrolled steps")
    ratios = []
    for found in largest(network, profile, tasks):
        for pair in pairs(found, target, profile.cache_line_bytes, programs):
            for _ in range(rounds):
                for built in pair:
                    built.run()
            counted, unrolled = pair
            ratios.append(unrolled.best_s / counted.best_s)
            shapes = " ".join("x".join(map(str, shape)) for shape in found.task.shapes[:2])
            label = f"{found.task.operator} {shapes}"
            loops = loops_of(unrolled.trace)
            row(label, loops, f"{counted.best_s * 1e3:.3f}", f"{ratios[-1]:.3f}")
    error = statistics.stdev(map(math.log, ratios)) / math.sqrt(len(ratios))
    print(f"\ngeometric mean {statistics.geometric_mean(ratios):.3f}, standard error {error:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_subparsers(dest="mode", required=True)
    for mode in ("sums", "divided"):
        modes.add_parser(mode).add_argument("stores", type=Path, nargs="+")
    steps = modes.add_parser("steps")
    steps.add_argument("--network", default="resnet50")
    steps.add_argument("--tasks", type=int, default=8)
    steps.add_argument("--programs", type=int, default=4)
    steps.add_argument("--rounds", type=int, default=10)
    steps.add_argument("--isa", help="vectors to keep to; by default the widest there are")
    given = parser.parse_args()
    if given.mode == "sums":
        print_sums(given.stores)
    elif given.mode == "divided":
        print_divided(given.stores)
    else:
        print_steps(given.network, given.tasks, given.programs, given.rounds, given.isa)


if __name__ == "__main__":
    main()
