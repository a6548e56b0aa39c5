"""The command line, called in the process of a test."""

import json
from types import SimpleNamespace

import mlproject
from registry.cli import app


def hetfeat(capfd, *arguments: str) -> SimpleNamespace:
    """What a command says with `--json`: its exit code, its value, and what it told on stderr."""
    code = app.run(mlproject.cli, [*arguments, "--json"])
    printed = capfd.readouterr()
    value = json.loads(printed.out) if printed.out else None
    return SimpleNamespace(code=code, value=value, errors=printed.err)
