"""The code of docs/python.md, cut out of the page and run in its order."""

import re
from pathlib import Path

import pytest
import torch
from small_deploys import deploy_small
from stores import make_store

from hetfeat.devices.probe import remember
from hetfeat.devices.profile import DeviceProfile
from hetfeat.torch_compile.backend import backend

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.filterwarnings("error::hetfeat.torch_compile.backend.EagerWarning")
def test_the_code_runs_as_it_stands(
    registry_here: Path, project: Path, device: DeviceProfile, monkeypatch: pytest.MonkeyPatch
):
    # Whether or not the entry point is installed: another test is of it.
    if "hetfeat" not in torch._dynamo.list_backends():
        torch._dynamo.register_backend(backend, name="hetfeat")
    deploy_small(monkeypatch, "hetfeat.api.deploying")
    remember(device)
    make_store(Path("records"), tasks=6, per_task=12)
    blocks = BLOCK.findall((project / "docs" / "python.md").read_text())
    assert len(blocks) > 5
    scope: dict[str, object] = {"__name__": "tutorial"}
    for block in blocks:
        exec(compile(block, "python.md", "exec"), scope)


def test_the_page_is_short(project: Path):
    assert len((project / "docs" / "python.md").read_text().split()) <= 800
