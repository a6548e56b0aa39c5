"""Networks from elsewhere as bundles that prove themselves, without what they came from."""

from importlib.util import find_spec
from pathlib import Path

import nets
import pytest
import tflite_files
import torch
from built import build, run_py

pytestmark = [pytest.mark.slow, pytest.mark.tvm]


def exported_program(folder: Path) -> str:
    module, inputs = nets.tiny(2)
    torch.export.save(torch.export.export(module.eval(), inputs), folder / "tiny.pt2")
    return str(folder / "tiny.pt2")


def tflite(folder: Path) -> str:
    return str(tflite_files.save_convolution(folder / "conv.tflite"))


def timm(folder: Path) -> str:
    if find_spec("timm") is None:
        pytest.skip("no timm")
    return "timm/test_resnet"


@pytest.mark.parametrize(("network", "batch"), [(exported_program, 2), (tflite, 1), (timm, 1)])
def test_it_becomes_a_bundle_that_proves_itself(network, batch, tmp_path):
    name = network(tmp_path)
    bundle = build(tmp_path / "bundle", name, (batch,))
    for file in tmp_path.glob("*.*"):
        file.unlink()
    done = run_py(bundle, "--check")
    assert done.returncode == 0, done.stderr
    assert "computes what it should" in done.stdout
