"""`hetfeat devices`: profiles of devices, and probing this machine."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError
from registry.cli import app
from registry.cli.options import argument, option
from registry.cli.params import DEVICE


@click.group("devices", cls=app.Group)
def command() -> None:
    """Profiles of devices, and probing this machine."""


@app.command("list", example="hetfeat devices list")
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


@dataclass(frozen=True)
class ShowOptions:
    """Options of `hetfeat devices show`."""

    name: str = argument(type=DEVICE)


@app.command("show", ShowOptions, example="hetfeat devices show local")
def show(options: ShowOptions) -> dict[str, Any]:
    """Show the profile of a device: local, its name, a preset, or a profile's file."""
    from hetfeat.devices.probe import find_profile

    return find_profile(options.name).to_dict()


@dataclass(frozen=True)
class ProbeCommandOptions:
    """Options of `hetfeat devices probe`."""

    name: str | None = option(None, "Name of the profile.  [default: made of CPU, ISA and threads]")
    isa: str | None = option(
        None, "Widest vectors used.", type=click.Choice(["avx512", "avx2", "sse42"])
    )
    threads: int | None = option(
        None, "Threads.  [default: all usable cores]", type=click.IntRange(1)
    )
    tracker: str | None = option(
        None, "HOST:PORT of the tracker by which others reach this machine."
    )
    gpu: bool = option(False, "This machine's NVIDIA GPU instead.")
    out: Path | None = option(None, "YAML file to write.  [default: this machine's cache]")


@app.command("probe", ProbeCommandOptions, example="hetfeat devices probe --out here.yaml")
def probe_machine(options: ProbeCommandOptions) -> dict[str, Any]:
    """Detect this machine and measure its figures anew, or describe its GPU."""
    from hetfeat.devices.fleet.route import Address, rpc_route
    from hetfeat.devices.host import cpu_model
    from hetfeat.devices.probe import probe, remember
    from hetfeat.devices.profile import save_profile

    special = options.isa or options.threads or options.tracker
    if (special or options.gpu) and not options.out:
        raise RequestError(
            "--isa, --threads, --tracker or --gpu without --out",
            "a file, since `local` is the whole CPU, here",
            "add --out FILE",
        )
    if options.gpu and special:
        raise RequestError(
            "--gpu true with --isa, --threads or --tracker", "a GPU, or a CPU", "leave one out"
        )
    address = Address.parse(options.tracker) if options.tracker else None
    if options.gpu:
        profile = _gpu(options.name)
    else:
        profile = probe(options.name, options.threads, options.isa)
    if address:
        route = rpc_route(address, profile.name, cpu_model())
        profile = dataclasses.replace(profile, route=route)
    if options.out:
        save_profile(profile, options.out)
    else:
        remember(profile)
    return profile.to_dict()


def _gpu(name: str | None) -> DeviceProfile:
    from hetfeat.devices.cuda import gpu_profile

    return gpu_profile(name)


command.add_command(list_devices)
command.add_command(show)
command.add_command(probe_machine)
