"""A registry with a cost model in it, for tests of what is done with one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import stores

import mlproject
from registry.cli import app

MODEL = "costmodel.cpu-x86"


@contextmanager
def registry_with_a_model(folder: Path, project: Path) -> Iterator[Path]:
    """Works in `folder`, in whose registry a model has been trained and is in production."""
    from registry.files.moves import promote

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for variable in [name for name in os.environ if name.startswith("MLFLOW_")]:
            patch.delenv(variable)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        patch.setenv("HETFEAT_HOME", str(folder / "home"))
        tests = str(Path(__file__).parent)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(project), tests]))
        stores.make_store(folder / "records", tasks=6, per_task=8)
        line = ["train", "--records", "records", "--effort", "quick"]
        assert app.run(mlproject.cli, line) == 0
        for stage in ("staging", "production"):
            promote(MODEL, 1, stage, reason="made for tests", force=True)
        yield folder
