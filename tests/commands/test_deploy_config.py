"""`hetfeat deploy --config`: several at once, one of which fails; and files that are none."""

import json
import os
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml
from deploy_reports import deployment
from small_deploys import deploy_small

import mlproject
import registry.jobs.deploy
from hetfeat.devices.profile import save_profile
from hetfeat.errors import WorkFailed
from registry.cli import app
from registry.cli.deploy import DeployOptions
from registry.jobs import deploy_batch


def deploy(capfd, *arguments: str):
    code = app.run(mlproject.cli, ["deploy", *arguments, "--json"])
    printed = capfd.readouterr()
    return code, json.loads(printed.out) if printed.out else printed.err.splitlines()[-1]


@pytest.fixture
def asked(monkeypatch, device, registry_here):
    """What each was asked for; none is made. `bad` networks fail, `stopped` ones the user ends."""
    wanted = []

    def made(one):
        wanted.append(one)
        if one.network.endswith("bad"):
            raise WorkFailed("a network", "a good one", "choose another")
        if one.network.endswith("broken"):
            raise ZeroDivisionError("a defect")
        if one.network.endswith("stopped"):
            return deployment(latency_ms=9.5, interrupted=True, stopped=True)
        return deployment(latency_ms=1.5, trials=one.trials or 0)

    for name in ("a", "b"):
        save_profile(replace(device, name=f"device-{name}"), registry_here / f"{name}.yaml")
    monkeypatch.setattr(deploy_batch, "deploy_and_register", made)
    return wanted


def test_compile_cut_short_says_so(capfd, monkeypatch, tmp_path):
    made = deployment(latency_ms=9.5, stopped=True)
    monkeypatch.setattr(registry.jobs.deploy, "compile_and_register", lambda *given: made)
    assert app.run(mlproject.cli, ["compile", "--from", str(tmp_path), "--json"]) == 130
    assert json.loads(capfd.readouterr().out) == made.as_json()


def write(content) -> None:
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    Path("jobs.yaml").write_text(text)


