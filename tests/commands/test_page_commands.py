"""Every command that README, tutorials and how-tos show is run, or it is said who else runs it.

`make test-pages` runs them, a script for each page, in a folder of its own. They do little: the
options of SMALLER stand at the end of a line, and engines take one turn in comparisons.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
import pages
import pytest

import mlproject
from hetfeat.devices.probe import remember
from hetfeat.devices.profile import DeviceProfile

ROOT = Path(__file__).resolve().parents[2]
PAGES = pages.README + pages.TUTORIALS + pages.HOW_TOS

SMALLER = {
    "collect": "--programs-per-task 2 --evaluation-tasks 1 --evaluation-programs 4",
    "deploy(?!.*--trials 0)": "--trials 1",
    "hpo": "--trials 2 --effort quick",
    "report": "--run-missing false",
    "search": "--budget 4 --repeats 1",
    "train": "--effort quick",
    "transfer": "--budget-per-task 4 --flops-share 0.3",
}
"""Options after those of a page, by what a line is: of two the last counts."""

SERVERS = {
    r"hetfeat serve|mlflow ui": 5000,
    "hetfeat fleet start-tracker": 9190,
    "hetfeat fleet start-server": 9090,
}
"""What stays, and the port by which it is ready."""

MAY_EXIT = {
    "hetfeat doctor": 1,  # it has found something
    "hetfeat promote costmodel.cpu-x86 2 --to production$": 3,  # a gate, as the page says
}

NOT_HERE = {
    "README.md: make (demo|quickstart)": "tests/commands/test_demo.py",
    ": make (env|test|gate|format)$": ".ci/run",
    "docs/arm.md: ": "tests/commands/test_arm.py",
    "docs/contributing.md: .venv/bin/pre-commit": "the hooks of a clone",
    "docs/containers.md: ": "tests/project/test_containers.py",
    "docs/gpu.md: |--gpu true": "an NVIDIA GPU",
    "docs/install.md: (source|conda|mlflow)": "tests/project/test_environment.py",
    "docs/install.md: eval": "tests/commands/test_completion.py",
    "mlflow run ": "tests/project/test_environment.py",
    ": (scp|ssh) ": "a second machine",
    "docs/deploy.md: hetfeat deploy decoder.onnx": "tests/hetfeat/deploy/test_outputs.py",
    "docs/deploy.md: hetfeat deploy --config": "tests/commands/test_deploy_config.py",
    "docs/fleet.md: (python -m|.*--port 9091)": "a second machine",
    "docs/packs.md: ": "tests/hetfeat/packs/test_packs.py",
    "docs/quantised.md: ": "tests/hetfeat/deploy/test_integer_bundles.py",
    "docs/registry.md: hetfeat (share|fetch)": "tests/registry/files/test_s3.py",
    "docs/registry.md: WEBHOOK_SECRET": "tests/registry/models/test_webhook.py",
    "docs/report.md: hetfeat report --effort": "hours",
    "docs/your-mlflow.md: (export|hetfeat)": "a server of MLflow",
    "docs/your-mlflow.md: WEBHOOK": "tests/registry/models/test_deliver_promotions.py",
    "docs/serving.md: mlflow models serve": "tests/commands/test_serving.py",
}
"""Who else runs a line of a page, or what it would need."""


@dataclass(frozen=True)
class Scenario:
    """What a page takes for granted.

    Attributes:
        before: Lines of a shell that make it.
        values: What stands for the words that a reader replaces, in this order.
    """

    before: str = ""
    values: Mapping[str, str] = field(default_factory=dict)


STORE = """python -c 'from pathlib import Path
from hetfeat.testing import stores
stores.make_store(Path("records"), tasks=6, per_task=12)'
"""
TRAINED = f"""{STORE}hetfeat train --records records --effort quick
hetfeat promote costmodel.cpu-x86 1 --to staging
hetfeat promote costmodel.cpu-x86 1 --to production
"""
LEARNABLE = """python -c 'from pathlib import Path
from hetfeat.dataset.sidecar_files import save_evaluation_tasks
from hetfeat.testing import stores
store = stores.make_store(Path("records"), tasks=12, per_task=12)
save_evaluation_tasks(store.path, [stores.task(number).hash for number in range(3)])'
"""
"""Records of which some judge, that a few measured on a busy machine can be added to."""
PICTURE = """python -c 'from PIL import Image; Image.new("RGB", (64, 64)).save("{}")'\n"""

SCENARIOS = {
    "README.md": Scenario(before=LEARNABLE, values={"COMMAND": "train"}),
    "docs/tutorial.md": Scenario(values={"amd-epyc-znver5-avx512-2t": "$(local_name)"}),
    "docs/bundle.md": Scenario(
        before=f"""hetfeat deploy squeezenet1_1 --trials 0 --out BUNDLE
