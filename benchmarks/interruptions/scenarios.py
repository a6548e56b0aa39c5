"""The commands that are cut short, each with a small budget, and what must be true after them."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from setting import MODEL, QUICK, Place

from hetfeat.dataset.store import RecordStore


@dataclass(frozen=True)
class Scenario:
    """A command with a small budget.

    Attributes:
        name: Of the command.
        line: Its arguments.
        wrong: What is wrong in a place after the command ended well; nothing where all is right.
        kept: What must not be lost once it is there, e.g. the programs of a store.
        stopped: Exit codes of the command when it is told to stop by SIGTERM.
        again: Exit codes of the same command after it; a signal may have come too late.
    """

    name: str
    line: tuple[str, ...]
    wrong: Callable[[Place], list[str]] = field(compare=False)
    kept: Callable[[Place], Counter[str]] = field(compare=False)
    stopped: tuple[int, ...] = (143,)
    again: tuple[int, ...] = (0,)


def programs_of(place: Place, name: str) -> Counter[str]:
    """How often each program stands in a store, on each device."""
    folder = place.folder / name
    if not (folder / "store.json").is_file():
        return Counter()
    rows = RecordStore.open(folder).read(["device", "program"]).to_pylist()
    return Counter(f"{row['device']} {row['program']}" for row in rows)


def versions_of(place: Place, prefix: str = "") -> Counter[str]:
    """The versions in the registry, each of which can be pulled."""
    models = [row["name"] for row in place.ask("versions")["models"]]
    return Counter(
        f"models:/{name}/{row['version']}"
        for name in models
        if name.startswith(prefix)
        for row in place.ask("versions", name)["versions"]
    )


def _store_is_whole(place: Place, name: str) -> list[str]:
    done = place.check("records", "verify", name).faults(0)
    twice = [program for program, count in programs_of(place, name).items() if count > 1]
    return [*done, *(f"{program} stands twice" for program in twice[:1])]


def _one_more_version(place: Place) -> list[str]:
    """A new version of the cost model that can be pulled: each of its files is as registered."""
    versions = versions_of(place, MODEL)
    if len(versions) < 2:
        return ["no new version"]
    wrong = []
    for number, uri in enumerate(versions):
        wrong += place.check("pull", uri, "--out", f"pulled-{number}").faults(0)
    return wrong


def _bundle_runs(place: Place) -> list[str]:
    done = subprocess.run(
        [sys.executable, "bundle/run.py", "--check"],
        cwd=place.folder,
        capture_output=True,
        text=True,
    )
    wrong = [] if done.returncode == 0 else [f"the bundle: {done.stderr[-200:]}"]
    return wrong + ([] if versions_of(place, "network.") else ["no version of the network"])


def _nothing(place: Place) -> Counter[str]:
    return Counter()


def _trials(place: Place) -> Counter[str]:
    """Finished trials of a study: the journal's lines that say so."""
    journal = place.folder / "optuna.journal"
    if not journal.is_file():
        return Counter()
    lines = [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]
    return Counter(f"trial {line['trial_id']}" for line in lines if line.get("state") == 1)


NETWORK = ("--network", "nets:dense")
RECORDS = ("--records", "records")

SCENARIOS = (
    Scenario(
        "collect",
        ("collect", *NETWORK, "--programs-per-task", "12", "--out", "collected"),
        lambda place: _store_is_whole(place, "collected"),
        lambda place: programs_of(place, "collected"),
    ),
    Scenario(
        "prune",
        ("prune", "records", "--out", "pruned"),
        lambda place: _store_is_whole(place, "pruned"),
        lambda place: programs_of(place, "records"),
        again=(0, 2),  # a store that was written whole is in the way of another
    ),
    Scenario("train", ("train", *RECORDS, *QUICK), _one_more_version, versions_of),
    Scenario("hpo", ("hpo", *RECORDS, *QUICK, "--trials", "3"), _one_more_version, _trials),
    Scenario(
        "transfer",
        ("transfer", *NETWORK, "--budget-per-task", "16", "--out", "measured"),
        lambda place: _store_is_whole(place, "measured"),
        lambda place: programs_of(place, "measured"),
    ),
    Scenario(
        "deploy",
        ("deploy", *NETWORK, "--trials", "12", "--out", "bundle"),
        _bundle_runs,
        lambda place: programs_of(place, "bundle.journal"),
    ),
)
