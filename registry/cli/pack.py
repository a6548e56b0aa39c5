"""`hetfeat pack`: programs built here, measured on a device that only runs them."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from registry.cli import app
from registry.cli.options import argument, option, seed_option
from registry.cli.params import DEVICE, DEVICE_NAME


@click.group("pack", cls=app.Group)
def command() -> None:
    """Programs built here, measured on a device that only runs them."""


@dataclass(frozen=True)
class PackBuildOptions:
    """Options of `hetfeat pack build`."""

    device: str = option("local", "local, a device's name or a profile's file.", type=DEVICE)
    network: tuple[str, ...] = option(
        (), "Networks; resnet18@4 is one at batch 4.  [default: those of --from]"
    )
    programs: int = option(
        2000, "Programs in all, shared evenly among tasks.", type=click.IntRange(1)
    )
    store: Path | None = option(
        None, "Record store that the pack goes on from: near its fastest.", flag="--from"
    )
    out: Path = option(Path("pack.tar.xz"), "File of the pack.")
    precision: str = option(
        "float32",
        "float32, or float16 for tensor cores.",
        type=click.Choice(["float32", "float16"]),
    )
    seed: int = seed_option()


@app.command(
    "build",
    PackBuildOptions,
    example="hetfeat pack build --device h100.yaml --network resnet50 --programs 2000",
    interrupted="what was built is kept; the same command goes on",
)
def build(options: PackBuildOptions) -> dict[str, Any]:
    """Propose and build programs for a device that need not be here."""
    from hetfeat.devices.probe import find_profile
    from hetfeat.errors import RequestError
    from hetfeat.packs.build import PackRequest, build_pack
    from hetfeat.progress import progress

    if not options.network and options.store is None:
        raise RequestError(
            "a pack of nothing", "--network or --from", "name a network, or a record store"
        )
    request = PackRequest(
        options.network, options.programs, options.store, options.seed, options.precision
    )
    profile = find_profile(options.device)
    with progress(options.programs, "program") as at:
        built = build_pack(profile, request, options.out, lambda done, total: at(done))
    return {**dataclasses.asdict(built), "device": profile.name, "out": options.out}


@dataclass(frozen=True)
class PackRunCommandOptions:
    """Options of `hetfeat pack run`."""

    pack: Path = argument()
    out: Path = option(Path("records.jsonl"), "File of records; made, or added to.")
    cold: bool = option(False, "Empty the caches before each run, as for finalists.")
    standalone: Path | None = option(
        None, "Measure nothing: make this folder, to be run where nothing is installed."
    )


@app.command(
    "run",
    PackRunCommandOptions,
    example="hetfeat pack run pack.tar.xz --out records.jsonl",
    interrupted="what was measured is kept; the same command goes on",
)
def run(options: PackRunCommandOptions) -> dict[str, Any]:
    """Measure the programs of a pack on this machine, by TVM's runtime alone."""
    from hetfeat.packs.run import PackRunOptions, run_pack
    from hetfeat.packs.standalone import write_standalone
    from hetfeat.progress import progress

    if options.standalone is not None:
        wheels = write_standalone(options.pack, options.standalone)
        return {"folder": options.standalone, "wheels": wheels}
    settings = PackRunOptions(cold=options.cold)
    with progress(None, "program") as at:
        summary = run_pack(options.pack, options.out, settings, lambda done, total: at(done))
    rate = {"programs_per_s": summary.programs_per_s}
    return {**dataclasses.asdict(summary), **rate, "out": options.out}


@dataclass(frozen=True)
class PackImportOptions:
    """Options of `hetfeat pack import`."""

    records: Path = argument()
    device: str | None = option(
        None,
        "Name that they get, where it was another one.  [default: the pack's]",
        type=DEVICE_NAME,
    )
    out: Path = option(Path("records"), "Record store; made, or added to.")


@app.command(
    "import",
    PackImportOptions,
    example="hetfeat pack import records.jsonl --out records",
    interrupted="what was read is kept",
)
def import_(options: PackImportOptions) -> dict[str, Any]:
    """Read what a pack's run has measured into a record store."""
    from hetfeat.packs.bring_back import import_pack_records

    counts, device = import_pack_records(options.records, options.out, options.device)
    return {**counts.summary(), "device": device, "out": options.out}


command.add_command(build)
command.add_command(run)
command.add_command(import_)
