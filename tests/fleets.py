"""Trackers and servers on this machine for tests, and a link that can be cut, slowed or stopped."""

import contextlib
import itertools
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil

from hetfeat.devices.fleet.control import status
from hetfeat.devices.fleet.route import Address
from hetfeat.errors import WorkFailed

HOST = "127.0.0.1"
PROXY_HOST = "127.0.0.2"
"""What a server behind a `Link` tells clients; its port there is the server's own."""
RESEND_S = 0.2
"""What Linux waits at least before it sends a lost packet again."""
STARTER = ThreadPoolExecutor(1)
"""Trackers and servers end with the thread that started them, which must not be a test's timer."""


def free_port(host: str = HOST) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


class Process:
    """A child that can be killed, stopped and continued, with the processes it started."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        core: int | None = None,
        python: str = sys.executable,
    ) -> None:
        pin = [] if core is None else ["taskset", "-c", str(core)]
        command = [*pin, python, "-m", module, *arguments]
        self._process = STARTER.submit(
            subprocess.Popen, command, stderr=subprocess.DEVNULL
        ).result()

    def signal(self, number: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(self._process.pid)
            for process in [own, *own.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()

    def kill_session(self) -> bool:
        """Kills the process of a session, if there is one, as a crashing program does."""
        children = psutil.Process(self._process.pid).children()
        for child in children:
            child.kill()
        return bool(children)


class Fleet:
    """A tracker and servers of one key."""

    def __init__(self, key: str = "k", tracker_port: int | None = None) -> None:
        self.key = key
        self.tracker = Address(HOST, tracker_port or free_port())
        self.servers: list[Process] = []
        self.start_tracker()

    def start_tracker(self) -> None:
        self._tracker = Process("hetfeat.devices.fleet.tracker", HOST, str(self.tracker.port))
        wait_until(self._tracker_answers)

    def stop_tracker(self) -> None:
        self._tracker.kill()

    def start_server(
        self,
        threads: int = 2,
        core: int | None = None,
        advertise: str | None = None,
        port: int | None = None,
        wait: bool = True,
        python: str = sys.executable,
    ) -> Process:
        before = self.servers_known()
        settings = {
            "address": [HOST, port or free_port()],
            "tracker": [HOST, self.tracker.port],
            "key": self.key,
            "threads": threads,
            "advertise": advertise,
        }
        server = Process(
            "hetfeat.devices.fleet.server", json.dumps(settings), core=core, python=python
        )
        self.servers.append(server)
        if wait:
            wait_until(lambda: self.servers_known() > before)
        return server

    def servers_known(self) -> int:
        try:
            return sum(d["servers"] for d in status(self.tracker) if d["device"] == self.key)
        except WorkFailed:
            return 0

    def stop_servers(self) -> None:
        for server in self.servers:
            server.kill()
        self.servers.clear()
        wait_until(lambda: self.servers_known() == 0)

    def close(self) -> None:
        for server in self.servers:
            server.kill()
        self._tracker.kill()

    def _tracker_answers(self) -> bool:
        try:
            status(self.tracker)
        except WorkFailed:
            return False
        return True


@contextlib.contextmanager
def fleet(*, servers: int = 0, threads: int = 2) -> Iterator[Fleet]:
    made = Fleet()
    try:
        for _ in range(servers):
            made.start_server(threads)
        yield made
    finally:
        made.close()


class Link:
    """A TCP proxy from PROXY_HOST to HOST, on one port, that behaves as badly as it is told.

    Attributes:
        delay_s: Added to each piece of data, each way.
        loss: Share of pieces that get lost, and come only when TCP has sent them again.
        frozen: Hands nothing on, and breaks nothing off.
        refuse: Breaks new connections off at once.
    """

    def __init__(self, port: int) -> None:
        self.port, self.delay_s, self.loss = port, 0.0, 0.0
        self.frozen, self.refuse = False, False
        self.connections = 0
        self._open: list[socket.socket] = []
        self._listening = socket.create_server((PROXY_HOST, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Breaks all connections off; how many there were."""
        pairs, self._open = self._open, []
        for end in pairs:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        return len(pairs) // 2

    def close(self) -> None:
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if self.refuse:
                    near.close()
                    continue
                self.connections += 1
                far = socket.create_connection((HOST, self.port))
                self._open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _resending_s(self) -> float:
        """How long TCP takes to get a piece across: it doubles its patience with each loss."""
        waits = itertools.takewhile(lambda _: random.random() < self.loss, itertools.count())
        return sum(RESEND_S * 2**time for time in waits)

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(self.delay_s + self._resending_s())
                while self.frozen:
                    time.sleep(0.05)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
