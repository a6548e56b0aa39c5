"""Builds a release into dist/, tried in an environment of its own: `python tools/release.py`.

dist/ then holds the sdist, the wheel that was built of it, and sbom.json: what the wheel brings, as
CycloneDX.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ("-c", str(ROOT / "constraints.txt"))
TOOLS = ("build", "cyclonedx-bom")
IMPORTS = """
import importlib.util, hetfeat, mlproject, registry
assert importlib.util.find_spec("torch") is None, "the base brings torch"
print(hetfeat.__version__)
"""


def main() -> None:
    """Builds, installs, tries, and writes the list of parts."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        tools = _environment(Path(folder) / "tools", *TOOLS)
        _run(tools / "python", "-m", "build", "--outdir", dist, ROOT)
        (wheel,) = dist.glob("*.whl")
        version = wheel.name.split("-")[1]
        installed = _environment(Path(folder) / "installed", str(wheel))
        try_out(installed, version, Path(folder))
        sbom = ("--output-reproducible", "-o", dist / "sbom.json", installed / "python")
        _run(tools / "cyclonedx-py", "environment", *sbom)
    sys.stderr.write(f"dist/ holds hetfeat {version}\n")


def try_out(installed: Path, version: str, away: Path) -> None:
    """Raises SystemExit unless the `bin` of an environment holds a hetfeat that works.

    Args:
        installed: The `bin`.
        version: What `hetfeat --version` has to say.
        away: The working folder, outside the repository.
    """
    said = {
        _run(installed / "hetfeat", "--version", cwd=away).split()[-1],
        _run(installed / "python", "-c", IMPORTS, cwd=away).split()[-1],
    }
    if said != {version}:
        raise SystemExit(f"the wheel of {version} says that it is {', '.join(sorted(said))}")
    _run(installed / "hetfeat", "demo", "--help", cwd=away)


def _environment(folder: Path, *packages: str) -> Path:
    """The `bin` of a new environment with these packages, in the versions that were tested."""
    _run(sys.executable, "-m", "venv", folder)
    _run(folder / "bin" / "python", "-m", "pip", "install", "-q", *CONSTRAINTS, *packages)
    return folder / "bin"


def _run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{Path(command[0]).name} failed; its messages are above")
    return done.stdout


if __name__ == "__main__":
    main()
