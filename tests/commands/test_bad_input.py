"""Wrong requests where there is nothing yet: one line, exit 2, and nothing is written."""

from pathlib import Path

import pytest

import mlproject
from hetfeat.devices.probe import remember
from registry.cli import app


@pytest.fixture
def here(tmp_path: Path, device, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder on a machine that has been probed."""
    monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    remember(device)
    (tmp_path / "here").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("collect --device laptop", "'local', 'here'"),
        ("collect --device missing.yaml", "missing.yaml"),
        ("collect --network resnet19", "resnet18"),
        ("collect --network resnet18,,vgg16", "empty name"),
        ("collect --network resnet18,resnet19", "resnet18"),
        ("collect --network no_such_module:net", "module:function"),
        ("collect --network nets:unknown_operator", "linalg_eig"),
        ("collect --network nets:tiny --out ../mine", "'../mine'"),
        ("collect --programs-per-task 0", "--programs-per-task"),
        ("collect --programs-per-task many", "--programs-per-task"),
        ("collect --seed -1", "--seed"),
        ("devices show laptop", "'local', 'here'"),
        ("devices probe --name UPPER", "UPPER"),
        ("devices probe --isa avx2", "--out FILE"),
        ("records stats records", "hetfeat collect"),
        ("records verify ../mine", "hetfeat collect"),
        ("run bundle --input x.npy --output y.npy", "hetfeat deploy"),
        ("run bundle --input x.npy", "hetfeat deploy"),
        ("deploy resnet18 --device laptop", "'local', 'here'"),
        ("deploy --trials -1", "--trials"),
        ("deploy --effort heroic", "heroic"),
    ],
)
def test_one_line_and_nothing_written(here, capfd, line, said):
    code = app.run(mlproject.cli, line.split())
    out, err = capfd.readouterr()
    last = err.splitlines()[-1]
    assert (code, out) == (2, "")
    assert last.startswith("hetfeat: ")
    assert said in last
    assert "Traceback" not in err
    assert list(here.iterdir()) == []


def test_a_stage_that_holds_nothing_is_told(here, capfd, monkeypatch):
    """MLflow makes its database when it is asked; a bundle or a run there is not."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here / 'mlflow.db'}")
    line = "deploy --network nets:tiny --stage production"
    code = app.run(mlproject.cli, line.split())
    last = capfd.readouterr().err.splitlines()[-1]
    assert code == 2
    assert "costmodel.cpu-x86" in last
    assert "hetfeat train" in last
    assert {path.name for path in here.iterdir()} <= {"mlflow.db"}
