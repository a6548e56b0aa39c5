"""`hetfeat demo`, for real, on two stages of its network."""

from functools import partial

import pytest
from door import hetfeat

from hetfeat.api import demo
from hetfeat.workloads.seeded_resnet18 import write_resnet18

pytestmark = [pytest.mark.slow, pytest.mark.tvm]


def test_a_first_result_without_measuring(tmp_path, device_file, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "write_resnet18", partial(write_resnet18, side=32, stages=(16, 32)))
    done = hetfeat(capfd, "demo", "--device", str(device_file), "--out", "first")
    assert done.code == 0, done.errors
    assert done.value["trials"] == 0
    assert done.value["max_abs_error"] <= done.value["tolerance"]
    assert done.value["model_version"].startswith("packaged:")
    assert done.value["peers_ms"]["onnxruntime"] > 0
    assert done.value["page"] == "first/index.html"
    assert (tmp_path / "first" / "index.html").is_file()
    assert (tmp_path / "first" / "bundle" / "run.py").is_file()
    assert not (tmp_path / "mlflow.db").exists()
