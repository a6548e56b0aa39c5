"""Collectors of one table that are killed at random and started again until all have ended."""

import multiprocessing
import os
import random
import time
from pathlib import Path

import table_appender

from hetfeat.dataset.tables.table import RecordTable
from hetfeat.dataset.tables.upkeep import damaged
from hetfeat.dataset.tables.uri import as_place


def run(uri: str, folder: Path, collectors: int, count: int, kills: int, seed: int = 0) -> int:
    """Runs them, each with a home of its own; returns how many were killed while they worked."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["table_appender"])
    devices = [f"d{number}" for number in range(collectors)]
    draw, killed = random.Random(seed), 0

    def start(device: str):
        arguments = (uri, device, count, count // 2, folder / f"{device}.safe")
        process = context.Process(target=_at_home, args=(folder / device, *arguments))
        process.start()
        return process

    running = {device: start(device) for device in devices}
    while running:
        time.sleep(draw.uniform(0.1, 0.4))
        for device, process in list(running.items()):
            if not process.is_alive():
                assert process.exitcode == 0, f"{device} ended with {process.exitcode}"
                del running[device]
        if running and killed < kills:
            device = draw.choice(sorted(running))
            running[device].kill()
            running[device].join()
            killed += running[device].exitcode != 0
            running[device] = start(device)
    return killed


def _at_home(home: Path, *arguments) -> None:
    os.environ["HETFEAT_HOME"] = str(home)
    table_appender.collect(*arguments)


def check(uri: str, folder: Path, collectors: int, count: int) -> None:
    """Nothing that was safe is lost, nothing is there twice, and each has all of its programs."""
    table = RecordTable.open(as_place(uri))
    assert not damaged(table)
    found: dict[str, list[str]] = {}
    for rows in table.scan(["device", "program"]):
        for row in rows.to_pylist():
            found.setdefault(row["device"], []).append(row["program"])
    assert sorted(found) == sorted(f"d{number}" for number in range(collectors))
    for device, programs in found.items():
        safe = set((folder / f"{device}.safe").read_text().split())
        assert safe <= set(programs)
        assert len(programs) == len(set(programs))
        wanted = {program.key for program in table_appender.programs_of(device, count)}
        assert set(programs) == wanted
