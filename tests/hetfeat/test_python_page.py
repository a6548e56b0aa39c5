"""The Python of README and of how-tos, cut out of the page and run in its order."""

from pathlib import Path

import pages
import pytest
import torch
from small_deploys import deploy_small
from stores import make_store

from hetfeat.devices.probe import remember
from hetfeat.devices.profile import DeviceProfile
from hetfeat.torch_compile.backend import backend

SHOWN = ["README.md", "docs/python.md"]
ELSEWHERE = {
    "docs/lab.md": "tests/hetfeat/dataset/test_lab_queries.py",
    "docs/registry.md": "tests/registry/models/test_webhook.py",
}
"""Pages whose code needs records of its own, or a server that calls, and who runs it."""


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.filterwarnings("error::hetfeat.torch_compile.backend.EagerWarning")
@pytest.mark.parametrize("page", SHOWN)
def test_the_code_runs_as_it_stands(
    page: str,
    registry_here: Path,
    project: Path,
    device: DeviceProfile,
    monkeypatch: pytest.MonkeyPatch,
):
    # Whether or not the entry point is installed: another test is of it.
    if "hetfeat" not in torch._dynamo.list_backends():
        torch._dynamo.register_backend(backend, name="hetfeat")
    deploy_small(monkeypatch, "hetfeat.api.deploying")
    remember(device)
    make_store(Path("records"), tasks=6, per_task=12)
    scope: dict[str, object] = {"__name__": "tutorial"}
    for block in pages.python_blocks((project / page).read_text()):
        exec(compile(block, page, "exec"), scope)


def test_no_page_has_code_that_is_not_run(project: Path):
    every = pages.README + pages.TUTORIALS + pages.HOW_TOS
    coded = [page for page in every if pages.python_blocks((project / page).read_text())]
    assert coded == [*SHOWN, *ELSEWHERE]
    assert all((project / test).exists() for test in ELSEWHERE.values())
