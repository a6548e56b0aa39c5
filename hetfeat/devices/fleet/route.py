"""The way to a device: a tracker and the key that its servers have there."""

import re
from dataclasses import dataclass

from hetfeat.devices.profile import DeviceProfile, Route
from hetfeat.errors import RequestError

LOOPBACK = "127.0.0.1"
DEFAULT_TRACKER = f"{LOOPBACK}:9190"
"""Address with TVM's own port; also what a route means that names no tracker, as those of presets
do."""


@dataclass(frozen=True)
class Address:
    """A host and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """`HOST:PORT`.

        Raises:
            RequestError: It is something else.
        """
        match = re.fullmatch("(.+):([0-9]{1,5})", text, re.DOTALL)
        if not match or not 0 < int(match[2]) < 2**16:
            raise RequestError(
                f"address '{text}'", f"HOST:PORT, say {DEFAULT_TRACKER}", "correct it"
            )
        return cls(match[1], int(match[2]))


@dataclass(frozen=True)
class RpcRoute:
    """How a device is reached over RPC.

    Attributes:
        tracker: Address where the tracker listens, as seen from here.
        key: Key of the device's servers at the tracker.
        cpu: Name of the processor, which a server must report, too; None, the default, where the
            profile does not tell.
    """

    tracker: Address
    key: str
    cpu: str | None = None


def route_of(profile: DeviceProfile) -> RpcRoute:
    """The RPC route of a profile.

    Raises:
        RequestError: The profile has none, or one that cannot be read.
    """
    given = profile.route
    known = {"kind", "tracker", "key", "cpu"}
    texts = all(isinstance(value, str) for value in given.values())
    if not given.is_rpc or not given.get("key") or not set(given) <= known or not texts:
        raise RequestError(
            f"route {dict(given)} of device '{profile.name}'",
            "kind: rpc, with a key, and perhaps tracker (HOST:PORT) and cpu",
            "write one with `hetfeat devices probe --tracker HOST:PORT --out FILE`",
        )
    check_key(given["key"])
    tracker = Address.parse(given.get("tracker", DEFAULT_TRACKER))
    return RpcRoute(tracker, given["key"], given.get("cpu"))


def check_key(key: str) -> None:
    """Raises RequestError for a key that a server could not be asked for: TVM splits at blanks."""
    if not key.isascii() or key.split() != [key]:
        raise RequestError(f"key {key!r}", "ASCII characters without blanks", "correct the key")


def rpc_route(tracker: Address, key: str, cpu: str) -> Route:
    """A route as a profile keeps it."""
    return Route({"kind": "rpc", "tracker": str(tracker), "key": key, "cpu": cpu})
