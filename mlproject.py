"""The door: `hetfeat COMMAND` for people, `python -m mlproject COMMAND` for MLflow."""

import sys
from collections.abc import Sequence

from registry.commands import _cli

COMMANDS = {
    "devices": ("registry.commands.devices:command", "Profiles of devices; probe this machine."),
    "collect": ("registry.commands.collect:command", "Measure programs of networks on a device."),
    "records": ("registry.commands.records:command", "What a record store holds; verify it."),
    "train": ("registry.commands.train:command", "Train and register a cost model."),
    "promote": ("registry.commands.promote:command", "Move a model version to another stage."),
    "history": ("registry.commands.history:command", "Print who moved which version, and why."),
    "deploy": ("registry.commands.deploy:command", "Tune and compile a network for a device."),
    "run": ("registry.commands.run:command", "Run a bundle."),
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
