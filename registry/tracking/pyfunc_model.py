"""A cost model as MLflow loads it, from this very file and without unpickling anything.

Input: one row a program, with the columns of a record store and the device's profile:

    operator, shapes, dtype, flops   as in the store's shards
    stores                           per-store features, double [stores * 164], perhaps none
    trace                            the schedule's trace as JSON
    profile                          the device profile as JSON

Output: `score` (higher is faster, comparable inside a task on a device) and `y` (estimate of
best latency of the task / latency).
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from hetfeat.dataset.schema import FEATURES_PER_STORE
from hetfeat.deploy.runtime import PUBLIC_KEY
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError
from hetfeat.features.assemble import batch_of
from hetfeat.models.registry import load_model
from hetfeat.records import Program, Task


class CostModelFunction(PythonModel):
    """Scores rows of a data frame with the cost model among its artifacts."""

    def load_context(self, context: Any) -> None:
        """Loads and checks the model's folder."""
        if os.environ.get(PUBLIC_KEY):
            raise DataError(
                f"a cost model loaded by MLflow with {PUBLIC_KEY} set",
                "a version whose signature was checked, which MLflow does not do",
                f"`hetfeat pull` it and load that folder, or unset {PUBLIC_KEY}",
            )
        self.model = load_model(Path(context.artifacts["model"]))

    def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> pd.DataFrame:
        """Score and estimate of each row, in the order given."""
        scores = np.empty(len(model_input))
        for profile, rows in model_input.groupby("profile", sort=False).indices.items():
            device = DeviceProfile.from_dict(json.loads(str(profile)), "in column profile")
            programs = [_program(row) for row in model_input.iloc[rows].itertuples(index=False)]
            scores[rows] = self.model.predict(batch_of(programs, device))
        estimates = self.model.calibrate(scores)
        return pd.DataFrame({"score": scores, "y": estimates}, index=model_input.index)


def _program(row: Any) -> Program:
    shapes = tuple(tuple(shape) for shape in json.loads(row.shapes))
    task = Task("", row.operator, shapes, row.dtype, float(row.flops))
    stores = np.asarray(row.stores, np.float32).reshape(-1, FEATURES_PER_STORE)
    return Program(task, row.trace, stores)


set_model(CostModelFunction())
