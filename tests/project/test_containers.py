"""What runs hetfeat elsewhere: the files are held to the project, without Docker."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml

import mlproject
from hetfeat.devices.profile import load_profile


@pytest.fixture(scope="module")
def folder(project: Path) -> Path:
    return project / "containers"


@pytest.fixture(scope="module")
def compose(folder: Path) -> dict:
    return yaml.safe_load((folder / "compose.yaml").read_text())


def is_a_command(arguments: list[str]) -> bool:
    """Whether the command line takes these arguments, without running them."""
    command: click.Command = mlproject.cli
    context = click.Context(command)
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.get_command(context, name)
    command.make_context(command.name, list(arguments))
    return True


def test_an_image_gets_what_is_there_and_all_that_the_wheel_needs(folder, project):
    lines = (folder / "Dockerfile").read_text().replace("\\\n", "").splitlines()
    copied = [name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]]
    sent = (folder / "Dockerfile.dockerignore").read_text().splitlines()
    assert all((project / name).exists() for name in copied)
    assert {f"!{name}" for name in copied} == {line for line in sent if line.startswith("!")}
    assert {"hetfeat", "registry", "mlproject.py", "constraints.txt"} <= set(copied)


def test_every_package_of_an_image_is_pinned(folder, project):
    (line,) = re.findall(r"pip install .*", (folder / "Dockerfile").read_text())
    pins = {pin.split("==")[0] for pin in (project / "constraints.txt").read_text().splitlines()}
    packages = [word for word in shlex.split(line)[5:] if not word.startswith(".")]
    assert packages and {package.lower() for package in packages} <= pins


def test_services_wait_for_services_that_are_there(compose):
    services = compose["services"]
    assert {"postgres", "s3", "mlflow", "tracker"} <= services.keys()
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        assert all(mount["source"] in compose["configs"] for mount in service.get("configs", ()))
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert is_a_command(services["tracker"]["command"])


def test_no_password_is_written_down(compose):
    environments = [service.get("environment", {}) for service in compose["services"].values()]
    secret = {
        name: value
        for environment in environments
        for name, value in environment.items()
        if re.search("PASSWORD|SECRET|URI", name)
    }
    assert len(secret) >= 4
    assert all(re.search(r"\$\{\w+:\?\}", value) for value in secret.values())


def test_mlflow_takes_the_arguments_of_the_server(compose):
    from mlflow.cli import cli

    server = compose["services"]["mlflow"]
    (name, *arguments) = server["entrypoint"][1:] + server["command"]
    known = {flag for option in cli.get_command(None, name).params for flag in option.opts}
    assert {word for word in arguments if word.startswith("--")} <= known


def test_a_device_starts_what_its_unit_says(folder):
    unit = configparser.ConfigParser()
    unit.optionxform = str  # systemd's keys have capitals
    unit.read(folder / "hetfeat-server.service")
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "hetfeat"
    assert is_a_command(arguments)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit(folder, tmp_path):
    given = (folder / "hetfeat-server.service").read_text()
    unit = tmp_path / "hetfeat-server.service"
    unit.write_text(given.replace("/opt/hetfeat/bin/hetfeat", shutil.which("true")))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert unit.name not in done.stderr


def test_the_profile_of_a_device_is_one(folder):
    profile = load_profile(folder / "fleet.yaml")
    assert profile.route == {"kind": "rpc", "tracker": "127.0.0.1:9190", "key": "board"}
