"""What `pip install .` brings, seen from outside the repository."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SHIPPED = ("hetfeat", "registry")


@pytest.fixture(scope="module")
def wheel(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: building leaves folders beside the sources."""
    sources = tmp_path_factory.mktemp("sources")
    for folder in SHIPPED:
        shutil.copytree(
            project / folder, sources / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file in ("pyproject.toml", "README.md", "LICENSE", "mlproject.py"):
        shutil.copy(project / file, sources)
    wheels = tmp_path_factory.mktemp("wheels")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation"]
        + ["--no-index", "-q", "-w", str(wheels)],
        cwd=sources,
        check=True,
    )
    (built,) = wheels.iterdir()
    return built


def test_holds_every_file_of_the_packages(wheel, project):
    files = {
        path.relative_to(project).as_posix()
        for folder in SHIPPED
        for path in (project / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == files | {"mlproject.py"}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel; its dependencies are this environment's."""
    venv = tmp_path_factory.mktemp("away from the repository") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
        + ["--no-deps", "--no-index", str(wheel)],
        check=True,
    )
    (site_packages,) = venv.glob("lib/python3*/site-packages")
    # Python reads no .pth of a folder named in a .pth: the editable install is not seen.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return venv / "bin"


def test_command_works_away_from_the_repository(installed, tmp_path):
    done = subprocess.run(
        [installed / "hetfeat", "--help"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "deploy" in done.stdout


def test_packages_are_the_wheels_own(installed, tmp_path):
    names = ("hetfeat", "registry", "mlproject")
    script = f"import {', '.join(names)}\n" + "\n".join(f"print({name}.__file__)" for name in names)
    done = subprocess.run(
        [installed / "python", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = done.stdout.splitlines()
    assert len(paths) == len(names)
    assert all(Path(path).is_relative_to(installed.parent) for path in paths)