cp BUNDLE/sample_input_0.npy x.npy
ln -s '{ROOT}/examples' examples
{PICTURE.format("cat.jpg")}""",
        values={"--network resnet18": "--network squeezenet1_1 --trials 0"},  # to be signed
    ),
    "docs/collecting.md": Scenario(
        before="hetfeat devices probe --out A.yaml; hetfeat devices probe --threads 1 --out B.yaml",
        values={"DIR": "records"},
    ),
    "docs/data.md": Scenario(
        before="""python -c 'import ansor_lines
for line in ansor_lines.log(4, 0, ansor_lines.on_gpu): print(line.decode())' > log.json""",
        values={"LOGS...": "log.json"},
    ),
    "docs/deploy.md": Scenario(
        before=LEARNABLE,
        values={
            "hetfeat train": "hetfeat train --records records",
            "lab.yaml --network resnet18 --out resnet18": "lab.yaml --network resnet18 --out far",
        },
    ),
    "docs/devices.md": Scenario(),
    "docs/doctor.md": Scenario(values={"[DEVICE...]": "local"}),
    "docs/fleet.md": Scenario(before=f"{TRAINED}mv records before\n"),
    "docs/lab.md": Scenario(
        before="""python -c 'from pathlib import Path
from hetfeat.testing import stores
stores.make_store(Path("records"), tasks=6, per_task=12)
stores.make_store(Path("mine"), devices=("board",), tasks=6, per_task=12)
stores.make_store(Path("yours"), devices=("b",), tasks=6, per_task=2)'
hetfeat records push mine "file://$PWD/table"
hetfeat records push records "file://$PWD/table"
""",
        values={
            "s3://lab/records": '"file://$PWD/table"',
            "--as-of 12": "--as-of 2",
            "2026-11-28T12:00+00:00": "$(date --iso-8601=seconds)",
        },
    ),
    "docs/mlflow.md": Scenario(before=TRAINED, values={".venv/bin/": ""}),
    "docs/pruning.md": Scenario(before=STORE, values={"DIR": "records"}),
    "docs/registry.md": Scenario(
        before=f"""{TRAINED}hetfeat train --records records --effort quick --seed 1
hetfeat promote costmodel.cpu-x86 2 --to staging
hetfeat promote costmodel.cpu-x86 2 --to production --force --reason 'to go back'
hetfeat train --records records --effort quick --seed 2
""",
        values={
            "promote NAME VERSION --to production [--reason TEXT] [--force] [--dry-run]": (
                "promote NAME 3 --to staging --reason TEXT --force --dry-run"
            ),
            "[--repair true [--to ledger|aliases]] [--every-version true]": "--repair true",
            "[--stage staging] [--device DEVICE]": "--stage production",
            "[NAME]...": "NAME",
            "[NAME]": "NAME",
            "RUN RUN...": "models:/NAME/1 models:/NAME/2",
            "[--apply true]": "",
            "DAYS": "30",
            "VERSION": "1",
            "DIR": "pulled",
            "NAME": "costmodel.cpu-x86",
        },
    ),
    "docs/report.md": Scenario(),
    "docs/search.md": Scenario(
        before="""python -c 'from pathlib import Path
from hetfeat.testing import spaces
spaces.write(Path("space.json"), spaces.whole())'""",
        values={"FILE": "space.json"},
    ),
    "docs/serving.md": Scenario(
        before=f"hetfeat deploy resnet18 --trials 0 --out resnet18\n{PICTURE.format('cat.png')}",
        values={"DEVICE": "$(local_name)"},
    ),
    "docs/training.md": Scenario(
        before=STORE,
        values={
            "RUN RUN": "models:/costmodel.cpu-x86/1 models:/costmodel.cpu-x86/2",
            "attention --set batch=64,rounds=400": "attention --records DIR --set rounds=2",
            "DIR": "records",
            "NAME": "a",
        },
    ),
    "docs/transfer.md": Scenario(before=TRAINED, values={"DIR": "records", "NAME": "a"}),
}

