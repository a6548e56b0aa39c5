"""`hetfeat fleet`: TVM's RPC tracker and servers, and what a tracker has."""

from typing import Any

import click

from hetfeat.devices.fleet.route import DEFAULT_TRACKER, LOOPBACK, Address, RpcRoute
from registry.cli import app

PORT = click.IntRange(1, 2**16 - 1)


@click.group("fleet", cls=app.Group)
def command() -> None:
    """Devices over TVM's RPC: a tracker here, a server on each of them."""


@app.command("start-tracker")
@app.option("--host", default=LOOPBACK, help="Address to listen on.")
@app.option("--port", type=PORT, default=9190)
def start_tracker(host: str, port: int) -> app.Result:
    """Run a tracker until it is interrupted."""
    from hetfeat.devices.fleet import control

    return app.Result({}, exit_code=control.start_tracker(Address(host, port)))


@app.command("start-server")
@app.option("--device", default="local", help="local, a device's name or a profile's file.")
@app.option("--tracker", help=f"HOST:PORT.  [default: of the profile's route, {DEFAULT_TRACKER}]")
@app.option("--key", help="What to be called at the tracker.  [default: of the profile's route]")
@app.option("--host", default=LOOPBACK, help="Address to listen on.")
@app.option("--port", type=PORT, default=9090, help="Or the next one that is free.")
@app.option("--advertise", help="Host that clients are told.  [default: as the tracker sees it]")
def start_server(
    device: str, tracker: str | None, key: str | None, host: str, port: int, advertise: str | None
) -> app.Result:
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
    return app.Result({}, exit_code=code)


@app.command("status")
@app.option("--tracker", default=DEFAULT_TRACKER, help="HOST:PORT.")
def status(tracker: str) -> dict[str, Any]:
    """List the devices of a tracker and their free servers."""
    from hetfeat.devices.fleet import control

    address = Address.parse(tracker)
    return {"tracker": str(address), "devices": control.status(address)}


command.add_command(start_tracker)
command.add_command(start_server)
command.add_command(status)
