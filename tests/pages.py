"""Pages by their kind, and the commands and the Python that they show."""

import re

README = ["README.md"]
TUTORIALS = ["docs/tutorial.md", "docs/python.md"]
HOW_TOS = [
    "docs/arm.md",
    "docs/bundle.md",
    "docs/collecting.md",
    "docs/containers.md",
    "docs/contributing.md",
    "docs/data.md",
    "docs/deploy.md",
    "docs/devices.md",
    "docs/doctor.md",
    "docs/fleet.md",
    "docs/gpu.md",
    "docs/install.md",
    "docs/lab.md",
    "docs/mlflow.md",
    "docs/packs.md",
    "docs/pruning.md",
    "docs/quantised.md",
    "docs/registry.md",
    "docs/report.md",
    "docs/search.md",
    "docs/serving.md",
    "docs/training.md",
    "docs/transfer.md",
    "docs/your-mlflow.md",
]

PROGRAMS = (
    *("hetfeat", "make", "python", "python3.11", "pip", "mlflow", ".venv/bin/mlflow"),
    *("docker", ".venv/bin/pre-commit"),
    *("sudo", "openssl", "g++", "./run_bundle", "ssh", "scp", "conda", "source", "export"),
    *("useradd", "install", "systemctl", "eval", "(printf"),
)
ASSIGNED = r"(?:[A-Z_]+=(?:\$\(.*\)|\S+) ?)"
SHOWN = re.compile(
    rf"^    ((?:{ASSIGNED}*(?:{'|'.join(map(re.escape, PROGRAMS))}) .*)|{ASSIGNED}+)$", re.MULTILINE
)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s+#.*$")


def commands(page: str) -> list[str]:
    """Indented lines of a page that begin with a program, without their comments.

    A line goes on after a backslash, after a pipe, and until its quotes are closed.
    """
    page = re.sub(r" *(?:\\\n|(?<=\|)\n) +", " ", page)
    page = re.sub(r"('\{[^'\n]*)\n +([^'\n]*')", r"\1 \2", page)
    return [COMMENT.sub("", line) for line in SHOWN.findall(page)]


def python_blocks(page: str) -> list[str]:
    return PYTHON.findall(page)
