import json
import logging
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

import hetfeat
import mlproject
from hetfeat.errors import DataError, GateRefused, RequestError, WorkFailed
from registry.cli import app, output
from registry.cli.options import argument, option, seed_option
from registry.cli.params import DEVICE_NAME

HELP_LIMIT_S = 0.5
LISTS_WHAT_HELP_IMPORTS = """
import sys
before = {name.split(".")[0] for name in sys.modules}
import mlproject
from registry.cli import app
assert app.run(mlproject.cli, ["--help"]) == 0
after = {name.split(".")[0] for name in sys.modules} - before
print("IMPORTED", *sorted(after - set(sys.stdlib_module_names)))
"""


@dataclass(frozen=True)
class MeasureOptions:
    device: str = option("local", "Where.")
    network: tuple[str, ...] = option(("resnet18", "vgg16"), "What.")
    records: Path | None = option(None, "From where.")
    trials: int | None = option(None, "How many.", type=click.IntRange(1))
    force: bool = option(False, "Even so.")
    name: str | None = argument(None)
    seed: int = seed_option()


@app.command("measure", MeasureOptions)
def measure(options):
    """Stands for any command: returns what it was given."""
    return vars(options)


@app.command("noisy")
def noisy():
    """Prints where a result belongs: from Python, from C, from a child."""
    print("python")
    os.write(1, b"descriptor\n")
    subprocess.run(["echo", "child"], check=True)
    return {"metrics": {"pca": 0.5}}


@dataclass(frozen=True)
class FailOptions:
    how: str = argument()


@app.command("fail", FailOptions)
def fail(options):
    """Fails as asked."""
    how = options.how
    if how == "findings":
        return app.Result({"findings": []}, exit_code=1)
    raise {
        "request": RequestError("network 'resnet19'", "a torchvision name", "pick another"),
        "data": DataError("store 'x'\nof schema 9", "schema 1", "update hetfeat"),
        "work": WorkFailed("tuning", "a program that runs", "see the log"),
        "gate": GateRefused("version 3", "a PCA over 0.9", "train longer"),
        "interrupt": KeyboardInterrupt(),
    }[how]


@app.command("talk")
def talk():
    """Logs a line of each level."""
    log = logging.getLogger("hetfeat.talk")
    log.debug("a detail")
    log.info("a step")
    log.warning("a doubt")


NAMES = ("measure", "noisy", "fail", "talk")
group = app.LazyGroup({"All": {name: (f"{__name__}:{name}", f"Does {name}.") for name in NAMES}})


def run(capfd, *arguments: str) -> tuple[int, str, str]:
    code = app.run(group, arguments)
    printed = capfd.readouterr()
    return code, printed.out, printed.err


DEFAULTS = {
    "device": "local",
    "network": ["resnet18", "vgg16"],
    "records": None,
    "trials": None,
    "force": False,
    "name": None,
    "seed": 0,
}


class TestParameters:
    def test_defaults(self, capfd):
        assert json.loads(run(capfd, "measure", "--json")[1]) == DEFAULTS

    def test_an_empty_value_is_unset(self, capfd):
        keys = ["device", "network", "records", "trials", "force", "seed"]
        line = [word for key in keys for word in (f"--{key}", "")]
        assert json.loads(run(capfd, "measure", "", *line, "--json")[1]) == DEFAULTS

    def test_values(self, capfd):
        line = "--network a,b --trials 3 --force true --records a/b NAME --seed 1 --device d --json"
        assert json.loads(run(capfd, "measure", *line.split())[1]) == {
            "device": "d",
            "network": ["a", "b"],
            "records": "a/b",
            "trials": 3,
            "force": True,
            "name": "NAME",
            "seed": 1,
        }

    @pytest.mark.parametrize("line", ["--force NAME", "NAME --force", "--force true NAME"])
    def test_a_switch_may_stand_alone(self, capfd, line):
        given = json.loads(run(capfd, "measure", *line.split(), "--json")[1])
        assert given == DEFAULTS | {"force": True, "name": "NAME"}

    @pytest.mark.parametrize(
        "line",
        ["--force yes", "--network a,,b", "--trials x", "--trials 0", "--seed -1", "--what 1"],
    )
    def test_wrong_ones_are_one_line(self, capfd, line):
        code, out, err = run(capfd, "measure", *line.split())
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("hetfeat: ")
        assert "`hetfeat measure --help`" in err


class TestOutput:
    def test_json_is_alone_on_standard_output(self, capfd):
        code, out, err = run(capfd, "noisy", "--json")
        assert code == 0
        assert out == '{"metrics": {"pca": 0.5}}\n'
        assert sorted(err.split()) == ["child", "descriptor", "python"]

    def test_people_get_text(self, capfd):
        assert run(capfd, "noisy")[1] == "metrics.pca  0.5\n"

    def test_text_has_fields_then_tables(self):
        rows = [{"name": "a", "ms": 1.23456}, {"name": "bb", "ms": None}]
        result = {"version": 3, "ok": True, "rows": rows, "left": []}
        assert output.as_text(result).splitlines() == [
            "version  3",
            "ok       true",
            "left     -",
            "",
            "rows",
            "name  ms",
            "a     1.235",
            "bb    -",
        ]

    def test_json_carries_paths_numpy_and_no_nan(self):
        numpy = pytest.importorskip("numpy")
        value = {"a": Path("x/y"), "b": numpy.float32(0.5), "c": numpy.arange(2), "d": float("nan")}
        value["e"] = numpy.float64("inf")
        assert json.loads(output.as_json(value)) == {
            "a": "x/y",
            "b": 0.5,
            "c": [0, 1],
            "d": None,
            "e": None,
        }


