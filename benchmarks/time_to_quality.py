"""How long our tuner needs to be as good as TVM's own with its whole budget.

    python benchmarks/time_to_quality.py tune --network resnet50 --out DIR [--model DIR]
    python benchmarks/time_to_quality.py compare FOUND.json.gz DIR [DIR ...] [--at 30 60 120]

`tune` tunes as `deploy` does and notes when each record came. `compare` compiles what had been
found by certain times, and what the stock tuner (`stock_tuner.py`) had found after 25, 50 and 100 %
of its budget; all of them then take turns, each in a process of its own. Times of ours include the
cold measurements that choose between ways of computing a convolution, and the final compilation.
Nothing else may run.
"""

import argparse
import gzip
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ratios import ratio

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.deploy.bench import compare
from hetfeat.deploy.bundle import Variant, load_bundle, write_bundle
from hetfeat.deploy.compile import compile_network
from hetfeat.deploy.verify import sample_of
from hetfeat.devices.probe import local_profile
from hetfeat.measure.local import LocalMeasurer
from hetfeat.models.labels import leaked_records
from hetfeat.models.registry import load_model
from hetfeat.records import Measurement, Program
from hetfeat.transfer.schedule_library import ScheduleLibrary
from hetfeat.tune.finalists import measure_finalists, select_finalists
from hetfeat.tune.scheduler import SchedulerConfig
from hetfeat.tune.session import Budget
from hetfeat.tune.tuner import TuningOptions, tune
from hetfeat.workloads.convolution_variants import (
    extract_variant_tasks,
    find_alternatives,
    lower_fastest,
)
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

AT_S = (15, 30, 45, 60, 90, 120, 180, 240, 300, 450, 600, 900, 1200)
ROUNDS = 20
UNLIMITED = 10**6


class Subject:
    """A network on this machine, and what both tuners share of it."""

    def __init__(self, name: str) -> None:
        self.profile = local_profile()
        self.network = load_network(name)
        self.target = as_target(self.profile.target)
        self.prepared = in_layout(import_network(self.network), self.target)
        self.sample = sample_of(self.network)

    def tasks(self, direct: bool):
        tiles = () if direct else TRANSFORMS
        return extract_variant_tasks(self.prepared, self.target, tiles)

    def bundle(self, folder: Path, lowered, programs: dict[str, Program]) -> float:
        """Compiles and writes; returns the seconds it took."""
        started = time.monotonic()
        tasks = extract_tasks(lowered, self.target)
        made = compile_network(lowered, self.profile, tasks, programs)
        variant = Variant(1, made.executable, made.parameters)
        write_bundle(folder, [variant], self.profile, self.sample, {})
        took = time.monotonic() - started
        error, tolerance = load_bundle(folder).check()
        if error > tolerance:
            raise SystemExit(f"{folder} computes something else: {error} > {tolerance}")
        return took


def run_tune(given: argparse.Namespace) -> None:
    subject = Subject(given.network)
    model = load_model(given.model) if given.model else None
    tasks = subject.tasks(given.direct)
    own = [task.task for task in tasks]
    keys = [key for task in own for key in (task.hash, task.anchor)]
    given.out.mkdir(parents=True)
    facts = {
        "network": given.network,
        "model": str(given.model),
        "seed": given.seed,
        "direct": given.direct,
        "leaked_records": leaked_records(model, subject.profile.name, keys) if model else 0,
    }
    (given.out / "facts.json").write_text(json.dumps(facts))
    store = RecordStore.open(packaged_store())
    library = ScheduleLibrary.of(store, subject.profile.name, own) if given.library else None
    journal = RecordStore.create(given.out / "journal")
    journal.add_device(subject.profile)
    progress = given.out / "progress.jsonl"
    started = time.monotonic()

    def on_round(reached, state) -> None:
        with progress.open("a") as file:
            print(json.dumps([time.monotonic() - started, reached.trials]), file=file)

    with LocalMeasurer(subject.profile) as measurer:
        for task in tasks:
            measurer.add_task(task.task, save_workload(task.module))
        tuned = tune(
            [(task.task, task.weight) for task in tasks],
            measurer=measurer,
            journal=journal,
            budget=Budget(given.seconds, 0, UNLIMITED),
            options=TuningOptions(seed=given.seed),
            model=model,
            library=library,
            alternatives=find_alternatives(tasks),
            on_round=on_round,
        )
    print(f"{tuned.trials} programs in {tuned.seconds:.0f} s, leaked {facts['leaked_records']}")


