"""A round of our search beside one of TVM's: what choosing costs, and how fast the chosen are.

    python benchmarks/rounds.py --out FILE [--tasks 12] [--history 16] [--seed 0]

Tasks are drawn from the packaged records of this device: of convolutions and matrix products, one
an anchor. A cost model learns from the records of all other anchors, then from the first
`--history` of each drawn task. From these both searches choose, with that model and of the same
sketches: TVM's EvolutionarySearch with its defaults (a population of 512, four generations, rounds
of 64), our unapplied traces in rounds of 64, also with half as many applied, and of 8, as `deploy`
asks for.
Seconds are of the processor, over all threads and children; TVM's are given without those of the
cost model, too, features included, since its own would be another. All that was chosen is then
measured in a random order.

FILE keeps a line a task; those that are in it are not made again. Prints Markdown. Nothing else may
run; a task takes about 50 s.
"""

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import psutil
import tvm.s_tir.meta_schedule as ms
from search import read_lines, table
from transfer_pairs import trained
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.cost_model import PyCostModel

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.probe import local_profile
from hetfeat.devices.profile import DeviceProfile
from hetfeat.features.assemble import assemble
from hetfeat.features.per_store import StoreFeatures
from hetfeat.measure.local import LocalMeasurer
from hetfeat.models.base import CostModel
from hetfeat.records import Measurement, Program, Task, anchor_of
from hetfeat.schedules import trace as traces
from hetfeat.schedules.design_space import TaskSpace, replay
from hetfeat.search.evolution import Evolution, EvolutionConfig
from hetfeat.tune.guidance import ModelGuidance
from hetfeat.tune.scheduler import SchedulerConfig
from hetfeat.workloads.relax import as_target, load_workload

