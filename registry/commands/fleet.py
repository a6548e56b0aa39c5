"""`hetfeat fleet`: TVM's RPC tracker and servers, and what a tracker has."""

from typing import Any

import click

from hetfeat.devices.fleet.route import DEFAULT_TRACKER, LOOPBACK, Address, RpcRoute
from registry.commands import _cli

PORT = click.IntRange(1, 2**16 - 1)


@click.group("fleet", cls=_cli.Group)
def command() -> None:
    """Devices over TVM's RPC: a tracker here, a server on each of them."""


@_cli.command("start-tracker")
@_cli.option("--host", default=LOOPBACK, help="Address to listen on.")
@_cli.option("--port", type=PORT, default=9190)
def start_tracker(host: str, port: int) -> _cli.Result:
    """Run a tracker until it is interrupted."""
    from hetfeat.devices.fleet import control

    return _cli.Result({}, exit_code=control.start_tracker(Address(host, port)))


@_cli.command("start-server")
@_cli.option("--device", default="local", help="local, a device's name or a profile's file.")
@_cli.option("--tracker", help=f"HOST:PORT.  [default: of the profile's route, {DEFAULT_TRACKER}]")
@_cli.option("--key", help="What to be called at the tracker.  [default: of the profile's route]")
@_cli.option("--host", default=LOOPBACK, help="Address to listen on.")
@_cli.option("--port", type=PORT, default=9090, help="Or the next one that is free.")
@_cli.option("--advertise", help="Host that clients are told.  [default: as the tracker sees it]")
def start_server(
    device: str, tracker: str | None, key: str | None, host: str, port: int, advertise: str | None
) -> _cli.Result:
    """Serve this machine as a device, until it is interrupted."""
    from hetfeat.devices.fleet import control
    from hetfeat.devices.fleet.route import route_of
    from hetfeat.devices.probe import find_profile

    profile = find_profile(device)
    if profile.route.is_local:
        route = RpcRoute(Address.parse(DEFAULT_TRACKER), profile.name)
    else:
        route = route_of(profile)
    code = control.start_server(
        Address(host, port),
        Address.parse(tracker) if tracker else route.tracker,
        key or route.key,
        profile.threads,
        advertise,
    )
    return _cli.Result({}, exit_code=code)


@_cli.command("status")
@_cli.option("--tracker", default=DEFAULT_TRACKER, help="HOST:PORT.")
def status(tracker: str) -> dict[str, Any]:
    """List the devices of a tracker and their free servers."""
    from hetfeat.devices.fleet import control

    address = Address.parse(tracker)
    return {"tracker": str(address), "devices": control.status(address)}


command.add_command(start_tracker)
command.add_command(start_server)
command.add_command(status)