def leaders_of(found: list[Measurement]) -> dict[str, list[Measurement]]:
    by_task: dict[str, list[Measurement]] = {}
    for m in sorted((m for m in found if m.latency_s), key=lambda m: m.latency_s):
        by_task.setdefault(m.program.task.hash, []).append(m)
    return {task: ms[: SchedulerConfig().leaders] for task, ms in by_task.items()}


def run_compare(given: argparse.Namespace) -> None:
    if 1.0 not in given.shares:
        raise SystemExit("--shares without 1.0, which all are compared with")
    stock = json.loads(gzip.decompress(given.stock.read_bytes()))
    subject = Subject(stock["network"])
    work = given.out
    work.mkdir(parents=True)
    rows: dict[str, dict] = {}
    lowered = into_kernels(subject.prepared, subject.target)
    own = {task.task.hash: task.task for task in extract_tasks(lowered, subject.target)}
    for found in stock["found"]:
        if found["share"] not in given.shares:
            continue
        programs = {t: Program(own[t], trace) for t, (_, trace) in found["tasks"].items()}
        name = f"stock {found['share']:.0%}"
        took = subject.bundle(work / name, lowered, programs)
        rows[name] = {"seconds": found["seconds"] + took, "trials": found["trials"]}
    for folder in given.ours:
        tasks = subject.tasks(json.loads((folder / "facts.json").read_text())["direct"])
        alternatives = find_alternatives(tasks)
        weights = {task.task: task.weight for task in tasks}
        progress = [json.loads(line) for line in (folder / "progress.jsonl").open()]
        journal = RecordStore.open(folder / "journal")
        found = [m for table in journal.scan() for m in from_table(table)]
        found.sort(key=lambda m: m.unix_s)
        for at_s in given.at:
            until = max((n for s, n in progress if s <= at_s), default=0)
            if not until or at_s > 1.2 * progress[-1][0]:
                continue
            leaders = leaders_of(found[:until])
            started = time.monotonic()
            with LocalMeasurer(subject.profile) as measurer:
                for task in tasks:
                    measurer.add_task(task.task, save_workload(task.module))
                chosen, cold_s = measure_finalists(
                    select_finalists(leaders, weights, alternatives), measurer
                )
            best = {task: ms[0] for task, ms in leaders.items()} | chosen
            chosen_s = time.monotonic() - started
            made = lower_fastest(subject.prepared, subject.target, tasks, cold_s)
            name = f"{folder.name} {at_s} s"
            programs = {task: m.program for task, m in best.items()}
            took = subject.bundle(work / name, made, programs)
            rows[name] = {"seconds": at_s + chosen_s + took, "trials": until}
    engines = {name: {"engine": "bundle", "bundle": str(work / name)} for name in rows}
    measured = compare(engines, subject.profile.threads, given.rounds)
    base = measured["stock 100%"]
    print(f"{'':20} {'seconds':>8} {'trials':>7} {'ms':>8}   times stock (95 % interval)")
    for name, row in rows.items():
        if measured[name] is None:
            print(f"{name:20} {row['seconds']:8.0f} {row['trials']:7}  did not run")
            continue
        times, low, high = ratio(measured[name], base)
        print(
            f"{name:20} {row['seconds']:8.0f} {row['trials']:7} {measured[name].median_ms:8.2f}"
            f"   {times:.3f} ({low:.3f} to {high:.3f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    ours = commands.add_parser("tune")
    ours.add_argument("--network", default="resnet50")
    ours.add_argument("--out", type=Path, required=True)
    ours.add_argument("--model", type=Path, help="a cost model's folder, else from scratch")
    ours.add_argument("--no-library", dest="library", action="store_false")
    ours.add_argument("--direct", action="store_true", help="no Winograd, as the stock tuner")
    ours.add_argument("--seconds", type=float, default=300)
    ours.add_argument("--seed", type=int, default=0)
    ours.set_defaults(run=run_tune)
    both = commands.add_parser("compare")
    both.add_argument("stock", type=Path)
    both.add_argument("ours", type=Path, nargs="+")
    both.add_argument("--out", type=Path, required=True, help="folder for the bundles")
    both.add_argument("--at", type=float, nargs="+", default=AT_S)
    both.add_argument(
        "--shares",
        type=float,
        nargs="+",
        default=[0.25, 0.5, 1.0],
        help="of the stock tuner's time",
    )
    both.add_argument("--rounds", type=int, default=ROUNDS)
    both.set_defaults(run=run_compare)
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
