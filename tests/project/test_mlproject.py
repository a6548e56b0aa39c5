"""MLproject's entry points and the commands: the same names and the same defaults."""

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import mlproject
from registry.cli.logs import log_options
from registry.cli.params import SWITCH, Positional

ENTRY_POINTS: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[2] / "MLproject").read_text()
)["entry_points"]

entry_points = pytest.mark.parametrize("name", ENTRY_POINTS)


def command_line(name: str) -> list[str]:
    return shlex.split(ENTRY_POINTS[name]["command"])


def command_of(name: str) -> click.Command:
    return mlproject.cli.load(command_line(name)[3])


def parameters_of(name: str) -> dict[str, click.Parameter]:
    """Those of the command's own work."""
    everyones = {"as_json", *(option.name for option in log_options())}
    own = [p for p in command_of(name).params if not isinstance(p, Positional)]
    return {p.name: p for p in own if p.name and p.name not in everyones}


def defaults_of(name: str) -> dict[str, str]:
    """Of the parameters that have one; the others must be given."""
    parameters = ENTRY_POINTS[name]["parameters"]
    return {key: spec["default"] for key, spec in parameters.items() if "default" in spec}


def required_of(name: str) -> dict[str, str]:
    """A value for each parameter without a default."""
    names = ENTRY_POINTS[name]["parameters"].keys() - defaults_of(name).keys()
    return {one: "ansor" if one == "format" else "1" for one in names}


def parsed(name: str, values: dict[str, str]) -> dict[str, Any]:
    """What the command sees when `MLproject`'s line passes these values, and only these."""
    arguments = command_line(name)[4:]
    kept = []
    for at, argument in enumerate(arguments):
        if key := re.fullmatch(r"\{(\w+)\}", argument):
            kept += [values[key[1]]] if key[1] in values else []
        elif arguments[at + 1].strip("{}") in values:
            kept.append(argument)
    return command_of(name).make_context(name, kept).params


def test_the_file_is_what_make_mlproject_writes(project: Path):
    path = project / "tools" / "mlproject_file.py"
    spec = importlib.util.spec_from_file_location("mlproject_file", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (project / "MLproject").read_text() == module.content(), "run `make mlproject`"


@entry_points
def test_runs_a_command_of_the_table(name):
    assert command_line(name)[:3] == ["python", "-m", "mlproject"]
    assert command_line(name)[3] in mlproject.COMMANDS
    assert command_line(name)[3] == ("train" if name == "main" else name)


def test_main_is_train():
    assert ENTRY_POINTS["main"] == ENTRY_POINTS["train"]


@entry_points
def test_parameters_are_the_commands_own(name):
    assert set(ENTRY_POINTS[name]["parameters"]) == set(parameters_of(name))
    assert set(required_of(name)) == {k for k, p in parameters_of(name).items() if p.required}


@entry_points
def test_every_parameter_reaches_its_option(name):
    arguments = command_line(name)[4:]
    passed = []
    for key, parameter in parameters_of(name).items():
        at = arguments.index(f"{{{key}}}")
        if isinstance(parameter, click.Option):
            assert arguments[at - 1] in parameter.opts
            passed.append(arguments[at - 1])
        passed.append(arguments[at])
    assert sorted(passed) == sorted(arguments)


@entry_points
def test_defaults_are_the_commands_own(name):
    parameters = {key: p for key, p in parameters_of(name).items() if not p.required}
    given = {key: p.to_info_dict()["default"] for key, p in parameters.items()}
    expected = {key: "" if value is None else str(value) for key, value in given.items()}
    assert defaults_of(name) == expected


@entry_points
def test_defaults_passed_are_defaults_left_out(name):
    required = required_of(name)
    assert parsed(name, required | defaults_of(name)) == parsed(name, required)


@entry_points
def test_switches_take_true_or_false(name):
    for parameter in parameters_of(name).values():
        assert not getattr(parameter, "is_flag", False)
        assert not isinstance(parameter.type, type(click.BOOL))
        if str(parameter.default).lower() in ("true", "false"):
            assert parameter.type is SWITCH


def test_mlflow_reads_the_project(project: Path):
    from mlflow.projects._project_spec import load_project

    loaded = load_project(str(project))
    assert loaded.name == "hetfeat"
    assert Path(loaded.env_config_path).name == "python_env.yaml"
    for name in ENTRY_POINTS:
        command = loaded.get_entry_point(name).compute_command(required_of(name), None)
        assert "{" not in command


def test_every_command_of_the_table_loads():
    for name in mlproject.COMMANDS:
        assert mlproject.cli.load(name).name == name
