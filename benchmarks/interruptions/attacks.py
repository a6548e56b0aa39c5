"""What is done to commands, and what is wrong afterwards."""

import contextlib
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from scenarios import QUICK, RECORDS, SCENARIOS, Scenario, versions_of
from setting import MODEL, Place, Running

Attack = Callable[[Place, random.Random], list[str]]

SLACK = 1.1
"""Moments are drawn from the usual time and a tenth more: some come too late, and are counted."""


@functools.cache
def usual_s(scenario: Scenario, place: Place) -> float:
    """How long a command takes when it is left alone."""
    ended = place.run(*scenario.line)
    if wrong := [*ended.faults(0), *scenario.wrong(place)]:
        raise RuntimeError(f"{scenario.name} left alone: {wrong}")
    place.reset()
    return ended.seconds


def cut_short(
    number: signal.Signals, scenario: Scenario, place: Place, rng: random.Random
) -> list[str]:
    """Sends a signal at a random moment, looks at what is there, and runs the command again."""
    after_s = rng.uniform(0, SLACK) * usual_s(scenario, place)
    ended = place.interrupted(scenario.line, after_s, number)
    wrong = ended.faults(
        *(0, -number) if number == signal.SIGKILL else (0, -number, *scenario.stopped)
    )
    kept = scenario.kept(place)
    if number == signal.SIGTERM and ended.code > 0:
        wrong += [f"a run is left: {row['what']}" for row in place.ask("doctor")["findings"]]
    place.check("doctor", "--repair", "true")
    wrong += [f"not repaired: {row['what']}" for row in place.ask("doctor")["findings"]]
    wrong += place.run(*scenario.line).faults(*scenario.again)
    lost = kept - scenario.kept(place)
    return wrong + scenario.wrong(place) + [f"lost: {what}" for what in list(lost)[:1]]


def on_a_full_disk(scenario: Scenario, place: Place, rng: random.Random) -> list[str]:
    """Runs a command where the disk has little room left, makes room, and runs it again."""
    used = _size(place.folder)
    place.run(*scenario.line)
    need = max(_size(place.folder) - used, 1 << 16)
    place.reset()
    with _small_disk(place, used + int(rng.uniform(0, 1) * need) + (1 << 16)) as grow:
        ended = place.run(*scenario.line)
        wrong = ended.faults(0, 1, 2)
        grow()
        kept = scenario.kept(place)
        place.check("doctor", "--repair", "true")
        wrong += place.run(*scenario.line).faults(*scenario.again)
        lost = kept - scenario.kept(place)
        return wrong + scenario.wrong(place) + [f"lost: {what}" for what in list(lost)[:1]]


@contextlib.contextmanager
def _small_disk(place: Place, size: int) -> Iterator[Callable[[], None]]:
    """The place on a disk of so many bytes, which root mounts; yields what makes it large."""
    folder = str(place.folder)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size + (8 << 20)}", "tmpfs", folder], check=True
    )
    try:
        subprocess.run(["cp", "-a", f"{place.pristine}/.", folder], check=True)
        room = size - _size(place.folder)
        filler = place.folder / ".filler"
        filler.write_bytes(bytes(max(0, _free(place.folder) - max(room, 1 << 15))))

        def grow() -> None:
            filler.unlink()
            subprocess.run(["mount", "-o", "remount,size=1g", folder], check=True)

        yield grow
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def together(lines: list[tuple[str, ...]], place: Place) -> list[str]:
    """Runs commands at once: each ends well, or says in one line that the other is at work."""
    running: list[Running] = [place.start(*line) for line in lines]
    ended = [one.end() for one in running]
    wrong = [fault for one in ended for fault in one.faults(0, 1, 2)]
    return wrong if any(one.code == 0 for one in ended) else [*wrong, "none of them ended well"]


def two_deploys(place: Place, rng: random.Random) -> list[str]:
    """Two deployments into one --out."""
    deploy = _scenario("deploy")
    wrong = together([deploy.line, deploy.line], place)
    return wrong + place.run(*deploy.line).faults(0) + deploy.wrong(place)


def two_trainings(place: Place, rng: random.Random) -> list[str]:
    """Two trainings of one model in one SQLite store: both are registered."""
    line = ("train", *RECORDS, *QUICK)
    wrong = together([line, (*line, "--seed", "1")], place)
    count = len(versions_of(place, MODEL))
    return (
        wrong
        + ([] if count == 3 else [f"{count} versions, not 3"])
        + _scenario("train").wrong(place)
    )


def two_collections(place: Place, rng: random.Random) -> list[str]:
    """Two collections into one new store: all programs of one that ended well, none twice."""
    collect = _scenario("collect")
    wrong = together([collect.line, collect.line], place)
    wrong += place.run(*collect.line).faults(0)
    return wrong + collect.wrong(place)


def server_restarts(place: Place, rng: random.Random) -> list[str]:
    """The MLflow server is killed and started again while a version is promoted."""
    with _server(place) as restart:
        running = place.start("rollback", MODEL, "--reason", "made for this")
        time.sleep(rng.uniform(3, 9))
        restart()
        wrong = running.end().faults(0, 1, 2)
        place.check("doctor", "--repair", "true")
        wrong += [f"not repaired: {row['what']}" for row in place.ask("doctor")["findings"]]
        promoted = place.run("promote", MODEL, "1", "--to", "archived", "--reason", "made for this")
        return wrong + promoted.faults(0, 2)


@contextlib.contextmanager
def _server(place: Place) -> Iterator[Callable[[], None]]:
    """An MLflow server over the place's database; yields what kills it and starts it again."""
    port, store = 5600 + random.randrange(300), place.environment["MLFLOW_TRACKING_URI"]
    line = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store]
    line += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    at_work: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        at_work.append(
            subprocess.Popen(
                line,
                cwd=place.folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)
                return
            time.sleep(0.2)

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(at_work.pop().pid, signal.SIGKILL)

    def restart() -> None:
        end()
        time.sleep(1)
        start()

    start()
    place.environment["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{port}"
    try:
        yield restart
    finally:
        place.environment["MLFLOW_TRACKING_URI"] = store
        end()


def _scenario(name: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


def _each(attack: Callable[..., list[str]], *given: object) -> dict[str, Attack]:
    return {one.name: functools.partial(attack, *given, one) for one in SCENARIOS}


ATTACKS: dict[str, dict[str, Attack]] = {
    "kill -9 and the same again": _each(cut_short, signal.SIGKILL),
    "SIGTERM and the same again": _each(cut_short, signal.SIGTERM),
    "a disk that fills and room again": _each(on_a_full_disk),
    "two at once": {
        "deploy into one --out": two_deploys,
        "train on one SQLite store": two_trainings,
        "collect into one store": two_collections,
    },
    "the MLflow server restarts": {"rollback": server_restarts},
}
