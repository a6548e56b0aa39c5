import importlib.metadata
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from registry.maintenance import project_env
from registry.maintenance.project_env import environment_name, environments_root, link_environment

EXTRAS = ("cluster", "lab", "openvino", "postgres", "tflite", "timm", "torch")
MLPROJECT = """
name: probe
python_env: python_env.yaml
entry_points:
  main:
    parameters:
      unset: {type: string, default: ""}
      text: {type: string, default: "two words"}
    command: python -m probe --unset {unset} --text {text}
"""
PROBE = "import json, sys; json.dump([sys.prefix, *sys.argv[1:]], open('seen', 'w'))"


@pytest.fixture
def declared(project: Path) -> dict:
    with (project / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


def test_conda_yaml_and_python_env_yaml_take_the_constraints(project: Path):
    wanted = ["-c constraints.txt", ".[all]"]
    conda = yaml.safe_load((project / "conda.yaml").read_text())
    assert conda["dependencies"] == ["python=3.11", "pip", {"pip": [wanted[0], f"-e {wanted[1]}"]}]
    assert conda["name"] == "hetfeat"
    # No line of Python's: MLflow would look for another.
    assert yaml.safe_load((project / "python_env.yaml").read_text()) == {"dependencies": wanted}


def test_mlflow_reads_python_env_yaml(project: Path):
    assert environment_name(project).startswith("mlflow-")


def test_every_dependency_has_a_range_with_both_ends(declared: dict):
    extras = [declared["optional-dependencies"][extra] for extra in EXTRAS]
    requirements = [Requirement(line) for line in sum(extras, declared["dependencies"])]
    for requirement in requirements:
        ends = {specifier.operator for specifier in requirement.specifier}
        assert ends == {">=", "<"} or requirement.name == "hetfeat", requirement


def test_all_is_every_extra_that_a_user_may_want(declared: dict):
    assert Requirement(*declared["optional-dependencies"]["all"]).extras == set(EXTRAS)
    assert "hetfeat[all]" in declared["optional-dependencies"]["dev"]


def test_the_constraints_are_exact_and_within_the_ranges(project: Path, declared: dict):
    lines = (project / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines)  # neither a URL nor a range
    assert len(pins) == len(lines) > 200
    extras = declared["optional-dependencies"]
    asked = sum(
        (extras[extra] for extra in (*EXTRAS, "dev", "notebook", "release")),
        declared["dependencies"],
    )
    for requirement in map(Requirement, asked):
        if requirement.name != "hetfeat":
            pin = pins[re.sub(r"[-_.]+", "-", requirement.name).lower()]
            assert requirement.specifier.contains(pin), (requirement, pin)


def test_mlflow_looks_where_we_link(monkeypatch, tmp_path):
    from mlflow.utils.virtualenv import _get_mlflow_virtualenv_root

    monkeypatch.delenv("MLFLOW_ENV_ROOT", raising=False)
    assert str(environments_root()) == _get_mlflow_virtualenv_root()
    monkeypatch.setenv("MLFLOW_ENV_ROOT", str(tmp_path))
    assert str(environments_root()) == _get_mlflow_virtualenv_root() == str(tmp_path)


class TestLink:
    @pytest.fixture
    def venv(self, tmp_path: Path) -> Path:
        venv = tmp_path / "a clone" / ".venv"
        venv.mkdir(parents=True)
        return venv

    @pytest.fixture
    def link(self, tmp_path: Path) -> Path:
        return tmp_path / "not" / "yet" / "mlflow-0"

    def test_is_made_with_its_folders(self, link, venv):
        link_environment(link, venv)
        assert link.readlink() == venv
        assert list(link.parent.iterdir()) == [link]

    def test_is_left_when_it_is_right(self, link, venv):
        link_environment(link, venv)
        before = link.lstat()
        link_environment(link, venv)
        assert link.lstat() == before

    @pytest.mark.parametrize("exists", [True, False], ids=["another clone", "dangling"])
    def test_to_elsewhere_is_replaced(self, link, venv, tmp_path, exists):
        other = tmp_path / "other"
        if exists:
            (other / "bin").mkdir(parents=True)
        link.parent.mkdir(parents=True)
        link.symlink_to(other)
        link_environment(link, venv)
        assert link.readlink() == venv
        assert other.exists() == exists

    def test_never_touches_a_real_folder(self, link, venv):
        (link / "bin").mkdir(parents=True)
        assert "left as it is" in link_environment(link, venv)
        assert not link.is_symlink()
        assert (link / "bin").is_dir()

    @pytest.mark.parametrize("root", ["a file", "with space/envs"])
    def test_a_root_that_mlflow_cannot_use_is_a_warning(
        self, venv, tmp_path, monkeypatch, capsys, root
    ):
        (tmp_path / "a file").touch()
        (venv / project_env.NAME_CACHE).write_text("mlflow-0")
        monkeypatch.setenv("MLFLOW_ENV_ROOT", str(tmp_path / root))
        monkeypatch.chdir(venv.parent)
        assert project_env.main() == 0
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert "--env-manager local" in lines[0]


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(sys.prefix, "bin", "activate").is_file(), reason="not in a virtual environment"
)
def test_mlflow_run_without_flags_uses_the_link(tmp_path):
    clone = tmp_path / "a clone"
    clone.mkdir()
    (clone / "MLproject").write_text(MLPROJECT)
    (clone / "python_env.yaml").write_text("dependencies:\n  - nothing==0\n")
    (clone / "probe.py").write_text(PROBE)
    (clone / ".venv").symlink_to(sys.prefix)
    root = tmp_path / "envs"
    link_environment(root / environment_name(clone), clone / ".venv")

    done = subprocess.run(
        [sys.executable, "-m", "mlflow", "run", "."],
        cwd=clone,
        # No pyenv on the path: MLflow must find the environment made.
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "MLFLOW_ENV_ROOT": str(root),
            "GIT_PYTHON_REFRESH": "quiet",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    prefix, *arguments = json.loads((clone / "seen").read_text())
    assert Path(prefix).resolve() == Path(sys.prefix).resolve()
    assert arguments == shlex.split("--unset '' --text 'two words'")


def test_renewing_the_pins_keeps_torch_and_the_torchvision_that_goes_with_it(project, monkeypatch):
    """A newer torchvision would ask for another torch."""
    spec = importlib.util.spec_from_file_location("pins", project / "tools" / "pins.py")
    assert spec is not None and spec.loader is not None
    pins = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pins)
    kept = []

    def run(*command: str) -> None:
        kept.append(Path(command[command.index("--override") + 1]).read_text().splitlines())

    monkeypatch.setattr(pins, "_run", run)
    pins._resolve(Path("constraints.txt"))
    names = ("torch", "torchvision")
    assert kept == [[f"{name}=={importlib.metadata.version(name)}" for name in names]]
