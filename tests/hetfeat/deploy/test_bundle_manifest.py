"""Manifests of bundles that somebody else wrote: whatever they hold, one kind of error."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetfeat.deploy.runtime import BundleError, load_arrays, read_manifest

DIGEST = "0" * 64
NAMES = ("lib_1.so", "params.npz", "sample_input_0.npy", "sample_output.npy")
GOOD = {
    "format": 2,
    "device": "here",
    "target": {"kind": "llvm"},
    "threads": 2,
    "code_features": ["avx2"],
    "inputs": [{"shape": [1, 3], "dtype": "float32"}],
    "tolerance": 1e-4,
    "variants": [{"batch": 1, "library": "lib_1.so", "parameters": ["p"]}],
    "any_rows": True,
    "files": dict.fromkeys(NAMES, DIGEST),
}
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


def read(folder: Path, text: str | bytes) -> dict:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    (folder / "bundle.json").write_bytes(data)
    return read_manifest(folder)


def test_a_good_one_is_read(tmp_path):
    assert read(tmp_path, json.dumps(GOOD)) == GOOD


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changed=st.dictionaries(st.sampled_from(sorted(GOOD)), ODD, min_size=1))
def test_odd_values_are_refused_or_of_their_kind(tmp_path, changed):
    with contextlib.suppress(BundleError):
        found = read(tmp_path, json.dumps(GOOD | changed))
        assert {key: type(value) for key, value in found.items() if key != "tolerance"} == {
            key: type(value) for key, value in GOOD.items() if key != "tolerance"
        }


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_any_bytes_are_refused(tmp_path, data):
    with pytest.raises(BundleError):
        read(tmp_path, data)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        json.dumps(GOOD | {"tolerance": float("nan")}),
        json.dumps(GOOD).replace("0.0001", "1e999"),
        json.dumps(GOOD | {"files": [*NAMES]}),
        json.dumps(GOOD | {"files": GOOD["files"] | {"../x": DIGEST}}),
        json.dumps(GOOD | {"files": GOOD["files"] | {"x": "0"}}),
        json.dumps(GOOD | {"threads": True}),
        json.dumps(GOOD | {"target": {"kind": "cuda", "arch": "x"}}),
        json.dumps(GOOD | {"any_rows": 1}),
        json.dumps(GOOD | {"format": 10**30}),
    ],
)
def test_what_is_of_no_use_is_refused(tmp_path, text):
    with pytest.raises(BundleError):
        read(tmp_path, text)


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,)}"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (10" + "0" * 40 + ",)}"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"),
        header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}") + bytes(8),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': ("),
        header("(" * 3000),
        header("'''"),
    ],
)
def test_odd_headers_of_arrays_are_one_line(tmp_path, data):
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(BundleError, match="file of numbers") as refused:
        load_arrays([tmp_path / "x.npy"])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_in_both_orders_are_read(tmp_path, order):
    value = np.asarray(np.arange(6.0).reshape(2, 3), order=order)
    file = io.BytesIO()
    np.save(file, value)
    (tmp_path / "x.npy").write_bytes(file.getvalue())
    (found,) = load_arrays([tmp_path / "x.npy"])
    np.testing.assert_array_equal(found, value)
