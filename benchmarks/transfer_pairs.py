"""Tuning a network with what another device's records taught, against tuning from scratch.

    python benchmarks/transfer_pairs.py tune --out DIR [--network resnet18] [--trials 960]
        [--isas avx512,avx2,sse42] [--sources NAME,...] [--repeats 3] [--source-repeats 1]
    python benchmarks/transfer_pairs.py table --out DIR
    python benchmarks/transfer_pairs.py sources --out DIR [--sources NAME,...] [--repeats 3]

Targets are profiles of this machine, one for each instruction set and one with a single thread.
Sources are the devices of the packaged records: the cost model and the library of schedules come
from one device's records alone. `others` is all of them but the target, `shuffled` the first of
`--sources` with its latencies shuffled within each task. From scratch there are `--repeats` runs,
whose spread says what a difference means, with each source `--source-repeats`.

What a run had found after some shares of the trials is measured again at the end, all runs of a
target in turns; a network is the sum over its tasks. A run that has ended is not repeated: the same
command goes on. Nothing else may run. Convolutions are computed directly.

`sources` trains each source `--repeats` times, as it is and with its latencies shuffled, and says
how well it orders its own valid side: a source may be dropped by that before anything is measured.
"""

import argparse
import json
import math
import shutil
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from search import read_lines, table

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.splits import split_examples
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.probe import probe
from hetfeat.devices.profile import DeviceProfile, load_profile, save_profile
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.measure.local import LocalMeasurer
from hetfeat.models.base import CostModel
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group
from hetfeat.records import Measurement, Program
from hetfeat.transfer.schedule_library import ScheduleLibrary
from hetfeat.tune.session import Budget
from hetfeat.tune.tuner import TuningOptions, tune
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.relax import as_target, extract_tasks, import_network, lower, save_workload

SCRATCH, SHUFFLED, OTHERS = "scratch", "shuffled", "others"
SHARES = (1 / 6, 1 / 4, 1 / 3, 1 / 2, 3 / 4, 1)
"""Of the trials, after which a run is looked at."""
PASSES = 3
"""In how many processes each program is measured again; the median counts."""
CLOSE = 1.02


class Network:
    """A network's tasks on one target."""

    def __init__(self, name: str, profile: DeviceProfile) -> None:
        target = as_target(profile.target)
        lowered = lower(import_network(load_network(name)), target)
        self.tasks = extract_tasks(lowered, target)
        self.profile = profile

    def measurer(self) -> LocalMeasurer:
        measurer = LocalMeasurer(self.profile)
        for task in self.tasks:
            measurer.add_task(task.task, save_workload(task.module))
        return measurer


def source_store(devices: Sequence[str], shuffled: bool, root: Path) -> RecordStore:
    """Some devices' part of the packaged records."""
    folder = root / "+".join([*devices, *([SHUFFLED] if shuffled else [])])
    if folder.exists():
        return RecordStore.open(folder)
    packaged = RecordStore.open(packaged_store())
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    store = RecordStore.create(draft)
    for device in devices:
        records = [m for part in packaged.scan(device=device) for m in from_table(part)]
        store.add_device(packaged.devices()[device])
        store.append(with_shuffled_latencies(records) if shuffled else records)
    draft.rename(folder)  # whole, whatever interrupts it
    return RecordStore.open(folder)


@cache
def learnt(devices: tuple[str, ...], shuffled: bool, root: Path) -> tuple[CostModel, RecordStore]:
    """What some devices' records teach: a cost model, and the store of their schedules."""
    store = source_store(devices, shuffled, root)
    return trained(assemble(store).examples), store


def with_shuffled_latencies(records: Sequence[Measurement]) -> Iterator[Measurement]:
    rng = np.random.default_rng(0)
    rows: dict[str, list[int]] = {}
    for row, measured in enumerate(records):
        rows.setdefault(measured.program.task.hash, []).append(row)
    for own in rows.values():
        for row, other in zip(own, rng.permutation(own), strict=True):
            said = records[other]
            yield replace(records[row], latencies_s=said.latencies_s, error=said.error)


