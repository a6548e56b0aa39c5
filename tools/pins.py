"""Exact versions of the packages: `pins.py renew` writes constraints.txt, `pins.py lowest FOLDER`
makes an environment of the oldest that pyproject.toml allows.

uv resolves, with pip's settings, which decide the build of torch.
"""

import ast
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

UV = [sys.executable, "-m", "uv"]
CONSTRAINTS = Path("constraints.txt")
UV_VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
}
"""Setting of pip -> variable of uv."""


def renew() -> None:
    """The newest versions that pyproject.toml allows; torch and torchvision stay as installed."""
    _resolve(CONSTRAINTS, "--upgrade", "--extra", "release", "--extra", "notebook")
    pins = CONSTRAINTS.read_text().splitlines()
    # A build of its own has a local part, such as torch 2.13.0+cpu, that no other index has.
    CONSTRAINTS.write_text("".join(f"{pin.partition('+')[0]}\n" for pin in pins))


def lowest(venv: Path) -> None:
    """An environment of the oldest direct dependencies, with hetfeat in it."""
    _run(*UV, "venv", "--quiet", "--clear", "--python", sys.executable, str(venv))
    install = [*UV, "pip", "install", "--python", str(venv / "bin" / "python"), "--no-deps"]
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "lowest.txt"
        _resolve(pins, "--resolution", "lowest-direct")
        _run(*install, "-r", str(pins))
    _run(*install, "--editable", ".")


def _resolve(pins: Path, *options: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as kept:
        # PyPI's own build would bring gigabytes of CUDA; each torchvision is of one torch.
        for name in ("torch", "torchvision"):
            kept.write(f"{name}=={importlib.metadata.version(name)}\n")
        kept.flush()
        plain = ["--quiet", "--no-annotate", "--no-header", "--override", kept.name]
        extras = ["--extra", "dev", "--python-version", "3.11"]
        _run(*UV, "pip", "compile", "pyproject.toml", *plain, *extras, *options, "-o", str(pins))


def _pip_settings() -> dict[str, str]:
    listed = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.splitlines()
    found = {}
    for line in lines:
        key, _, value = line.partition("=")
        if variable := UV_VARIABLES.get(key.rpartition(".")[2]):
            found[variable] = str(ast.literal_eval(value))
    return found


def _run(*command: str) -> None:
    subprocess.run(command, check=True, env=_pip_settings() | os.environ)


if __name__ == "__main__":
    if sys.argv[1] == "renew":
        renew()
    else:
        lowest(Path(sys.argv[2]))
