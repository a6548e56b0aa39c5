"""The child that builds programs for a device, or runs them there over TVM's RPC.

Its arguments are those of `hetfeat.measure.child`. It blocks without limit when a link or a server
hangs: its parent kills it then, and nothing but the session is lost.
"""

import contextlib
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import rpc

from hetfeat.devices.fleet.report import START_IT_ANEW, Description
from hetfeat.devices.fleet.server import DESCRIBE
from hetfeat.devices.target import FILL, ShortProbe, code_features, linker
from hetfeat.errors import DataError
from hetfeat.measure import child as here
from hetfeat.measure.messages import (
    Argument,
    BuildFile,
    CloseSession,
    Connect,
    Handlers,
    ProbeSpeed,
    RunFile,
    RunProgram,
    Seconds,
    Start,
)
from hetfeat.parsing import decode


class ServerSession:
    """A session with a server of the device.

    Args:
        target: Target of the device, for the probe.
    """

    def __init__(self, target: dict[str, Any]) -> None:
        self._probe = ShortProbe(target)
        self._needed = set(code_features(target))
        self._remote: Any = None
        self._report: Any = None
        self._gflops: Any = None

    def connect(self, request: Connect) -> dict[str, Any]:
        """Waits for a free server; returns what it says of itself, and how fast it is."""
        self.close()
        tracker = rpc.connect_tracker(request.host, request.port)
        self._remote = tracker.request(request.key, session_timeout=request.session_s)
        tracker.close()
        try:
            self._report = self._remote.get_function(DESCRIBE)
            text = str(self._report())
            described = decode(text, Description, what="a server's answer", action=START_IT_ANEW)
        except (AttributeError, DataError):
            return {}  # which is no report
        report: dict[str, Any] = described.model_dump(exclude={"features"})
        missing = sorted(self._needed - set(described.features))
        if not missing:  # or the probe, too, would end in an illegal instruction
            self._gflops = self._probe.on(self._remote)
            report["gflops"] = self._gflops(request.enough)
        return report | {"missing": missing}

    def gflops(self, request: ProbeSpeed) -> float | None:
        """How fast the server is now, see `connect`; None if the session broke.

        Raises:
            ValueError: It gave a speed that is none.
        """
        try:
            gflops = float(self._gflops(request.enough))
        except Exception:
            if self.is_alive():
                raise
            return None
        if not math.isfinite(gflops):
            raise ValueError(f"a speed of {gflops} GFLOP/s")
        return gflops

    def is_alive(self) -> bool:
        """Whether the server still answers."""
        try:
            self._report()
        except Exception:
            return False
        return True

    def close(self) -> None:
        """Ends the session; the server is free for others."""
        if self._remote is not None:
            # By name: arrays and functions of the session keep it alive otherwise.
            with contextlib.suppress(Exception):  # it may have broken
                self._remote.get_function("CloseRPCConnection")()
        self._remote = self._report = self._gflops = None

    @property
    def device(self) -> Any:
        """The server's CPU."""
        return self._remote.cpu()

    def load(self, path: Path) -> Any:
        """Sends a library that was built here, and loads it there."""
        self._remote.upload(str(path))
        return self._remote.load_module(path.name)

    def remove(self, path: Path) -> None:
        """Removes the file that `load` sent."""
        self._remote.remove(path.name)

    def fill(self, array: Any) -> None:
        """Fills an array of the device with random floats."""
        self._remote.get_function(FILL)(array)


class RemoteService(here.Service):
    """Builds into files, and runs them in a session."""

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self._linker = linker(start.target)
        self._session = ServerSession(start.target)

    def handlers(self) -> Handlers:
        """What the child does for each message."""
        return {
            **super().handlers(),
            BuildFile: self.build_file,
            Connect: self.connect,
            ProbeSpeed: self._session.gflops,
            RunFile: self.run_file,
            CloseSession: self.close,
        }

    def build_file(self, request: BuildFile) -> list[Argument]:
        """Compiles a program into a library; returns its arguments' shapes and types."""
        executable, arguments = self._compile(request.task, request.trace)
        executable.export_library(request.path, fcompile=self._linker)
        return arguments

    def connect(self, request: Connect) -> dict[str, Any]:
        """See `ServerSession.connect`."""
        self._arrays.clear()  # they were another session's
        return self._session.connect(request)

    def close(self, request: CloseSession) -> None:
        """Ends the session."""
        self._built.clear()
        self._arrays.clear()
        self._session.close()

    def run_file(self, request: RunFile) -> Seconds | None:
        """Seconds of one run on the device, a mean per repeat; None if the session broke."""
        program, path = request.program, Path(request.path)
        run = RunProgram(program=program, incumbent_s=request.incumbent_s, cold=request.cold)
        try:
            self._device = self._session.device
            arrays = [self._array(i, *argument) for i, argument in enumerate(request.arguments)]
            self._built[program] = self._session.load(path), arrays
            latencies = self.run(run)
            self._session.remove(path)
        except Exception:
            if self._session.is_alive():
                raise
            return None
        return latencies

    def _array(self, position: int, shape: tuple[int, ...], dtype: str) -> Any:
        """An array of the device; made there, or a slow link would carry every weight."""
        key = (position, shape, dtype)
        if key not in self._arrays:
            array = tvm.runtime.empty(shape, dtype, self._device)
            if dtype.startswith("float"):
                self._session.fill(array)
            else:
                array.copyfrom(np.zeros(shape, dtype))
            self._arrays[key] = array
        return self._arrays[key]


if __name__ == "__main__":
    here.main(RemoteService, sys.argv)
