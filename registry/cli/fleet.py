"""`hetfeat fleet`: TVM's RPC tracker and servers, and what a tracker has."""

from dataclasses import dataclass
from typing import Any

import click

from hetfeat.devices.fleet.route import DEFAULT_TRACKER, LOOPBACK, Address, RpcRoute
from registry.cli import app
from registry.cli.options import option
from registry.cli.params import DEVICE

PORT = click.IntRange(1, 2**16 - 1)


@click.group("fleet", cls=app.Group)
def command() -> None:
    """Devices over TVM's RPC: a tracker here, a server on each of them."""


@dataclass(frozen=True)
class TrackerOptions:
    """Options of `hetfeat fleet start-tracker`."""

    host: str = option(LOOPBACK, "Address to listen on.")
    port: int = option(9190, "Port to listen on.", type=PORT)


@app.command("start-tracker", TrackerOptions, example="hetfeat fleet start-tracker --host 0.0.0.0")
def start_tracker(options: TrackerOptions) -> app.Result:
    """Run a tracker until it is interrupted."""
    from hetfeat.devices.fleet import control

    return app.Result({}, exit_code=control.start_tracker(Address(options.host, options.port)))


@dataclass(frozen=True)
class ServerOptions:
    """Options of `hetfeat fleet start-server`."""

    device: str = option("local", "local, a device's name or a profile's file.", type=DEVICE)
    tracker: str | None = option(
        None, f"HOST:PORT.  [default: of the profile's route, {DEFAULT_TRACKER}]"
    )
    key: str | None = option(
        None, "What to be called at the tracker.  [default: of the profile's route]"
    )
    host: str = option(LOOPBACK, "Address to listen on.")
    port: int = option(9090, "Or the next one that is free.", type=PORT)
    advertise: str | None = option(
        None, "Host that clients are told.  [default: as the tracker sees it]"
    )


@app.command(
    "start-server",
    ServerOptions,
    example="hetfeat fleet start-server --device board.yaml --tracker 10.0.0.1:9190 --key board",
)
def start_server(options: ServerOptions) -> app.Result:
    """Serve this machine as a device, until it is interrupted."""
    from hetfeat.devices.fleet import control
    from hetfeat.devices.fleet.route import route_of
    from hetfeat.devices.probe import find_profile

    profile = find_profile(options.device)
    if profile.route.is_local:
        route = RpcRoute(Address.parse(DEFAULT_TRACKER), profile.name)
    else:
        route = route_of(profile)
    code = control.start_server(
        Address(options.host, options.port),
        Address.parse(options.tracker) if options.tracker else route.tracker,
        options.key or route.key,
        profile.threads,
        options.advertise,
    )
    return app.Result({}, exit_code=code)


@dataclass(frozen=True)
class StatusOptions:
    """Options of `hetfeat fleet status`."""

    tracker: str = option(DEFAULT_TRACKER, "HOST:PORT.")


@app.command("status", StatusOptions, example="hetfeat fleet status --tracker 10.0.0.1:9190")
def status(options: StatusOptions) -> dict[str, Any]:
    """List the devices of a tracker and their free servers."""
    from hetfeat.devices.fleet import control

    address = Address.parse(options.tracker)
    return {"tracker": str(address), "devices": control.status(address)}


command.add_command(start_tracker)
command.add_command(start_server)
command.add_command(status)
