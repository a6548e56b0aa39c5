"""Writes MLproject: an entry point for each command that MLflow runs, made of its options."""

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100
TOGETHER = "\N{NO-BREAK SPACE}"
"""Stands between an option and its value until the line is wrapped."""
COMMANDS = (
    *("train", "collect", "import", "prune", "hpo", "transfer"),
    *("evaluate", "promote", "deploy", "search", "report"),
)
HEAD = """\
name: hetfeat

python_env: python_env.yaml

# Written by `make mlproject` of the commands' options; a test holds it to them. MLflow passes only
# text: switches take true or false, an empty value means unset, lists are separated by commas. What
# has no default must be given.
entry_points:
"""
sys.path.insert(0, str(ROOT))


def content() -> str:
    """What MLproject holds; `main` is `train`."""
    blocks = ["\n".join(entry_point(name)) for name in COMMANDS]
    blocks[0] = blocks[0].replace("  train:", "  main: &train", 1)
    blocks.insert(1, "  train: *train")
    return HEAD + "\n\n".join(blocks) + "\n"


def entry_point(name: str) -> Iterator[str]:
    """Lines of a command's block."""
    from mlproject import cli

    words = ["python", "-m", "mlproject", name]
    yield f"  {name}:"
    yield "    parameters:"
    for parameter in cli.load(name).params:
        if parameter.name == "as_json" or not parameter.expose_value or is_alone(parameter):
            continue
        yield f"      {parameter.name}: {{type: string{default(parameter)}}}"
        flags = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
        words.append(TOGETHER.join([*flags, f"{{{parameter.name}}}"]))
    yield "    command: >-"
    margin = " " * 6
    lines = textwrap.wrap(
        " ".join(words),
        WIDTH,
        initial_indent=margin,
        subsequent_indent=margin,
        break_on_hyphens=False,
        break_long_words=False,
    )
    yield from (line.replace(TOGETHER, " ") for line in lines)


def is_alone(parameter: click.Parameter) -> bool:
    """Whether it is an option's value without the option's name."""
    from registry.cli.params import Positional

    return isinstance(parameter, Positional)


def default(parameter: click.Parameter) -> str:
    if parameter.required:
        return ""
    value = parameter.to_info_dict()["default"]
    return f", default: {json.dumps('' if value is None else str(value))}"


if __name__ == "__main__":
    (ROOT / "MLproject").write_text(content())