def trained(examples: Examples, seed: int = 0) -> CostModel:
    """A model with its drafts, of all examples: two sides of the split to learn, one to stop by."""
    split = split_examples(examples, "by_task", seed)
    train = examples.take(np.concatenate([split.train, split.test]))
    valid = examples.take(split.valid)
    model = build("xgb", "standard", seed, {})
    model.fit(train, valid)
    model.learn_unapplied_traces(train, valid)
    return model


def run_sources(given: argparse.Namespace) -> None:
    rows = []
    for name in given.sources or sorted(RecordStore.open(packaged_store()).devices()):
        examples = assemble(source_store((name,), False, given.out / "sources")).examples
        for seed in range(given.repeats):
            found = [trained(e, seed).valid_pca for e in (examples, shuffled(examples, seed))]
            said = ["-" if pca is None else f"{pca:.3f}" for pca in found]
            rows.append([name, str(len(examples)), str(seed), *said])
            print(*rows[-1], file=sys.stderr, flush=True)
    head = ["source", "records", "seed", "PCA on its valid side", "with shuffled latencies"]
    sys.stdout.write(table(head, rows) + "\n")


def shuffled(examples: Examples, seed: int) -> Examples:
    """The same with the latencies of each task in another order."""
    rng = np.random.default_rng(seed)
    latency_s = examples.latency_s.copy()
    for rows in by_group(group_codes(examples)[0]):
        latency_s[rows] = examples.latency_s[rng.permutation(rows)]
    return replace(examples, latency_s=latency_s)


def profiles(isas: Sequence[str], folder: Path) -> Iterator[DeviceProfile]:
    """This machine's profiles, probed once."""
    folder.mkdir(parents=True, exist_ok=True)
    for isa, threads in [*((isa, None) for isa in isas), (isas[0], 1)]:
        path = folder / f"{isa}-{threads or 'all'}.yaml"
        if not path.exists():
            save_profile(probe(threads=threads, isa=isa), path)
        yield load_profile(path)


def run_tune(given: argparse.Namespace) -> None:
    packaged = sorted(RecordStore.open(packaged_store()).devices())
    names = given.sources or packaged
    if unknown := set(names) - set(packaged):
        raise SystemExit(f"--sources {', '.join(unknown)}: some of {', '.join(packaged)}")
    for profile in profiles(given.isas, given.out / "devices"):
        network = Network(given.network, profile)
        folder = given.out / profile.name
        others = tuple(name for name in packaged if name != profile.name)
        taught: dict[str, tuple[str, ...]] = {n: (n,) for n in names if n != profile.name}
        taught |= {SHUFFLED: (names[0],), OTHERS: others}
        runs = [(SCRATCH, seed) for seed in range(given.repeats)]
        runs += [(name, seed) for name in taught for seed in range(given.source_repeats)]
        for name, seed in runs:
            if (folder / f"{name}-{seed}.json").exists():
                continue
            source = None
            if name != SCRATCH:
                source = learnt(taught[name], name == SHUFFLED, given.out / "sources")
            one_run(network, source, given.trials, seed, folder / f"{name}-{seed}")
        known = {line["run"] for line in read_lines(folder / "again.jsonl")}
        if known != {run.stem for run in folder.glob("*.json")}:
            measure_again(network, folder)
    run_table(given)


def one_run(
    network: Network,
    source: tuple[CostModel, RecordStore] | None,
    trials: int,
    seed: int,
    folder: Path,
) -> None:
    """Tunes, and writes each task's fastest program after each share of the trials."""
    resumed = folder.exists()
    journal = RecordStore.open(folder) if resumed else RecordStore.create(folder)
    if not resumed:
        journal.add_device(network.profile)
    model, library = None, None
    if source is not None:
        model, store = source
        withheld = [task.task for task in network.tasks]
        library = ScheduleLibrary.of(store, network.profile.name, withheld)
    with network.measurer() as measurer:
        tasks = [(task.task, task.weight) for task in network.tasks]
        budget = Budget(math.inf, 0, trials)
        tuned = tune(
            tasks,
            measurer=measurer,
            journal=journal,
            budget=budget,
            options=TuningOptions(seed=seed),
            model=model,
            library=library,
        )
    if tuned.is_partial:
        raise KeyboardInterrupt
    found = [m for part in journal.scan() for m in from_table(part)]
    found.sort(key=lambda m: m.unix_s)
    states = [
        {"trials": min(count, len(found)), "tasks": fastest(found[:count])}
        for count in (round(share * trials) for share in SHARES)
    ]
    folder.with_suffix(".json").write_text(json.dumps(states))


