"""Tuning over TVM's RPC: time with one server and with two, and what breaking things costs.

    PYTHONPATH=. python benchmarks/fleet.py speed [--trials 32] [--rounds 3] [--slower-s 0]
    PYTHONPATH=. python benchmarks/fleet.py faults [--trials 32] [--only "nothing"]

`speed` tunes matrix products on one server and on two, in turns; each server is pinned to a core of
its own, and building shares those cores. With `--slower-s` a server is held so much longer for each
program, without any work: as by devices that are slower, and whose cores build nothing. `faults`
breaks something in the middle of a tuning and compares what was asked for with what the journal
holds. Both print Markdown; docs/experiments holds their last run.
"""

import argparse
import collections
import platform
import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from hetfeat.dataset import sidecar_files
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.probe import FAMILY_OF_MACHINE
from hetfeat.devices.profile import DeviceProfile
from hetfeat.devices.target import host_target
from hetfeat.measure.remote.measurer import RemoteMeasurer, RemoteOptions
from hetfeat.measure.remote.session import SessionOptions
from hetfeat.measure.worker import Worker
from hetfeat.records import Program
from hetfeat.tune.session import Budget
from hetfeat.tune.tuner import tune
from hetfeat.workloads.relax import describe, save_workload
from tests import fleets, kernels

FAULT_SIZES, SPEED_SIZES = (128, 160), (512, 768)
"""Of the matrix products, each a task: quick ones; ones slower to run than to build."""
BREAK_AFTER, BREAK_S = 12, 0.03
"""Programs sent to servers before something is broken, and how long the next one has run then."""
OPTIONS = RemoteOptions(session=SessionOptions(patience_s=45.0))
"""Of the measurer in `faults`; its default is longer."""


class Setting:
    """Two servers, one of them behind a link, unless a fault asks for others."""

    def __init__(self, servers: int = 2) -> None:
        self.fleet = fleets.Fleet("bench")
        port = fleets.free_port()
        self.link = fleets.Link(port)
        self.first = self.fleet.start_server(threads=1, port=port, advertise=fleets.PROXY_HOST)
        self.others = [self.fleet.start_server(threads=1) for _ in range(servers - 1)]
        self.over = threading.Event()

    def close(self) -> None:
        self.over.set()
        self.link.close()
        self.fleet.close()


def replaced(setting: Setting) -> None:
    setting.first.kill()
    time.sleep(5)
    setting.fleet.start_server(threads=1, wait=False)


def replaced_by_another(setting: Setting) -> None:
    setting.fleet.start_server(threads=2)
    setting.first.kill()


def tracker_restarted(setting: Setting) -> None:
    setting.fleet.stop_tracker()
    time.sleep(3)
    setting.fleet.start_tracker()


def delayed(setting: Setting) -> None:
    setting.link.delay_s = 0.1


def lossy(setting: Setting) -> None:
    setting.link.loss = 0.05


def cut_now_and_then(setting: Setting) -> None:
    draw = random.Random(0)
    while not setting.over.wait(draw.uniform(0.5, 4.0)):
        setting.link.cut()


def frozen(setting: Setting) -> None:
    setting.link.frozen = True
    time.sleep(10)
    setting.link.frozen = False


FAULTS: dict[str, tuple[int, Callable[[Setting], object]]] = {
    "nothing": (2, lambda s: None),
    "one of two servers is killed": (2, lambda s: s.first.kill()),
    "one of two servers hangs (SIGSTOP)": (2, lambda s: s.first.signal(signal.SIGSTOP)),
    "the process of a session is killed": (1, lambda s: s.first.kill_session()),
    "the only server is killed, another comes 5 s later": (1, replaced),
    "one of two servers is replaced by a machine with more threads": (2, replaced_by_another),
    "the tracker is restarted, 3 s in between": (2, tracker_restarted),
    "the link to the only server takes 100 ms more each way": (1, delayed),
    "the link to the only server loses 5 % of what is sent": (1, lossy),
    "the link to the only server breaks every 0.5 to 4 s": (1, cut_now_and_then),
    "the link to the only server stands still for 10 s": (1, frozen),
    "the only server is killed for good": (1, lambda s: s.first.kill()),
    "the tracker is killed for good": (2, lambda s: s.fleet.stop_tracker()),
}
"""What is broken -> servers there are, and how."""


