"""`hetfeat demo`, for real, on two stages of its network."""

from dataclasses import replace
from functools import partial

import pytest
from door import hetfeat
from small_deploys import deploy_small

from hetfeat.api import demo
from hetfeat.errors import RequestError
from hetfeat.workloads.seeded_resnet18 import write_resnet18


@pytest.mark.slow
@pytest.mark.tvm
def test_a_first_result_without_measuring(tmp_path, device_file, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "write_resnet18", partial(write_resnet18, side=32, stages=(16, 32)))
    deploy_small(monkeypatch, "hetfeat.api.demo", peers=None)
    done = hetfeat(capfd, "demo", "--device", str(device_file), "--out", "first")
    assert done.code == 0, done.errors
    assert done.value["trials"] == 0
    assert done.value["max_abs_error"] <= done.value["tolerance"]
    assert done.value["model_version"].startswith("packaged:")
    assert done.value["peers_ms"]["onnxruntime"] > 0
    assert list(done.value["seconds"]) == [
        *("importing", "lowering", "references", "choosing", "building", "verifying", "timing"),
    ]
    assert done.value["page"] == "first/index.html"
    assert (tmp_path / "first" / "index.html").is_file()
    assert (tmp_path / "first" / "bundle" / "run.py").is_file()
    assert not (tmp_path / "mlflow.db").exists()


def test_what_lies_there_stays(tmp_path, device_file, capfd):
    (tmp_path / "index.html").write_text("mine")
    refused = hetfeat(capfd, "demo", "--device", str(device_file), "--out", str(tmp_path))
    assert refused.code == 2
    assert "choose another --out" in refused.errors
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    assert (tmp_path / "index.html").read_text() == "mine"


def test_a_family_without_a_packaged_model_is_told(tmp_path, device):
    with pytest.raises(RequestError, match="of family cpu-arm"):
        demo.show_first_result(tmp_path / "first", replace(device, family="cpu-arm"))
    assert not (tmp_path / "first").exists()
