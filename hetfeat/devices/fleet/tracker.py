"""TVM's RPC tracker: `python -m hetfeat.devices.fleet.tracker HOST PORT`."""

import signal
import sys

from hetfeat.devices.death import die_with_parent


def track(host: str, port: int) -> None:
    """Runs the tracker until the process is killed; a port that is taken is an OSError."""
    from tvm.rpc.tracker import PopenTrackerServerState

    PopenTrackerServerState(host, port, port + 1).thread.join()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent()
    track(sys.argv[1], int(sys.argv[2]))
