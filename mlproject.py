"""The door: `hetfeat COMMAND` for people, `python -m mlproject COMMAND` for MLflow."""

import sys
from collections.abc import Sequence

from registry.cli import app

SECTIONS = {
    "Start here": {
        "demo": (
            "registry.cli.demo:command",
            "A first result in a minute: ResNet-18, compiled here.",
        ),
        "deploy": ("registry.cli.deploy:command", "Tune and compile a network for a device."),
        "run": ("registry.cli.run:command", "Run a bundle."),
        "serve": ("registry.cli.serve:command", "Serve a bundle over HTTP, verified."),
        "bench": ("registry.cli.bench:command", "Time a bundle, beside other engines."),
        "compile": ("registry.cli.compile:command", "Compile what a deployment has found so far."),
    },
    "Records": {
        "collect": ("registry.cli.collect:command", "Measure programs of networks on a device."),
        "import": ("registry.cli.import_:command", "Read records that other tools measured."),
        "records": ("registry.cli.records:command", "What a record store holds; verify it."),
        "prune": ("registry.cli.prune:command", "Keep the records that teach most."),
    },
    "Cost models": {
        "train": ("registry.cli.train:command", "Train and register a cost model."),
        "hpo": ("registry.cli.hpo:command", "Search hyperparameters; register the best."),
        "transfer": (
            "registry.cli.transfer:command",
            "Adapt a model to a device with few measurements.",
        ),
        "evaluate": ("registry.cli.evaluate:command", "Judge a stored model on records."),
        "compare": ("registry.cli.compare:command", "Print runs side by side."),
    },
    "Registry": {
        "versions": ("registry.cli.versions:command", "List registered models and versions."),
        "promote": ("registry.cli.promote:command", "Move a model version to another stage."),
        "rollback": ("registry.cli.rollback:command", "Put production back as it was before."),
        "history": ("registry.cli.history:command", "Print who moved which version, and why."),
        "lineage": ("registry.cli.lineage:command", "Print what a version comes from and led to."),
        "pull": ("registry.cli.pull:command", "Bring a version's verified files to this machine."),
        "share": ("registry.cli.share:command", "Put a version in S3, for devices without MLflow."),
        "fetch": ("registry.cli.fetch:command", "Bring a shared version here, without MLflow."),
        "doctor": ("registry.cli.doctor:command", "Find and repair inconsistencies."),
        "retention": (
            "registry.cli.retention:command",
            "Remove old archived versions that nothing needs.",
        ),
        "cache": ("registry.cli.cache:command", "Bound the copies kept on this machine."),
    },
    "Devices": {
        "devices": ("registry.cli.devices:command", "Profiles of devices; probe this machine."),
        "fleet": ("registry.cli.fleet:command", "Trackers and servers for other devices."),
        "pack": ("registry.cli.pack:command", "Build here, measure there: devices without a link."),
    },
    "Research": {
        "search": ("registry.cli.search:command", "Compare GEMM and kernel searches."),
        "report": ("registry.cli.report:command", "Remake the papers' tables from our runs."),
    },
}
"""Heading -> name -> import string and line of help: listing the commands imports none of them."""

COMMANDS = {name: entry for table in SECTIONS.values() for name, entry in table.items()}

cli = app.LazyGroup(
    SECTIONS,
    help="Cost models that know the hardware: learn them, keep them, tune with them.",
    no_args_is_help=True,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its code."""
    sys.exit(app.run(cli, arguments))


if __name__ == "__main__":
    main()