@contextmanager
def before_each_run(do: Callable[[], object]) -> Iterator[None]:
    """Does something while a session holds a server, before it runs a program there."""
    ask = Worker.ask

    def doing(self: Worker, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        if request["do"] == "run_file":
            do()
        return ask(self, request, timeout_s)

    with mock.patch.object(Worker, "ask", doing):
        yield


def breaking(break_it: Callable[[], object]) -> Callable[[], None]:
    """Breaks something while a program runs on a server."""
    sent = iter(range(10**6))

    def count() -> None:
        if next(sent) == BREAK_AFTER:
            threading.Timer(BREAK_S, break_it).start()

    return count


def tuned_over(profile: DeviceProfile, sizes: Sequence[int], trials: int) -> dict[str, Any]:
    """Tunes the matrix products over a route into a journal, and says what it holds then."""
    modules = {describe(m): save_workload(m) for m in map(kernels.matmul, sizes)}
    asked: list[Program] = []
    with tempfile.TemporaryDirectory() as folder:
        journal = RecordStore.create(Path(folder) / "journal")
        aside = partial(sidecar_files.quarantine, journal.path)
        with RemoteMeasurer(profile, aside, OPTIONS) as measurer:
            for task, module in modules.items():
                measurer.add_task(task, module)
            measure_each = measurer.measure_each

            def noting(programs, incumbent_s=None):
                asked.extend(programs)
                yield from measure_each(programs, incumbent_s)

            measurer.measure_each = noting
            budget = Budget(seconds=600, trials_per_task=0, trials=trials)
            tasks = [(task, 1) for task in modules]
            tuned = tune(tasks, measurer=measurer, journal=journal, budget=budget)
        records = [m for table in journal.scan() for m in from_table(table)]
        keys = collections.Counter(m.program.key for m in records)
        return {
            "asked": len(asked),
            "recorded": len(records),
            "unmeasured": len({p.key for p in asked} - set(keys)),
            "twice": sum(times - 1 for times in keys.values()),
            "blamed": sum(m.error in ("crash", "timeout", "run") for m in records),
            "quarantined": collections.Counter(
                row["reason"] for row in sidecar_files.noted(journal.path, sidecar_files.QUARANTINE)
            ),
            "ended": "with what it had" if tuned.is_partial else "as planned",
            "seconds": tuned.seconds,
        }


def over_rpc(fleet: fleets.Fleet) -> DeviceProfile:
    """This machine, one thread of it, as a device behind the tracker."""
    return DeviceProfile(
        name="bench",
        family=FAMILY_OF_MACHINE[platform.machine()],
        target=host_target(1),
        threads=1,
        # No peak: servers share this machine with builds, their speed says nothing of who they are.
        route={"kind": "rpc", "tracker": str(fleet.tracker), "key": fleet.key},
    )


def faults(only: str | None, trials: int) -> None:
    print("| what was broken | tuning ended | asked | recorded | unmeasured | twice | blamed | s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, (servers, break_it) in FAULTS.items():
        if only and only != name:
            continue
        setting = Setting(servers)
        with before_each_run(breaking(partial(break_it, setting))):
            row = tuned_over(over_rpc(setting.fleet), FAULT_SIZES, trials)
        setting.close()
        aside = "".join(f"; turned away: {reason}" for reason in row["quarantined"])
        shown = [row[key] for key in ("asked", "recorded", "unmeasured", "twice", "blamed")]
        cells = [name, f"{row['ended']}{aside}", *shown, f"{row['seconds']:.0f}"]
        print("|", " | ".join(map(str, cells)), "|", flush=True)


def speed(trials: int, rounds: int, slower_s: float) -> None:
    fleet = fleets.Fleet("bench")
    seconds: dict[int, list[float]] = {1: [], 2: []}
    print("| round | servers | trials | s |\n| --- | --- | --- | --- |")
    for number in range(rounds):
        for servers in (1, 2) if number % 2 == 0 else (2, 1):
            for core in range(servers):
                fleet.start_server(threads=1, core=core)
            with before_each_run(partial(time.sleep, slower_s)):
                row = tuned_over(over_rpc(fleet), SPEED_SIZES, trials)
            fleet.stop_servers()
            seconds[servers].append(row["seconds"])
            print(f"| {number + 1} | {servers} | {row['recorded']} | {row['seconds']:.1f} |")
    fleet.close()
    medians = {servers: statistics.median(found) for servers, found in seconds.items()}
    print(f"\nmedian: {medians[1]:.1f} s with one, {medians[2]:.1f} s with two")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["speed", "faults"])
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slower-s", type=float, default=0.0, help="for each program, by speed")
    parser.add_argument("--only", choices=list(FAULTS))
    given = parser.parse_args()
    if given.what == "speed":
        speed(given.trials, given.rounds, given.slower_s)
    else:
        faults(given.only, given.trials)


if __name__ == "__main__":
    main()
