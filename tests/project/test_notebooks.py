"""Notebooks of the documentation: executed as a whole, small, and of no machine in particular."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
MAX_BYTES = 200_000
OF_A_MACHINE = re.compile(r"/(?:tmp|home|root|work|usr|opt)/|0x[0-9a-f]{6}")


def code_of(notebook: Path) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_outputs_are_of_one_run_from_top_to_bottom(notebook: Path):
    cells = code_of(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data"}
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_small_and_names_no_place_of_a_machine(notebook: Path):
    assert notebook.stat().st_size <= MAX_BYTES
    shown = [cell["source"] for cell in code_of(notebook)]
    shown += [o.get("text", "") for cell in code_of(notebook) for o in cell["outputs"]]
    assert not OF_A_MACHINE.search(json.dumps(shown))


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_code_says_what_it_shows(notebook: Path, capsys, monkeypatch):
    """Run as plain Python; figures of models differ in the third place between processors."""
    monkeypatch.setattr(plt, "show", lambda: None)
    plt.switch_backend("agg")
    scope: dict[str, object] = {"__name__": "notebook"}
    for cell in code_of(notebook):
        exec(compile("".join(cell["source"]), notebook.name, "exec"), scope)
        printed = capsys.readouterr().out
        shown = [o["text"] for o in cell["outputs"] if o["output_type"] == "stream"]
        assert without_figures(printed) == without_figures("".join(map("".join, shown)))
    plt.close("all")


def without_figures(text: str) -> str:
    return re.sub(r"\d+(?:\.\d+)? rounds|\d\.\d+|kept|dropped", "#", text)


def test_jupyter_is_no_part_of_an_ordinary_installation():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    asked = {extra: " ".join(of) for extra, of in project["optional-dependencies"].items()}
    assert [extra for extra, of in asked.items() if "nbclient" in of] == ["notebook"]
    assert "nbclient" not in " ".join(project["dependencies"])
