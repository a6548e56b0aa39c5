"""`doctor` names bundles whose integer inputs were never drawn."""

import json
from types import SimpleNamespace

import pytest

from registry.maintenance.audit import _not_verified


@pytest.mark.parametrize(
    ("dtype", "drawn", "named"),
    [
        ("int64", None, True),
        ("uint8", None, True),
        ("float32", None, False),
        ("int64", {"draws": 4}, False),
    ],
)
def test_a_bundle_that_was_compared_on_zeros_is_named(dtype, drawn, named):
    manifest = {"inputs": [{"shape": [1, 6], "dtype": dtype}], "tasks": []}
    manifest |= {"verified_on": drawn} if drawn else {}

    def fetch(path, into):
        (into / path).write_text(json.dumps(manifest))
        return into / path

    assert (_not_verified(SimpleNamespace(fetch=fetch)) is not None) == named
