"""Serves this machine over TVM's RPC, and says what machine it is.

    python -m hetfeat.devices.fleet.server SETTINGS_JSON

`hetfeat fleet start-server` starts it. It needs only the standard library and what apache-tvm
imports: a device without the toolkit's other dependencies runs it from a copy of the package.
"""

import json
import os
import platform
import signal
import sys
import threading
import time
import uuid
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hetfeat.devices import host
from hetfeat.devices.death import die_with_parent

DESCRIBE = "hetfeat.describe"
"""Name of a server's function that answers with what `_description` returns, as JSON."""


class _Crashes:
    """Counts sessions whose process ended badly: a client must tell a bad program from a bad link.

    TVM's server then gives up, and says so in an exception.
    """

    def __init__(self) -> None:
        self.count = 0
        threading.excepthook = self._on_exception

    def _on_exception(self, given: threading.ExceptHookArgs) -> None:
        sys.stderr.write(f"TVM's RPC server ended ({given.exc_value}); another one starts\n")
        self.count += "error code" in str(given.exc_value)


def serve(
    address: tuple[str, int],
    tracker: tuple[str, int],
    settings: dict[str, Any],
    *,
    restart_s: float = 0.2,
    ports: int = 100,
) -> None:
    """Serves until the process is killed.

    Args:
        address: Host and port to listen on; the next free port if this one is taken.
        tracker: Host and port of the tracker.
        settings: `key`, `threads` of a program, and `advertise`, the host that clients are told to
            connect to (None for the one from which the tracker sees this server).
        restart_s: Pause in seconds before TVM's server starts anew, default 0.2.
        ports: Number of ports tried from that of `address` on, default 100.
    """
    # The processes of sessions are forked, and read it when their first parallel kernel runs.
    os.environ["TVM_NUM_THREADS"] = str(settings["threads"])
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", host.TVM_SPINS)
    import tvm
    from tvm.rpc.server import PopenRPCServerState

    crashes = _Crashes()
    described = _description(settings["threads"]) | {"instance": uuid.uuid4().hex}
    tvm.register_global_func(
        DESCRIBE, lambda: json.dumps(described | {"crashes": crashes.count}), override=True
    )
    os.register_at_fork(after_in_child=die_with_parent)
    folder = Path.cwd()
    while True:  # TVM's server ends with a crashing session, and when the tracker is long gone
        os.chdir(folder)  # it ended in the folder of the session, which is gone
        server = PopenRPCServerState(
            address[0],
            address[1],
            address[1] + ports,
            tracker_addr=tracker,
            key=settings["key"],
            custom_addr=settings["advertise"],
        )
        server.thread.join()
        server.sock.close()
        time.sleep(restart_s)


def _description(threads: int) -> dict[str, Any]:
    """What the machine says of itself: processor, instruction sets, cores, versions."""
    import tvm
    from tvm.target import codegen

    mcpu = host.llvm_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": mcpu})
    return {
        "machine": platform.machine(),
        "cpu": host.cpu_model(),
        "mcpu": mcpu,
        "features": sorted(str(name) for name in codegen.llvm_get_cpu_features(target)),
        "cores": host.usable_cores(),
        "threads": threads,
        "tvm": version("apache-tvm"),
    }


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # threads wait in C: nothing could be unwound
    die_with_parent()
    given = json.loads(sys.argv[1])
    serve(tuple(given.pop("address")), tuple(given.pop("tracker")), given)