START = """PS4='+ ${SECONDS} s: '
set -eEx
trap times EXIT
ready() {
    for _ in $(seq 600); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.2
    done
    return 1
}
local_name() {
    python -c 'from hetfeat.devices.probe import find_profile as f; print(f("local").name)'
}
"""
HETFEAT = """#!/bin/sh
case "$1" in
deploy) exec "{python}" "{tests}/small_deploys.py" --few "$@" ;;
*) exec "{python}" -m mlproject "$@" ;;
esac
"""


def shown(page: str) -> list[str]:
    return pages.commands((ROOT / page).read_text())


def reason(page: str, line: str) -> str | None:
    """Why a line is not run here, if it is not."""
    return next((why for at, why in NOT_HERE.items() if re.search(at, f"{page}: {line}")), None)


def as_run(line: str, values: Mapping[str, str]) -> str:
    """A line with what a reader puts in, small, beside others if it is a server."""
    for word, value in values.items():
        line = line.replace(word, value)
    for command, options in SMALLER.items():
        if re.search(rf"\bhetfeat {command}\b", line):
            line = f"{line} {options}"
    for server, port in SERVERS.items():
        if re.match(server, line):
            return f"{line} &\nready {port}"
    codes = [code for begins, code in MAY_EXIT.items() if re.match(begins, line)]
    return f"{line} || [ $? -eq {codes[0]} ]" if codes else line


def script(page: str) -> str:
    scenario = SCENARIOS[page]
    lines = [line for line in shown(page) if reason(page, line) is None]
    return "\n".join([START + scenario.before, *(as_run(line, scenario.values) for line in lines)])


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_run_or_it_is_said_who_does(page: str):
    assert page in SCENARIOS or all(reason(page, line) for line in shown(page))


def test_what_is_not_run_here_is_shown_and_run_elsewhere():
    every = [f"{page}: {line}" for page in PAGES for line in shown(page)]
    assert [at for at in NOT_HERE if not any(re.search(at, line) for line in every)] == []
    files = [why for why in NOT_HERE.values() if "/" in why]
    assert [name for name in files if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_command_that_is_shown_is_understood(page: str):
    """Options, values and the number of arguments, of those also that nothing here can run."""
    numbers = {"VERSION": "1", "SECONDS": "60", "DAYS": "30", "COMMAND": "train"}
    for line in shown(page):
        line = re.sub(r"\[--to ledger\|aliases\]|[\[\]]|\.\.\.|^(\w+=\S+ )+", "", line)
        words = [numbers.get(word, word) for word in shlex.split(line)]
        if words[0] == "hetfeat" and "--help" not in words:
            command, context = mlproject.cli, click.Context(mlproject.cli, info_name="hetfeat")
            words = words[1:]
            while isinstance(command, click.Group):
                name, command, words = command.resolve_command(context, words)
                context = click.Context(command, parent=context, info_name=name)
            command.make_context(context.info_name, words)


def run(lines: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit code of a script and what it said; nothing that it started stays."""
    log = folder.with_suffix(".log")
    with log.open("w") as file:
        process = subprocess.Popen(
            ["bash", "-c", lines],
            cwd=folder,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=1500)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
                time.sleep(2)
                os.killpg(process.pid, signal.SIGKILL)
    return code, log.read_text()


@pytest.mark.pages
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", SCENARIOS)
def test_the_commands_of_a_page_run_in_their_order(
    page: str, tmp_path: Path, device: DeviceProfile, child_environment, new_registry, monkeypatch
):
    programs, folder, home = (tmp_path / name for name in ("bin", "work", "home"))
    programs.mkdir()
    folder.mkdir()
    hetfeat = programs / "hetfeat"
    hetfeat.write_text(HETFEAT.format(python=sys.executable, tests=ROOT / "tests"))
    hetfeat.chmod(0o755)
    new_registry(folder)
    monkeypatch.setenv("HETFEAT_HOME", str(home))
    remember(device)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = child_environment | {"HETFEAT_HOME": str(home), "PATH": path}
    code, said = run(script(page), folder, environment)
    assert code == 0, said[-8000:]
