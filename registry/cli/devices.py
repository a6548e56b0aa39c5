"""`hetfeat devices`: profiles of devices, and probing this machine."""

import dataclasses
from pathlib import Path
from typing import Any

import click

from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError
from registry.cli import app


@click.group("devices", cls=app.Group)
def command() -> None:
    """Profiles of devices, and probing this machine."""


@app.command("list")
def list_devices() -> dict[str, Any]:
    """List the devices that can be named."""
    from hetfeat.devices.presets import preset, preset_names
    from hetfeat.devices.probe import local_profile

    shown = ("name", "family", "threads", "peak_gflops", "datasheet_gflops")
    known = [("local", local_profile()), *(("", preset(name)) for name in preset_names())]
    return {
        "devices": [
            {"alias": alias, **{key: getattr(profile, key) for key in shown}}
            for alias, profile in known
        ]
    }


@app.command("show")
@app.argument("name")
def show(name: str) -> dict[str, Any]:
    """Show the profile of a device: local, its name, a preset, or a profile's file."""
    from hetfeat.devices.probe import find_profile

    return find_profile(name).to_dict()


@app.command("probe")
@app.option("--name", help="Name of the profile.  [default: made of CPU, ISA and threads]")
@app.option("--isa", type=click.Choice(["avx512", "avx2", "sse42"]), help="Widest vectors used.")
@app.option("--threads", type=click.IntRange(1), help="Threads.  [default: all usable cores]")
@app.option("--tracker", help="HOST:PORT of the tracker by which others reach this machine.")
@app.option("--gpu", type=app.SWITCH, default="false", help="This machine's NVIDIA GPU instead.")
@app.option("--out", type=Path, help="YAML file to write.  [default: this machine's cache]")
def probe_machine(
    name: str | None,
    isa: str | None,
    threads: int | None,
    tracker: str | None,
    gpu: bool,
    out: Path | None,
) -> dict[str, Any]:
    """Detect this machine and measure its figures anew, or describe its GPU."""
    from hetfeat.devices.fleet.route import Address, rpc_route
    from hetfeat.devices.host import cpu_model
    from hetfeat.devices.probe import probe, remember
    from hetfeat.devices.profile import save_profile

    if (isa or threads or tracker or gpu) and not out:
        raise RequestError(
            "--isa, --threads, --tracker or --gpu without --out",
            "a file, since `local` is the whole CPU, here",
            "add --out FILE",
        )
    if gpu and (isa or threads or tracker):
        raise RequestError(
            "--gpu true with --isa, --threads or --tracker", "a GPU, or a CPU", "leave one out"
        )
    address = Address.parse(tracker) if tracker else None
    profile = _gpu(name) if gpu else probe(name, threads, isa)
    if address:
        route = rpc_route(address, profile.name, cpu_model())
        profile = dataclasses.replace(profile, route=route)
    if out:
        save_profile(profile, out)
    else:
        remember(profile)
    return profile.to_dict()


def _gpu(name: str | None) -> DeviceProfile:
    from hetfeat.devices.cuda import gpu_profile

    return gpu_profile(name)


command.add_command(list_devices)
command.add_command(show)
command.add_command(probe_machine)
