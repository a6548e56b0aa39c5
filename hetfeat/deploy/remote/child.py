"""The child that runs a bundle on its device, over TVM's RPC.

python -m hetfeat.deploy.remote.child FILE_DESCRIPTOR TARGET_JSON
"""

import json
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax

from hetfeat.deploy import runtime
from hetfeat.measure.remote.child import ServerSession
from hetfeat.measure.worker_loop import serve


class _There(runtime.LoadedBundle):
    """A bundle on a server.

    Args:
        folder: Folder of the bundle, here; every check of its files is made before anything is
            sent.
        session: Open session with the server.
    """

    def __init__(self, folder: Path, session: ServerSession) -> None:
        self._session = session
        super().__init__(folder)

    def _device(self) -> tuple[Any, Any, Any]:
        device = self._session.device

        def load(path: Path) -> Any:
            machine = relax.VirtualMachine(self._session.load(path), device)

            def main(*arguments: Any) -> Any:
                machine.set_input("main", *arguments)  # what is nested crosses only like this
                machine.invoke_stateful("main")
                return machine.get_outputs("main")

            main.machine = machine  # type: ignore[attr-defined]
            return main

        return load, *runtime.on_device(device)

    def seconds(self, inputs: list[Any], rounds: int, *, longest_s: float = 60.0) -> list[float]:
        """Seconds of each run on the device.

        Args:
            inputs: Inputs of the network.
            rounds: Number of runs.
            longest_s: Seconds in which they end, with fewer runs if need be, but for a first one
                that takes longer; 60 by default.
        """
        inputs, rows = self._checked(inputs)
        _, main, parameters = next(v for v in self._variants if v[0] == rows)
        main.machine.set_input("main", *map(self._tensor, inputs), *parameters)

        def timed(repeat: int) -> list[float]:  # after a run that TVM makes and does not count
            timer = main.machine.time_evaluator(
                "invoke_stateful", self._session.device, number=1, repeat=repeat
            )
            return [float(s) for s in timer("main").results]

        (first,) = timed(1)
        if first >= longest_s:
            return [first]
        return timed(min(rounds, int(longest_s / first)))


class BundleService:
    """Answers requests about one bundle on one server."""

    def __init__(self, target: dict[str, Any]) -> None:
        self._session = ServerSession(target)
        self._bundle: Any = None

    def connect(self, **given: Any) -> dict[str, Any]:
        """See `ServerSession.connect`."""
        return self._session.connect(**given)

    def gflops(self, enough: float) -> float | None:
        """See `ServerSession.gflops`."""
        return self._session.gflops(enough)

    def load(self, folder: str) -> None:
        """Checks a bundle, and sends its libraries and parameters."""
        self._bundle = _There(Path(folder), self._session)

    def run(self, inputs: list[str], output: str) -> None:
        """Runs on the `.npy` files `inputs`, and writes all outputs, in order, to `output`."""
        found = self._bundle.run(runtime.load_arrays([Path(name) for name in inputs]))
        np.savez(output, *runtime.as_tuple(found), allow_pickle=False)

    def time(self, inputs: list[str], rounds: int) -> list[float]:
        """Seconds of each run; the first runs do not count."""
        arrays = runtime.load_arrays([Path(name) for name in inputs])
        return list(self._bundle.seconds(arrays, rounds))

    def close(self) -> None:
        """Ends the session."""
        self._bundle = None
        self._session.close()


if __name__ == "__main__":
    serve(
        Connection(int(sys.argv[1])),
        BundleService(json.loads(sys.argv[2])),
        lambda request, error: "run",
    )