def fastest(found: Iterable[Measurement]) -> dict[str, str]:
    best: dict[str, Measurement] = {}
    for m in found:
        task = m.program.task.hash
        if m.latency_s and (task not in best or m.latency_s < (best[task].latency_s or 0.0)):
            best[task] = m
    return {task: m.program.trace for task, m in best.items()}


def measure_again(network: Network, folder: Path) -> None:
    """Latencies of all that the runs of a target had found, task by task, in several processes."""
    tasks = {task.task.hash: task.task for task in network.tasks}
    found = {
        (task, trace)
        for run in sorted(folder.glob("*.json"))
        for state in json.loads(run.read_text())
        for task, trace in state["tasks"].items()
    }
    programs = [Program(tasks[task], trace) for task, trace in sorted(found)]
    seconds: dict[tuple[str, str], list[float]] = {pair: [] for pair in found}
    for number in range(PASSES):
        order = programs if number % 2 == 0 else programs[::-1]
        with network.measurer() as measurer:
            for m in measurer.measure_each(order):
                if m.latency_s:
                    seconds[m.program.task.hash, m.program.trace].append(m.latency_s)
    weights = {task.task.hash: task.weight for task in network.tasks}
    medians = {pair: statistics.median(taken) for pair, taken in seconds.items() if taken}
    with (folder / "again.jsonl").open("w") as file:
        for run in sorted(folder.glob("*.json")):
            for state in json.loads(run.read_text()):
                pairs = state["tasks"].items()
                times_s = [weights[pair[0]] * medians[pair] for pair in pairs if pair in medians]
                ms = 1e3 * sum(times_s) if len(times_s) == len(weights) else None
                line = {"run": run.stem, "trials": state["trials"], "ms": ms}
                print(json.dumps(line), file=file)


def run_table(given: argparse.Namespace) -> None:
    rows = []
    for again in sorted(given.out.glob("*/again.jsonl")):
        curves: dict[str, list[tuple[int, float]]] = {}
        for line in read_lines(again):
            ms = math.inf if line["ms"] is None else line["ms"]
            curves.setdefault(line["run"], []).append((line["trials"], ms))
        scratch = [curve[-1] for run, curve in curves.items() if run.startswith(SCRATCH)]
        base_ms = statistics.median(ms for _, ms in scratch)
        trials = max(count for count, _ in scratch)
        for run, curve in curves.items():
            enough = next((n for n, ms in curve if ms <= CLOSE * base_ms < math.inf), None)
            ratios = [f"{ms / base_ms:.3f}" for _, ms in curve]
            share = "-" if enough is None else f"{enough / trials:.2f}"
            rows.append([again.parent.name, run, *ratios, share])
    shares = [f"{share:.2f}" for share in SHARES]
    head = ["target", "source, seed", *shares, "trials to be within 2 %"]
    sys.stdout.write("Times the median from scratch with all trials, by share of the trials\n\n")
    sys.stdout.write(table(head, rows) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("do", choices=("tune", "table", "sources"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--trials", type=int, default=960)
    parser.add_argument(
        "--isas", type=lambda text: text.split(","), default=["avx512", "avx2", "sse42"]
    )
    parser.add_argument("--sources", type=lambda text: text.split(","), default=[])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--source-repeats", type=int, default=1)
    given = parser.parse_args()
    {"tune": run_tune, "table": run_table, "sources": run_sources}[given.do](given)


if __name__ == "__main__":
    main()
