import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from registry.maintenance import project_env
from registry.maintenance.project_env import environment_name, environments_root, link_environment

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


def pins(project: Path) -> list[str]:
    with (project / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]["dependencies"]


def test_conda_yaml_has_the_pins(project: Path):
    conda = yaml.safe_load((project / "conda.yaml").read_text())
    assert conda["dependencies"][:2] == ["python=3.11", "pip"]
    assert conda["dependencies"][2] == {"pip": pins(project)}
    assert conda["name"] == "hetfeat"


def test_python_env_yaml_has_the_pins_and_no_python_line(project: Path):
    python_env = yaml.safe_load((project / "python_env.yaml").read_text())
    assert python_env == {"dependencies": pins(project)}


def test_every_dependency_is_pinned(project: Path):
    assert all(pin.count("==") == 1 for pin in pins(project))
    names = [pin.split("==")[0].lower() for pin in pins(project)]
    assert len(names) == len(set(names))


def test_tests_have_what_the_extras_need(project: Path):
    with (project / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert set(extras["cluster"] + extras["timm"] + extras["tflite"]) < set(extras["dev"])


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
