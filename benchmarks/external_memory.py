"""Trees on features in memory and on features in a file: peak memory, processor time, accuracy.

    python benchmarks/external_memory.py --records 10000 30000 100000 [--models xgb,lgbm]
        [--group-mb 1300]

The stores are those of `store_scaling.py`, in tasks of 512 programs. A cell is a process that does
what `hetfeat train` does without MLflow: reads the store, divides it, trains, judges the test side.
Shown are the peak of its resident memory and its processor time, both with start-up and reading,
and what the same cell reached: equal figures are equal trees. With `--group-mb` each process runs
in a memory cgroup of that size (version 1, as root), and how features are kept is chosen as in
training, `chosen`, beside keeping them in memory.
"""

import argparse
import atexit
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from store_scaling import make_store

from hetfeat.dataset.splits import split_examples
from hetfeat.dataset.store import RecordStore
from hetfeat.features.assemble import assemble
from hetfeat.features.out_of_core import room_bytes
from hetfeat.models.evaluate import evaluate
from hetfeat.models.hyperparameters import build

WAYS = {"memory": lambda: math.inf, "file": lambda: 0, "chosen": room_bytes}
"""Bytes of features that may stay in memory."""
GROUP = Path("/sys/fs/cgroup/memory/hetfeat-external-memory")


def train(folder: Path, model: str, way: str, rounds: int) -> dict[str, float]:
    store = RecordStore.open(folder)
    examples = assemble(store, room_bytes=WAYS[way]()).examples
    split = split_examples(examples, "within_task", seed=0)
    sides = [examples.take(side) for side in (split.train, split.valid, split.test)]
    del examples
    losses = []
    made = build(model, "standard", 0, {"rounds": rounds})
    made.fit(*sides[:2], lambda _, figures: losses.append(figures["valid_loss"]))
    judged = evaluate(made, *sides)
    return {"valid_loss": losses[-1], "pca": judged.metrics["pca"]}


def measured(folder: Path, model: str, way: str, rounds: int, enter: list[str]) -> str:
    """A row of the table, from a child of its own; `enter` is what a command begins with."""
    command = [*enter, sys.executable, __file__, "--one", str(folder), "--models", model]
    command += ["--way", way, "--rounds", str(rounds)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    told = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
        return f"{model} | {way} | killed | | |"
    if status:
        raise SystemExit(f"{model} with features in a {way} failed")
    figures = json.loads(told)
    cpu = usage.ru_utime + usage.ru_stime
    cells = [model, way, f"{usage.ru_maxrss / 1024:.0f} MB", f"{cpu:.0f} s"]
    return " | ".join([*cells, f"{figures['valid_loss']:.6f}", f"{figures['pca']:.4f}"])


def entered(megabytes: int) -> list[str]:
    """Makes the cgroup, for as long as this process lives; what a command in it begins with."""
    try:
        GROUP.mkdir()
        (GROUP / "memory.limit_in_bytes").write_text(str(megabytes << 20))
    except OSError as error:
        raise SystemExit(
            f"--group-mb needs cgroups of version 1, and to be root: {error}"
        ) from None
    atexit.register(GROUP.rmdir)
    return ["sh", "-c", f'echo $$ > {GROUP}/cgroup.procs && exec "$@"', "sh"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[10_000])
    parser.add_argument("--models", default="xgb,lgbm")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--folder", type=Path, help="Where the stores lie meanwhile.")
    parser.add_argument("--group-mb", type=int, help="of a memory cgroup; by default there is none")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(train(given.one, given.models, given.way, given.rounds)))
        return
    enter = entered(given.group_mb) if given.group_mb else []
    print("| records | model | features in | peak memory | processor | valid loss | PCA |")
    print("| ---: | --- | --- | ---: | ---: | ---: | ---: |", flush=True)
    for records in given.records:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            store = Path(folder) / "store"
            make_store(store, records, stores=True, block=512, sides=range(16, 416))
            for model in given.models.split(","):
                for way in ("memory", "chosen" if given.group_mb else "file"):
                    row = measured(store, model, way, given.rounds, enter)
                    print(f"| {records:,} | {row} |", flush=True)


if __name__ == "__main__":
    main()
