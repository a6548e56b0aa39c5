"""Commands as users start them, in a folder with a registry, a store of records and a model."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import stores

PROJECT = Path(__file__).parents[2]
MODEL = "costmodel.cpu-x86"
QUICK = ("--effort", "quick")
PATIENCE_S = 600.0
CHILDREN_S = 30.0
"""How long children may outlive a command that was killed."""


@dataclass(frozen=True)
class Ended:
    """A command that ended.

    Attributes:
        code: Exit code; minus the number of the signal that ended it.
        errors: What it said on standard error.
        seconds: How long it ran.
        orphans: Whether processes that it started were left.
    """

    code: int
    errors: str
    seconds: float
    orphans: bool = False

    def faults(self, *codes: int) -> list[str]:
        """What is wrong with an end that should have had one of these exit codes."""
        last = " ".join(self.errors.split()[-30:])
        found = [] if self.code in codes else [f"exit code {self.code}: {last}"]
        found += (
            [f"a traceback: {last}"] if "Traceback (most recent call last)" in self.errors else []
        )
        return found + ["it left processes"] * self.orphans


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
        with self.start(*line, "--json") as running:
            running.end()
            return json.loads(running.output.read_text())


class Running:
    """A command at work."""

    def __init__(self, place: Place, line: Sequence[str]) -> None:
        self.began = time.monotonic()
        beside = place.folder.with_name(f"{place.folder.name}.said-{time.monotonic_ns()}")
        self.output, self.errors = beside.with_suffix(".out"), beside.with_suffix(".err")
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlproject", *line],
                cwd=place.folder,
                env=place.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self.output.unlink(missing_ok=True)

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

    def _outlived(self) -> bool:
        end = time.monotonic() + CHILDREN_S
        while time.monotonic() < end:
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return False
            time.sleep(0.1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return True
