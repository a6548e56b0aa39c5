"""What the files import that MLflow keeps with each model: it stays where they find it."""

import importlib

import pytest

IMPORTED = [
    ("hetfeat.dataset.schema", "FEATURES_PER_STORE"),
    ("hetfeat.deploy.runtime", "PUBLIC_KEY"),
    ("hetfeat.deploy.runtime", "LoadedBundle"),
    ("hetfeat.devices.profile", "DeviceProfile"),
    ("hetfeat.errors", "DataError"),
    ("hetfeat.features.assemble", "batch_of"),
    ("hetfeat.models.table", "load_model"),
    ("hetfeat.records", "Program"),
    ("hetfeat.records", "Task"),
]


@pytest.mark.parametrize(("module", "name"), IMPORTED)
def test_what_copies_of_other_days_import_is_there(module, name):
    assert hasattr(importlib.import_module(module), name)
