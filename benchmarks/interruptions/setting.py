"""Commands as users start them, in a folder with a registry, a store of records and a model."""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import mlproject
from tests import stores

PROJECT = Path(__file__).parents[2]
MODEL = "costmodel.cpu-x86"
QUICK = ("--effort", "quick")
PATIENCE_S = 1800.0
CHILDREN_S = 30.0
"""How long children may outlive a command that was killed."""
MARK = "HETFEAT_INTERRUPTED"
"""Variable that a command's children inherit."""
WARM = multiprocessing.get_context("forkserver")
"""Starts commands that only look or repair in processes whose libraries are loaded already."""
WARM.set_forkserver_preload(
    ["mlflow", "mlflow.tracking.client", "registry.maintenance.audit", "registry.files.pull"]
)


@dataclass(frozen=True)
class Ended:
    """A command that ended.

    Attributes:
        code: Exit code; minus the number of the signal that ended it.
        errors: What it said on standard error.
        seconds: How long it ran.
        orphans: Command lines of processes that it started and left.
        answer: What a check printed.
    """

    code: int
    errors: str
    seconds: float
    orphans: tuple[str, ...] = ()
    answer: str = ""

    def faults(self, *codes: int) -> list[str]:
        """What is wrong with an end that should have had one of these exit codes."""
        last = " ".join(self.errors.split()[-30:])
        found = [] if self.code in codes else [f"exit code {self.code}: {last}"]
        found += (
            [f"a traceback: {last}"] if "Traceback (most recent call last)" in self.errors else []
        )
        return found + [f"it left {orphan}" for orphan in self.orphans]


class Place:
    """A folder to work in, its first state, and the variables of a user who works there.

    Args:
        folder: Anew for each round; MLflow's database holds its path.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.pristine = folder, folder.with_name(f"{folder.name}.pristine")
        self.environment = {
            **{name: value for name, value in os.environ.items() if "MLFLOW" not in name},
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
            "HETFEAT_HOME": str(folder / "home"),
            "HETFEAT_QUIET": "1",
            "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "tests")]),
            "TVM_THREAD_POOL_SPIN_COUNT": "0",
        }

    def prepare(self) -> None:
        """A store of records, and a registry whose cost model is in production."""
        self.folder.mkdir(parents=True)
        stores.make_store(self.folder / "records", tasks=6, per_task=8)
        forced = ("--force", "true", "--reason", "made for this")
        for line in (
            ("train", "--records", "records", *QUICK),
            ("promote", MODEL, "1", "--to", "staging", *forced),
            ("promote", MODEL, "1", "--to", "production", *forced),
        ):
            if wrong := self.run(*line).faults(0):
                raise RuntimeError(f"{line}: {wrong}")
        shutil.copytree(self.folder, self.pristine)

    def reset(self) -> None:
        """Brings the first state back."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self.pristine, self.folder, dirs_exist_ok=True)

    def start(self, *line: str) -> "Running":
        """Starts a command in a process group of its own."""
        return Running(self, line)

    def run(self, *line: str) -> Ended:
        """Runs a command to its end."""
        return self.start(*line).end()

    def check(self, *line: str) -> Ended:
        """Runs a command that only looks or repairs to its end; quicker than `run`."""
        output, errors = self.said()
        began = time.monotonic()
        at_work = WARM.Process(
            target=_in_this_process, args=(line, self.folder, self.environment, output, errors)
        )
        at_work.start()
        at_work.join(PATIENCE_S)
        at_work.kill()
        code = -signal.SIGKILL if at_work.exitcode is None else at_work.exitcode
        text = errors.read_text(errors="replace")
        answer = output.read_text()
        output.unlink()
        errors.unlink()
        return Ended(code, text, time.monotonic() - began, answer=answer)

    def interrupted(self, line: Sequence[str], after_s: float, number: signal.Signals) -> Ended:
        """Runs a command, and sends its process a signal in the middle."""
        running = self.start(*line)
        timer = threading.Timer(after_s, running.process.send_signal, [number])
        timer.start()
        ended = running.end()
        timer.cancel()
        return ended

    def ask(self, *line: str) -> Any:
        """The JSON that a command prints."""
        return json.loads(self.check(*line, "--json").answer)

    def said(self) -> tuple[Path, Path]:
        """New files for what a command prints, and what it says on standard error."""
        said = self.folder.with_name(f"{self.folder.name}-said-{time.monotonic_ns()}")
        return said.with_suffix(".out"), said.with_suffix(".err")


def _in_this_process(
    line: Sequence[str], folder: Path, environment: dict[str, str], output: Path, errors: Path
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in ((0, Path(os.devnull)), (1, output), (2, errors)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    sys.exit(mlproject.main(list(line)))


class Running:
    """A command at work."""

    def __init__(self, place: Place, line: Sequence[str]) -> None:
        self.began, self.mark = time.monotonic(), uuid.uuid4().hex
        _, self.errors = place.said()
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlproject", *line],
                cwd=place.folder,
                env={**place.environment, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def end(self) -> Ended:
        """Waits for the command and for its children, which are ended if they stay."""
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        seconds = time.monotonic() - self.began
        orphans = self._outlived()
        text = self.errors.read_text(errors="replace")
        self.errors.unlink()
        return Ended(code, text, seconds, orphans)

    def _outlived(self) -> tuple[str, ...]:
        end = time.monotonic() + CHILDREN_S
        while (left := list(self._left())) and time.monotonic() < end:
            time.sleep(0.1)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return tuple(process.info["name"] + " ".join(process.info["cmdline"]) for process in left)

    def _left(self) -> Iterator[psutil.Process]:
        """Processes that inherited this command's mark, of its own group or not."""
        for process in psutil.process_iter(["name", "cmdline", "environ", "status"]):
            marked = (process.info["environ"] or {}).get(MARK) == self.mark
            if marked and process.info["status"] != psutil.STATUS_ZOMBIE:
                yield process
