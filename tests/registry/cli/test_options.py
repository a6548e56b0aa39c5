"""A command's options are the fields of its dataclass: names, types, defaults, order, help."""

import dataclasses
import json
import shlex
import typing
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

import mlproject
from registry.cli import app
from registry.cli.options import (
    REQUIRED,
    argument,
    click_parameters,
    option,
    output_option,
    read_options,
    seed_option,
)
from registry.cli.params import COUNTS, NAMES, SWITCH, Positional


def commands_of(command: click.Command) -> list[click.Command]:
    if not isinstance(command, click.Group):
        return [command]
    context = click.Context(command)
    inner = [command.get_command(context, name) for name in command.list_commands(context)]
    return [leaf for one in inner if one for leaf in commands_of(one)]


def groups_of(group: click.Group) -> list[click.Group]:
    context = click.Context(group)
    inner = [group.get_command(context, name) for name in group.list_commands(context)]
    return [
        group,
        *(below for one in inner if isinstance(one, click.Group) for below in groups_of(one)),
    ]


def options_of(command: click.Command) -> type | None:
    """What the command's function says that it is given."""
    return typing.get_type_hints(command.callback.__wrapped__).get("options")


every_command = pytest.mark.parametrize("command", commands_of(mlproject.cli), ids=lambda c: c.name)


@dataclass(frozen=True)
class Measured:
    programs: int = option(64, "Programs of each task.", type=click.IntRange(1))


@dataclass(frozen=True)
class Example(Measured):
    store: Path = argument(metavar="DIR")
    family: str | None = option(None, "Family.")
    fast_math: bool = option(True, "Less exact.")
    batch: tuple[int, ...] = option((1, 2), "Sizes.")
    device: tuple[str, ...] = option((), "Devices.")
    out: Path = option(Path("bundle"), "Folder.")
    inputs: tuple[Path, ...] = option(REQUIRED, "Files.", flag="--input", multiple=True)
    output: tuple[str, ...] = output_option()
    seed: int = seed_option()


def parameter(name: str) -> click.Parameter:
    return next(one for one in click_parameters(Example) if one.name == name)


def parsed(*arguments: str) -> Example:
    command = click.Command("example", params=click_parameters(Example))
    return read_options(Example, command.make_context("example", list(arguments)).params)


def test_parameters_are_the_fields_in_their_order():
    names = [one.name for one in click_parameters(Example)]
    assert names == [field.name for field in dataclasses.fields(Example)]
    assert names[0] == "programs"


@pytest.mark.parametrize(
    ("name", "flags", "of_click", "default"),
    [
        ("family", ["--family"], click.STRING, None),
        ("fast_math", ["--fast-math"], SWITCH, "true"),
        ("batch", ["--batch"], COUNTS, "1,2"),
        ("device", ["--device"], NAMES, None),
    ],
)
def test_an_annotation_and_a_default_become_those_of_click(name, flags, of_click, default):
    made = parameter(name)
    assert (made.opts, made.type) == (flags, of_click)
    assert made.to_info_dict()["default"] == default
    assert not made.required


def test_what_must_be_given_is_required():
    required = [one.name for one in click_parameters(Example) if one.required]
    assert required == ["store", "inputs"]
    with pytest.raises(click.MissingParameter):
        parsed("records")


def test_what_is_not_given_or_empty_has_the_default():
    expected = Example(store=Path("records"), inputs=(Path("x.npy"),))
    assert parsed("records", "--input", "x.npy") == expected
    empty = [
        word for name in ("family", "fast-math", "device", "out") for word in (f"--{name}", "")
    ]
    assert parsed("records", "--input", "x.npy", *empty) == expected
    assert (expected.device, expected.output, expected.out) == ((), (), Path("bundle"))


def test_what_is_given_is_read_as_annotated():
    line = "s --input a --input b --batch 4 --device x,y --output p,q --output r --fast-math false"
    assert parsed(*line.split()) == Example(
        store=Path("s"),
        inputs=(Path("a"), Path("b")),
        batch=(4,),
        device=("x", "y"),
        output=("p", "q", "r"),
        fast_math=False,
    )


@every_command
def test_a_command_has_the_parameters_of_its_options(command):
    options = options_of(command)
    fields = dataclasses.fields(options) if options else ()
    everyones = ["as_json", "verbose", "quiet", "log_format"]
    named = [one.name for one in command.params if not isinstance(one, Positional)]
    assert named == [*(f.name for f in fields), *everyones]


@every_command
def test_defaults_of_the_command_line_are_those_of_the_dataclass(command):
    options = options_of(command)
    if options is None:
        return
    parsed = command.make_context(command.name, [], resilient_parsing=True).params
    values = {name: value for name, value in parsed.items() if name != "as_json"}
    required = {one.name: object() for one in command.params if one.required}
    assert read_options(options, values | required) == options(**required)


@every_command
def test_every_option_has_a_text(command):
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert [one.name for one in options if not one.help] == []


@every_command
def test_every_command_has_an_example_that_can_be_typed(command):
    heading, line = command.epilog.removeprefix("\b\n").split("\n")
    program, *words = shlex.split(line)
    meant: click.Command | None = mlproject.cli
    while isinstance(meant, click.Group):
        meant = meant.get_command(click.Context(meant), words.pop(0))
    assert (heading, program) == ("Example:", "hetfeat")
    assert meant is command
    meant.make_context(meant.name, words)
    assert command.get_help(click.Context(command)).endswith(line)


@pytest.mark.parametrize("group", groups_of(mlproject.cli), ids=lambda g: g.name or "hetfeat")
def test_the_help_of_a_group_says_what_each_command_is_for(group):
    context = click.Context(group)
    shown = group.get_help(context)
    assert group.help and all(heading in shown for heading in getattr(group, "sections", ()))
    for name in group.list_commands(context):
        (line,) = (line for line in shown.splitlines() if line.split()[:1] == [name])
        assert len(line.split()) > 2, f"{name} has no text"


@every_command
def test_options_cannot_be_changed(command):
    options = options_of(command)
    assert options is None or options.__dataclass_params__.frozen


@dataclass(frozen=True)
class NamedOptions:
    network: str | None = option(None, "What.", positional=True)


@app.command("named", NamedOptions)
def named(options):
    return vars(options)


@pytest.mark.parametrize("words", [["x"], ["--network", "x"], ["x", "--network", "x"]])
def test_an_option_s_value_may_stand_alone(capfd, words):
    assert app.run(named, [*words, "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"network": "x"}


def test_an_option_s_value_stands_once(capfd):
    assert app.run(named, ["x", "--network", "y"]) == 2
    assert "network is given twice, as y and x" in capfd.readouterr().err