def test_a_name_of_local_is_that_of_this_machine(monkeypatch, device):
    monkeypatch.setattr("hetfeat.devices.probe.find_profile", lambda name: device)
    named = [DEVICE_NAME.convert(given, None, None) for given in ("local", "lab")]
    assert named == [device.name, "lab"]


class TestExitCodes:
    @pytest.mark.parametrize(
        ("how", "code"),
        [("request", 2), ("data", 2), ("work", 1), ("gate", 3), ("interrupt", 130)],
    )
    def test_failures_are_one_line(self, capfd, how, code):
        got, out, err = run(capfd, "fail", how)
        assert (got, out) == (code, "")
        (line,) = err.strip().splitlines()
        assert line.startswith("hetfeat: ")

    def test_the_line_says_given_expected_action(self, capfd):
        _, _, err = run(capfd, "fail", "request")
        assert err == "hetfeat: network 'resnet19'; expected a torchvision name; pick another\n"

    def test_a_result_may_carry_a_code(self, capfd):
        assert run(capfd, "fail", "findings", "--json")[:2] == (1, '{"findings": []}\n')

    def test_an_unknown_command_names_the_nearest(self, capfd):
        code, out, err = run(capfd, "mesure")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "'mesure'; expected measure;" in err

    def test_a_missing_argument_is_one_line(self, capfd):
        code, _, err = run(capfd, "fail")
        assert (code, err.count("\n")) == (2, 1)

    def test_no_command_shows_the_help(self, capfd):
        code, out, _ = run(capfd)
        assert code == 0
        assert "Does noisy." in out


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of each command that is no group."""
    if isinstance(command, click.Group):
        for name in command.list_commands(None):
            yield from leaves(command.get_command(None, name), (*path, name))
    else:
        yield path


class TestLog:
    @pytest.mark.parametrize(
        ("flag", "lines"),
        [
            ([], ["a step", "a doubt"]),
            (["-q"], ["a doubt"]),
            (["--verbose"], ["a detail", "a step", "a doubt"]),
        ],
    )
    def test_as_much_as_was_asked_for(self, capfd, flag, lines):
        code, out, err = run(capfd, "talk", *flag)
        assert (code, out) == (0, "")
        assert [
            line[-len(text) :] for line, text in zip(err.splitlines(), lines, strict=True)
        ] == lines

    def test_with_times(self, capfd):
        first = run(capfd, "talk", "-v")[2].splitlines()[0]
        assert re.fullmatch(r"\d\d:\d\d:\d\d hetfeat.talk a detail", first)

    @pytest.mark.parametrize("flags", ["-v --log-format json", "--log-format json -v"])
    def test_more_as_json(self, capfd, flags):
        lines = run(capfd, "talk", *flags.split())[2].splitlines()
        assert [json.loads(line)["message"] for line in lines] == ["a detail", "a step", "a doubt"]

    def test_as_json(self, capfd):
        step, doubt = map(json.loads, run(capfd, "talk", "--log-format", "json")[2].splitlines())
        assert (step["level"], step["logger"], step["message"]) == (
            "info",
            "hetfeat.talk",
            "a step",
        )
        assert 0 <= time.time() - doubt["time_unix_s"] < 60


class TestDoor:
    def test_help_imports_click_and_nothing_else(self, project):
        done = subprocess.run(
            [sys.executable, "-c", LISTS_WHAT_HELP_IMPORTS],
            cwd=project,
            capture_output=True,
            text=True,
            check=True,
        )
        imported = done.stdout.split("IMPORTED")[1].split()
        assert set(imported) == {"click", "hetfeat", "mlproject", "registry"}

    @pytest.mark.clock
    def test_help_is_quick(self, project):
        def seconds() -> float:
            start = time.perf_counter()
            command = [sys.executable, "-m", "mlproject", "--help"]
            subprocess.run(command, cwd=project, check=True, capture_output=True)
            return time.perf_counter() - start

        assert min(seconds() for _ in range(5)) < HELP_LIMIT_S

    def test_help_has_a_line_for_each_command(self, capfd):
        assert app.run(mlproject.cli, ["--help"]) == 0
        out = capfd.readouterr().out
        for name, (_, line) in mlproject.COMMANDS.items():
            assert name in out
            assert line in out

    @pytest.mark.parametrize("path", [*leaves(mlproject.cli)], ids=" ".join)
    def test_help_ends_with_an_example_that_can_be_read(self, path, capfd):
        assert app.run(mlproject.cli, [*path, "-h"]) == 0
        *_, heading, example = capfd.readouterr().out.rstrip().splitlines()
        assert heading.strip() == "Example:"
        program, *words = shlex.split(example)
        assert [program, *words[: len(path)]] == ["hetfeat", *path]
        command = mlproject.cli
        for name in path:
            command = command.get_command(None, name)
        command.make_context(path[-1], words[len(path) :])

    def test_the_version(self, capfd):
        assert app.run(mlproject.cli, ["--version"]) == 0
        assert capfd.readouterr().out == f"hetfeat {hetfeat.__version__}\n"

    def test_python_m_exits_with_the_code(self, project):
        command = [sys.executable, "-m", "mlproject", "nothing"]
        assert subprocess.run(command, cwd=project, capture_output=True).returncode == 2
