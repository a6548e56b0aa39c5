"""Starting TVM's tracker and servers, and asking a tracker what it has."""

import contextlib
import ipaddress
import json
import logging
import socket
import struct
import subprocess
import sys
from typing import Annotated, Any

from pydantic import Field

from hetfeat.devices.fleet.report import Text
from hetfeat.devices.fleet.route import LOOPBACK, Address, check_key, route_of
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError, RequestError, WorkFailed
from hetfeat.parsing import MAX_BYTES, Count, Json, Schema, decode, parse

log = logging.getLogger(__name__)


class _Queue(Schema):
    free: Count
    pending: Count


class _Server(Schema):
    key: Text
    addr: Annotated[list[Text | Count | None], Field(max_length=4)]


class _Summary(Schema):
    """What TVM's tracker says it has."""

    queue_info: dict[Text, _Queue]
    server_info: list[_Server]


def start_tracker(address: Address) -> int:
    """Runs a tracker until it ends or this process is interrupted; its exit code."""
    _check_free(address)
    _warn_unless_loopback(address.host)
    log.info("tracker on %s; Ctrl-C ends it", address)
    return _run("hetfeat.devices.fleet.tracker", address.host, str(address.port))


def start_server(
    address: Address, tracker: Address, key: str, threads: int, advertise: str | None
) -> int:
    """Runs a server until it ends or this process is interrupted; its exit code.

    Args:
        address: Address to listen on; the next free port if this one is taken.
        tracker: Address of the tracker to report to.
        key: Key of the device at the tracker.
        threads: Number of threads that programs run with.
        advertise: Host name that clients are to connect to; None for the one the tracker sees.

    Raises:
        RequestError: An address that is not this machine's, a tracker whose host nobody knows, or
            a key that TVM cannot send.
    """
    check_key(key)
    _check_free(Address(address.host, 0))  # whether it is this machine's: any port will do
    _check_known(tracker)
    _warn_unless_loopback(address.host)
    settings = {
        "address": [address.host, address.port],
        "tracker": [tracker.host, tracker.port],
        "key": key,
        "threads": threads,
        "advertise": advertise,
    }
    log.info("server '%s' for the tracker on %s; Ctrl-C ends it", key, tracker)
    return _run("hetfeat.devices.fleet.server", json.dumps(settings))


def status(tracker: Address, *, timeout_s: float = 10.0) -> list[dict[str, Any]]:
    """The devices of a tracker by key: servers, how many are free, clients waiting, addresses.

    Args:
        tracker: Address of the tracker.
        timeout_s: Longest wait for its answer in seconds, default 10.

    Raises:
        WorkFailed: No tracker answers there.
    """
    summary = _summary(tracker, timeout_s)
    servers: dict[str, list[str]] = {key: [] for key in summary.queue_info}
    for server in summary.server_info:
        key = server.key.removeprefix("server:")
        servers.setdefault(key, []).append(":".join(map(str, server.addr)))
    idle = _Queue(free=0, pending=0)
    return [
        {
            "device": key,
            "servers": len(found),
            "free": summary.queue_info.get(key, idle).free,
            "waiting": summary.queue_info.get(key, idle).pending,
            "addresses": sorted(found),
        }
        for key, found in sorted(servers.items())
    ]


def need_tracker(profile: DeviceProfile) -> None:
    """Asks the tracker of a device that is behind one.

    Raises:
        RequestError: The route cannot be read.
        WorkFailed: No tracker answers there.
    """
    if profile.route.is_rpc:
        status(route_of(profile).tracker)


def _summary(tracker: Address, timeout_s: float) -> "_Summary":
    """What the tracker says; TVM's own client would wait a minute for one that is not there."""
    from tvm.rpc import base

    try:
        with socket.create_connection((tracker.host, tracker.port), timeout_s) as link:
            link.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            if struct.unpack("<i", base.recvall(link, 4)) != (base.RPC_TRACKER_MAGIC,):
                raise ValueError("not TVM's tracker")
            base.sendjson(link, [base.TrackerCode.SUMMARY])
            (size,) = struct.unpack("<i", base.recvall(link, 4))
            if not 0 < size <= MAX_BYTES:
                raise ValueError(f"{size} bytes to come")
            text = base.recvall(link, size)
            what, action = f"the answer of tracker {tracker}", "correct --tracker"
            answer: list[Any] = decode(text, list[Json], what=what, action=action)
            return parse(answer[-1] if answer else None, _Summary, what=what, action=action)
    except (OSError, ValueError, struct.error, DataError) as error:
        raise WorkFailed(
            f"tracker {tracker}, which does not answer ({error})",
            "a TVM RPC tracker",
            "start one with `hetfeat fleet start-tracker`, or correct --tracker",
        ) from error


def _check_free(address: Address) -> None:
    """Raises RequestError where TVM would end with a traceback."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            raise RequestError(
                f"address {address} ({error.strerror})",
                "an address of this machine that is free",
                "choose another --host or --port",
            ) from error


def _check_known(tracker: Address) -> None:
    """Raises RequestError where TVM would try for ever."""
    try:
        socket.getaddrinfo(tracker.host, tracker.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise RequestError(
            f"tracker {tracker} ({error.strerror})",
            "a host that has an address",
            "correct --tracker",
        ) from error


def _warn_unless_loopback(host: str) -> None:
    loopback = host == "localhost"
    with contextlib.suppress(ValueError):
        loopback = loopback or ipaddress.ip_address(host).is_loopback
    if not loopback:
        log.warning(
            "listening on %s: TVM's RPC knows no passwords, and whoever reaches it runs code here; "
            "on a network that others use, listen on %s and tunnel (docs/fleet.md)",
            host,
            LOOPBACK,
        )


def _run(module: str, *arguments: str) -> int:
    """0 if a child ends well, 1 if not; it ends with this process, however that ends."""
    return int(subprocess.run([sys.executable, "-m", module, *arguments]).returncode != 0)