OPERATORS = ("conv2d", "matmul", "winograd")
ROUND = 64
"""Programs of a round of TVM's tuner."""
TVM = f"TVM's, {ROUND}"
USUAL, BATCH = EvolutionConfig(), SchedulerConfig().batch
HALF = EvolutionConfig(applied_per_pick=USUAL.applied_per_pick // 2)
OURS = {
    f"drafts, {ROUND}": (ROUND, USUAL),
    f"drafts, {ROUND}, half as many applied": (ROUND, HALF),
    f"drafts, {BATCH}": (BATCH, USUAL),
}
"""Programs of a round of ours, and settings of the search."""


@derived_object
class SameModel(PyCostModel):
    """A cost model of ours for TVM's search, and the seconds that it takes."""

    def __init__(self, context, guidance: ModelGuidance, task: Task) -> None:
        super().__init__()
        self.guidance, self.task = guidance, task
        self.spent_s = 0.0
        # By its extractor, which does many at once.
        self.features = StoreFeatures(context, guidance.profile.cache_line_bytes)._extractor

    def load(self, path: str) -> None:
        """There is none."""

    def save(self, path: str) -> None:
        """There is none."""

    def update(self, context, candidates, results) -> None:
        """It has learnt already."""

    def predict(self, context, candidates):
        """Positive, as TVM draws parents by them."""
        began = time.process_time()
        stores = self.features.extract_from(context, candidates)
        programs = [
            Program(self.task, text_of(candidate), np.asarray(rows.numpy(), np.float32))
            for candidate, rows in zip(candidates, stores, strict=True)
        ]
        scores = np.asarray(self.guidance.score(self.task, programs), np.float64)
        self.spent_s += time.process_time() - began
        return np.maximum(np.exp(scores - scores.max()), 1e-6)


def text_of(candidate) -> str:
    return traces.dump(candidate.sch.trace.as_json())


def tvm_round(module, history: Sequence[Measurement], guidance: ModelGuidance, seed: int):
    """What TVM's search chooses, and the seconds without the cost model's and with them."""
    task = history[0].program.task
    profile, target = guidance.profile, as_target(guidance.profile.target)
    space = TaskSpace(module, target, profile.cache_line_bytes)
    context = ms.TuneContext(
        module,
        target=target,
        space_generator="post-order-apply",
        search_strategy="evolutionary",
        num_threads=profile.threads,
        rand_state=seed + 1,
    )
    database = ms.database.MemoryDatabase()
    workload = database.commit_workload(module)
    for measured in history:
        schedule = replay(module, measured.program.trace)
        taken = [float(s) for s in measured.latencies_s]
        database.commit_tuning_record(
            ms.database.TuningRecord(schedule.trace, workload, taken, target)
        )
    model = SameModel(context, guidance, task)
    sketches = [*context.generate_design_space(), *space._custom_sketches()]
    context.pre_tuning(10 * ROUND, ROUND, sketches, database, model)
    began = time.process_time()
    chosen = context.generate_measure_candidates()
    spent_s = time.process_time() - began
    context.post_tuning()
    return [Program(task, text_of(c)) for c in chosen], spent_s - model.spent_s, spent_s


def our_round(
    measurer: LocalMeasurer,
    history: Sequence[Measurement],
    guidance: ModelGuidance,
    seed: int,
    count: int,
    config: EvolutionConfig,
):
    """What our search chooses, and the seconds; its models are a part of it."""
    task = history[0].program.task
    asked = guidance.for_task(task)
    assert asked.rank_traces is not None
    search = Evolution(task, measurer, seed, guidance=asked, config=config)
    search.tell(history)
    began = processor_s()
    chosen = search.ask(count)
    spent_s = processor_s() - began
    return chosen, None, spent_s


def processor_s() -> float:
    """Of this process and its children so far."""
    children = psutil.Process().children(recursive=True)
    times = [child.cpu_times() for child in children]
    return time.process_time() + sum(t.user + t.system for t in times)


def drawn(
    store: RecordStore, profile: DeviceProfile, count: int, history: int, seed: int
) -> list[list[Measurement]]:
    """Records of the drawn tasks, as they were measured."""
    found: dict[str, list[Measurement]] = {}
    for part in store.scan(device=profile.name):
        for measured in from_table(part):
            if measured.latency_s and measured.program.task.operator in OPERATORS:
                found.setdefault(measured.program.task.hash, []).append(measured)
    anchors = {}
    for own in found.values():
        if len(own) >= history:
            anchors[own[0].program.task.anchor] = sorted(own, key=lambda m: m.unix_s)
    if len(anchors) < count:
        raise SystemExit(f"{profile.name}: {len(anchors)} anchors with records, not {count}")
    return random.Random(seed).sample([anchors[name] for name in sorted(anchors)], count)


def taught(store: RecordStore, withheld: set[str], seed: int) -> CostModel:
    """A model of the records of all but some anchors."""
    examples = assemble(store).examples
    own = zip(examples.operator, examples.shapes, strict=True)
    kept = [anchor_of(operator, json.loads(shapes)) not in withheld for operator, shapes in own]
    assert not all(kept)
    return trained(examples.take(np.flatnonzero(kept)), seed)


def rounds(given: argparse.Namespace) -> Iterator[dict]:
    store = RecordStore.open(packaged_store())
    profile = local_profile()
    records = drawn(store, profile, given.tasks, given.history, given.seed)
    done = {line["task"] for line in read_lines(given.out)}
    todo = [own for own in records if own[0].program.task.hash not in done]
    if not todo:
        return
    withheld = {own[0].program.task.anchor for own in records}
    guidance = ModelGuidance(taught(store, withheld, given.seed), profile, given.seed)
    known = [m for own in records for m in own[: given.history]]
    guidance.add_to_support_sets(known)
    guidance.learn(known)
    modules = store.workloads()
    with LocalMeasurer(profile) as measurer:
        for own in todo:
            yield one_task(measurer, own[: given.history], guidance, modules, given.seed)


def one_task(measurer, history, guidance, modules, seed) -> dict:
    task = history[0].program.task
    text = modules[task.hash]
    measurer.add_task(task, text)
    measurer.sample(task, 1, 0)  # its children have made the task's sketches by then
    found = {TVM: tvm_round(load_workload(text), history, guidance, seed)}
    for name, (count, config) in OURS.items():
        found[name] = our_round(measurer, history, guidance, seed, count, config)
    programs = {p.key: p for chosen, *_ in found.values() for p in chosen}
    order = random.Random(seed).sample(sorted(programs), len(programs))
    measured = measurer.measure([programs[key] for key in order])
    latency_s = {m.program.key: m.latency_s for m in measured}
    ways = {
        name: {
            "search_s": search_s,
            "spent_s": spent_s,
            "latencies_s": [latency_s[program.key] for program in chosen],
        }
        for name, (chosen, search_s, spent_s) in found.items()
    }
    known_s = min(m.latency_s for m in history)
    return {"task": task.hash, "anchor": task.anchor, "known_s": known_s, "ways": ways}


def summary(lines: Sequence[dict]) -> str:
    rows = []
    for name in (TVM, *OURS):
        ways = [line["ways"][name] for line in lines]
        ran = [ran_s(way) for way in ways]
        pairs = list(zip(ran, [ran_s(line["ways"][TVM]) for line in lines], strict=True))
        best = [min(own) / min(theirs) for own, theirs in pairs]
        middle = [statistics.median(own) / statistics.median(theirs) for own, theirs in pairs]
        known = [min(own) / line["known_s"] for own, line in zip(ran, lines, strict=True)]
        taken = [[way[key] for way in ways] for key in ("search_s", "spent_s")]
        seconds = ["" if None in each else f"{statistics.median(each):.2f}" for each in taken]
        chosen = sum(len(way["latencies_s"]) for way in ways)
        rows.append(
            [
                name,
                *seconds,
                *map(spread, (best, middle, known)),
                f"{sum(map(len, ran))} of {chosen}",
            ]
        )
    head = ["round", "processor s without the model", "with it", "fastest chosen / TVM's"]
    head += ["median chosen / TVM's", "fastest chosen / fastest known", "ran"]
    return table(head, rows)


def ran_s(way: dict) -> list[float]:
    return [seconds for seconds in way["latencies_s"] if seconds is not None]


def spread(ratios: Sequence[float]) -> str:
    """Geometric mean (least to most)."""
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    return f"{mean:.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--history", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for line in rounds(given):
        with given.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(line["anchor"], line["ways"], file=sys.stderr)
    print(summary(read_lines(given.out)))


if __name__ == "__main__":
    main()