class TestAsking:
    def test_every_network_goes_to_every_device(self, asked, capfd):
        write({"device": ["a.yaml", "b.yaml"], "network": ["resnet18", "vgg16"], "out": "bundles"})
        code, value = deploy(capfd, "--config", "jobs.yaml")
        assert (code, value["failed"]) == (0, 0)
        assert [str(one.out) for one in asked] == [
            "bundles/resnet18.device-a",
            "bundles/resnet18.device-b",
            "bundles/vgg16.device-a",
            "bundles/vgg16.device-b",
        ]

    def test_the_file_goes_before_the_command_line_and_that_before_defaults(self, asked, capfd):
        write(
            [
                {"network": "resnet18", "batch": [1, 4], "refresh": True},
                {"network": "vgg16", "trials": 7},
            ]
        )
        deploy(capfd, "--config", "jobs.yaml", "--device", "a.yaml", "--trials", "3")
        assert [(one.trials, one.batch, one.refresh) for one in asked] == [
            (3, (1, 4), True),
            (7, (1,), False),
        ]
        assert [one.effort for one in asked] == ["quick", "quick"]

    def test_outputs_are_a_list_there_and_repeated_on_the_command_line(self, asked, capfd):
        write([{"network": "resnet18", "output": ["logits", "present.0.key"]}, {"out": "bundles"}])
        line = ("--device", "a.yaml", "--network", "vgg16", "--output", "a", "--output", "b,c")
        deploy(capfd, "--config", "jobs.yaml", *line)
        assert [one.output for one in asked] == [("logits", "present.0.key"), ("a", "b", "c")]

    def test_every_option_but_config_is_a_key(self, asked, capfd):
        keys = [field.name for field in fields(DeployOptions) if field.name != "config"]
        write(dict.fromkeys(keys) | {"device": "a.yaml", "network": "vgg16"})
        assert deploy(capfd, "--config", "jobs.yaml")[0] == 0
        defaults = vars(DeployOptions(device="a.yaml", network="vgg16"))
        assert {**vars(asked[0]), "config": None, "out": defaults["out"]} == defaults

    def test_a_deployment_without_a_network_is_none(self, asked, capfd):
        write({"device": "a.yaml"})
        code, line = deploy(capfd, "--config", "jobs.yaml")
        assert (code, asked) == (2, [])
        assert "a deployment without a network" in line

    def test_one_that_fails_does_not_stop_the_others(self, asked, capfd):
        write({"device": "a.yaml", "network": ["m:bad", "m:broken", "no.onnx", "resnet18"]})
        code, value = deploy(capfd, "--config", "jobs.yaml")
        assert (code, value["failed"]) == (1, 3)
        errors = [row["error"] for row in value["deployments"]]
        assert errors[0] == "a network; expected a good one; choose another"
        assert errors[1] == "ZeroDivisionError: a defect"
        assert "no.onnx" in errors[2]
        assert errors[3] is None
        assert value["deployments"][3]["latency_ms"] == 1.5

    def test_what_the_user_stops_is_the_last(self, asked, capfd):
        write({"device": "a.yaml", "network": ["m:bad", "m:stopped", "resnet18"]})
        code, value = deploy(capfd, "--config", "jobs.yaml")
        assert (code, len(asked)) == (130, 2)
        assert [row["latency_ms"] for row in value["deployments"]] == [None, 9.5]

    def test_one_that_the_user_stops_gives_its_report_and_130(self, asked, capfd, monkeypatch):
        monkeypatch.setattr(
            "registry.jobs.deploy.deploy_and_register", deploy_batch.deploy_and_register
        )
        code, value = deploy(capfd, "--device", "a.yaml", "--network", "m:stopped")
        assert (code, value["latency_ms"]) == (130, 9.5)

    def test_people_get_a_table(self, asked, capfd):
        write({"device": "a.yaml", "network": ["resnet18", "vgg16"]})
        assert app.run(mlproject.cli, ["deploy", "--config", "jobs.yaml"]) == 0
        lines = capfd.readouterr().out.splitlines()
        assert lines[0].split()[:2] == ["network", "device"]
        assert [line.split()[0] for line in lines[1:]] == ["resnet18", "vgg16"]

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (None, "No such file"),
            ("[", "jobs.yaml"),
            ("resnet18", "mapping"),
            ("[]", "mapping"),
            ({"netwrok": "resnet18"}, "netwrok"),
            ({"config": "other.yaml"}, "config"),
            ({"effort": "heroic"}, "heroic"),
            ({"trials": -1}, "--trials"),
            ({"batch": [1, 1]}, "twice"),
        ],
    )
    def test_a_file_that_is_none_is_one_line_and_nothing_is_deployed(
        self, asked, capfd, content, said
    ):
        if content is not None:
            write(content)
        code, line = deploy(capfd, "--config", "jobs.yaml")
        assert code == 2
        assert line.startswith("hetfeat: ") and said in line
        assert asked == []


@pytest.mark.slow
@pytest.mark.tvm
def test_two_networks_for_real(registry_here, device_file, project, capfd, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(project), str(project / "tests")]))
    deploy_small(monkeypatch, "registry.jobs.deploy")
    write(
        {
            "device": str(device_file),
            "network": ["nets:dense", "nets:no_such_function", "nets:mixed"],
            "trials": 4,
            "out": "bundles",
        }
    )
    code, value = deploy(capfd, "--config", "jobs.yaml")
    first, second, third = value["deployments"]
    assert (code, value["failed"]) == (1, 1)
    assert "no_such_function" in second["error"]
    for row in (first, third):
        assert row["error"] is None and row["latency_ms"] > 0
        assert (registry_here / row["bundle"] / "run.py").is_file()
        assert row["bundle_version"].startswith("models:/network.")
