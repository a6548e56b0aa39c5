"""Executes the notebooks of docs/ anew, as `make notebooks` does; needs the extra `notebook`."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path("docs") / "notebooks"


def execute(path: Path) -> None:
    """Runs the cells of a notebook in their order, and keeps what they show."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False).execute()
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for found in sorted(NOTEBOOKS.glob("*.ipynb")):
        execute(found)
        print(found, file=sys.stderr)
