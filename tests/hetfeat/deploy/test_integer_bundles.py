"""Quantised networks as bundles that prove their integers, to the bit."""

import json

import numpy as np
import onnx
import pytest
import quantised
from built import rewrite, run_py

import hetfeat
from hetfeat.deploy import runtime
from hetfeat.deploy.verify import reference_of
from hetfeat.errors import WorkFailed
from hetfeat.workloads.networks import load_network

pytestmark = [pytest.mark.slow, pytest.mark.tvm]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("quantised") / "small.onnx"
    onnx.save(quantised.small_network(), str(path))
    return path


@pytest.fixture(scope="module")
def imported(file):
    from hetfeat.workloads.relax import import_network

    return import_network(load_network(str(file)))


@pytest.fixture(scope="module")
def bundle(file):
    out = file.parent / "bundle"
    return hetfeat.deploy_network(str(file), model="none", trials=2, out=out)


def test_the_manifest_says_what_is_made_of_integers(bundle):
    manifest = json.loads((bundle.folder / runtime.MANIFEST).read_text())
    assert manifest["integers"] == {"exact": True, "products": 3, "in_float": []}
    assert manifest["tolerance"] == 0
    assert manifest["report"]["max_abs_error"] == 0


def test_another_input_has_the_bits_of_numpy(bundle, imported):
    from hetfeat.workloads.integer_reference import run_integers

    x = np.random.default_rng(9).normal(size=(1, 4, 8, 8)).astype(np.float32)
    (expected,) = run_integers(imported, [x])
    found = runtime.LoadedBundle(bundle.folder).run([x])
    np.testing.assert_array_equal(found, expected)


def test_the_bundle_proves_itself_and_one_bit_is_an_error(bundle):
    done = run_py(bundle.folder, "--check")
    assert (done.returncode, "to the bit" in done.stdout) == (0, True), done.stderr
    path = bundle.folder / "sample_output.npy"
    sample = np.load(path)
    np.save(path, np.nextafter(sample, np.float32(np.inf)))
    rewrite(bundle.folder)
    assert run_py(bundle.folder, "--check").returncode == 1
    np.save(path, sample)
    rewrite(bundle.folder)


def test_an_operator_of_float32_is_named(tmp_path, caplog):
    from hetfeat.workloads.relax import import_network

    net = quantised.Qdq((4, 6), seed=2)
    weights, _ = net.filters((6, 5), axis=1)
    scores = net.node("MatMul", net.qdq("x", scale=0.03, zero=128), weights)
    path = tmp_path / "softmax.onnx"
    other = net.constant(net.rng.normal(size=(5, 3)).astype(np.float32))
    onnx.save(net.model(net.node("MatMul", net.node("Softmax", scores), other)), str(path))
    network = load_network(str(path))
    facts = reference_of(network, 0, module=import_network(network)).facts()["integers"]
    assert facts == {
        "exact": False,
        "products": 1,
        "in_float": ["matmul of 4x3"],
        "inexact": "matmul",
    }
    assert "left in float32: matmul of 4x3" in caplog.text


def test_another_network_than_the_file_says_is_refused(file, imported):
    import dataclasses

    network = load_network(str(file))
    other = dataclasses.replace(network, module=Negated(network.module))
    with pytest.raises(WorkFailed, match="differ by rounding alone"):
        reference_of(other, 0, module=imported)


class Negated:
    def __init__(self, module):
        self.module = module

    def __call__(self, *inputs):
        return [-output for output in self.module(*inputs)]
