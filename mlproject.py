"""The door: `hetfeat COMMAND` for people, `python -m mlproject COMMAND` for MLflow."""

import sys
from collections.abc import Sequence

from registry.commands import _cli

COMMANDS = {
    "devices": ("registry.commands.devices:command", "Profiles of devices; probe this machine."),
    "collect": ("registry.commands.collect:command", "Measure programs of networks on a device."),
    "import": ("registry.commands.import_:command", "Read records that other tools measured."),
    "records": ("registry.commands.records:command", "What a record store holds; verify it."),
    "prune": ("registry.commands.prune:command", "Keep the records that teach most."),
    "train": ("registry.commands.train:command", "Train and register a cost model."),
    "hpo": ("registry.commands.hpo:command", "Search hyperparameters; register the best."),
    "transfer": (
        "registry.commands.transfer:command",
        "Adapt a model to a device with few measurements.",
    ),
    "evaluate": ("registry.commands.evaluate:command", "Judge a stored model on records."),
    "promote": ("registry.commands.promote:command", "Move a model version to another stage."),
    "rollback": ("registry.commands.rollback:command", "Put production back as it was before."),
    "history": ("registry.commands.history:command", "Print who moved which version, and why."),
    "versions": ("registry.commands.versions:command", "List registered models and versions."),
    "compare": ("registry.commands.compare:command", "Print runs side by side."),
    "lineage": ("registry.commands.lineage:command", "Print what a version comes from and led to."),
    "pull": ("registry.commands.pull:command", "Bring a version's verified files to this machine."),
    "share": (
        "registry.commands.share:command",
        "Put a version in S3, for devices without MLflow.",
    ),
    "fetch": ("registry.commands.fetch:command", "Bring a shared version here, without MLflow."),
    "doctor": ("registry.commands.doctor:command", "Find and repair inconsistencies."),
    "retention": (
        "registry.commands.retention:command",
        "Remove old archived versions that nothing needs.",
    ),
    "cache": ("registry.commands.cache:command", "Bound the copies kept on this machine."),
    "deploy": ("registry.commands.deploy:command", "Tune and compile a network for a device."),
    "compile": (
        "registry.commands.compile:command",
        "Compile what a deployment has found so far.",
    ),
    "run": ("registry.commands.run:command", "Run a bundle."),
    "serve": ("registry.commands.serve:command", "Serve a bundle over HTTP, verified."),
    "bench": ("registry.commands.bench:command", "Time a bundle, beside other engines."),
    "fleet": ("registry.commands.fleet:command", "Trackers and servers for other devices."),
    "search": ("registry.commands.search:command", "Compare GEMM and kernel searches."),
    "report": ("registry.commands.report:command", "Remake the papers' tables from our runs."),
}
"""Name -> import string and line of help: listing the commands imports none of them."""

cli = _cli.LazyGroup(
    COMMANDS,
    help="Cost models that know the hardware: learn them, keep them, tune with them.",
    no_args_is_help=True,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its code."""
    sys.exit(_cli.run(cli, arguments))


if __name__ == "__main__":
    main()
