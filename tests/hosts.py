"""Hosts with addresses of their own on this machine: network namespaces on a bridge."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from fleets import wait_until

TESTS = Path(__file__).parent
HUB = "hub"


def _ip(*words: str, check: bool = True) -> int:
    return subprocess.run(["ip", *words], check=check, capture_output=True).returncode


class Hosts:
    """Namespaces, each with one address; what runs there ends with them.

    Every host has a home, and a folder of temporary files with its own lock of who measures.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"hf{os.getpid()}"
        self.addresses: dict[str, str] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        _ip("netns", "add", self._space(HUB))
        _ip("-n", self._space(HUB), "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._space(HUB), "link", "set", "bridge", "up")

    def add(self, host: str) -> str:
        """Makes a host; its address."""
        number = len(self.addresses) + 1
        space, hub, plug = self._space(host), self._space(HUB), f"plug{number}"
        self.addresses[host] = address = f"10.78.0.{number}"
        _ip("netns", "add", space)
        _ip("-n", hub, "link", "add", plug, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("-n", hub, "link", "set", plug, "master", "bridge", "up")
        _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", space, "link", "set", device, "up")
        return address

    def cut(self, host: str) -> None:
        """Pulls a host's plug: nothing is closed, nothing answers."""
        number = list(self.addresses).index(host) + 1
        _ip("-n", self._space(HUB), "link", "set", f"plug{number}", "down")

    def start(self, host: str, *words: str, **environment: str) -> None:
        """Starts a Python module of a host, which ends with the hosts."""
        command, own = self._command(host, "-m", *words), self._environment(host, environment)
        with (self.folder / f"{host}.log").open("ab") as log:
            made = subprocess.Popen(
                command, env=own, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        self._processes.append(made)

    def run(self, host: str, *words: str, **environment: str) -> str:
        """What a Python module of a host prints, which must succeed."""
        return self._output(host, ("-m", *words), environment)

    def do(self, host: str, code: str, **environment: str) -> str:
        """What lines of Python print on a host, which must succeed."""
        return self._output(host, ("-c", code), environment)

    def _output(self, host: str, words: tuple[str, ...], environment: Mapping[str, str]) -> str:
        command, own = self._command(host, *words), self._environment(host, environment)
        done = subprocess.run(command, env=own, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    def wait_for(self, host: str, seen_from: str, port: int) -> None:
        """Waits until something listens there."""
        ask = f"import socket; socket.create_connection(('{self.addresses[host]}', {port}), 1)"
        command = ["ip", "netns", "exec", self._space(seen_from), sys.executable, "-c", ask]
        wait_until(lambda: subprocess.run(command, capture_output=True).returncode == 0, 240)

    def close(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
        for host in (*self.addresses, HUB):
            _ip("netns", "delete", self._space(host), check=False)

    def _space(self, host: str) -> str:
        return f"{self.name}-{host}"

    def _command(self, host: str, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self._space(host), sys.executable, *words]

    def _environment(self, host: str, own: Mapping[str, str]) -> dict[str, str]:
        place = self.folder / "tmp" / host
        place.mkdir(parents=True, exist_ok=True)
        paths = f"{TESTS.parent}:{TESTS}"
        home = {"HETFEAT_HOME": str(self.folder / "homes" / host)}
        return {**os.environ, **home, "PYTHONPATH": paths, "TMPDIR": str(place), **own}


@contextlib.contextmanager
def hosts(folder: Path, *names: str) -> Iterator[Hosts]:
    """Hosts of these names; the test is skipped where namespaces are not allowed."""
    probe = f"hf{os.getpid()}-probe"
    try:
        allowed = _ip("netns", "add", probe, check=False) == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("network namespaces need the command `ip` and the right to make some")
    _ip("netns", "delete", probe)
    made = Hosts(folder)
    try:
        for name in names:
            made.add(name)
        yield made
    finally:
        made.close()


def start_dask(made: Hosts, *workers: str) -> str:
    """A scheduler on the host `scheduler` and a worker on each of the others; HOST:PORT."""
    address = f"{made.addresses['scheduler']}:8786"
    # Who is cut off is missed after seconds, not after Dask's five minutes.
    missed = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10 seconds"}
    command = ("distributed.cli.dask_scheduler", "--host", made.addresses["scheduler"])
    made.start("scheduler", *command, "--no-dashboard", **missed)
    made.wait_for("scheduler", "scheduler", 8786)
    for worker in workers:
        command = ("distributed.cli.dask_worker", f"tcp://{address}", "--nthreads", "1")
        made.start(worker, *command, "--no-dashboard")
    return address
