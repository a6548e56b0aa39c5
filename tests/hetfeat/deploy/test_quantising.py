"""Networks of float32 that are quantised on their way into a bundle."""

import json
import logging

import nets
import numpy as np
import onnx
import pytest
import quantised
import torch
from onnxruntime import quantization
from small_deploys import deploy_small

import hetfeat
from hetfeat.deploy import runtime
from hetfeat.deploy.calibration import of_arrays
from hetfeat.deploy.precision import QUANTISED
from hetfeat.deploy.quantise import import_kept, quantised_network
from hetfeat.deploy.request import DeployRequest
from hetfeat.errors import DataError, RequestError
from hetfeat.workloads.network import Network

pytestmark = [pytest.mark.slow, pytest.mark.tvm]

PIXELS = np.random.default_rng(3).normal(size=(12, 3, 16, 16)).astype(np.float32)


def tiny():
    torch.manual_seed(0)
    module, inputs = nets.tiny(1)
    return Network("tiny", module.eval(), inputs)


@pytest.fixture(scope="module")
def made(tmp_path_factory, device):
    from hetfeat.devices.probe import remember

    folder = tmp_path_factory.mktemp("quantising")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HETFEAT_HOME", str(folder / "home"))
        deploy_small(patch, "hetfeat.api.deploying")
        remember(device)
        yield deploy(folder / "bundle"), folder


def deploy(out, calibration=PIXELS):
    return hetfeat.deploy_network(
        tiny(), model="none", trials=1, out=out, precision="int8", calibration=calibration
    )


def test_a_bundle_in_int8_is_exact_and_says_how_accurate_it_is(made):
    bundle, _ = made
    manifest = json.loads((bundle.folder / runtime.MANIFEST).read_text())
    assert manifest["integers"] == {"exact": True, "products": 3, "in_float": []}
    assert manifest["network"] == "tiny_int8"
    report = manifest["report"]
    assert (report["precision"], report["max_abs_error"]) == ("int8", 0)
    assert report["calibration"] == of_arrays([PIXELS]).digest
    assert report["accuracy"]["rows"] == 2  # every fifth of twelve
    assert report["accuracy"]["snr_db"] > 20
    assert report["accuracy"]["worst_layers"]


def test_what_it_computes_is_near_float32_on_rows_held_out(made):
    bundle, _ = made
    with torch.inference_mode():
        expected = tiny().module(torch.from_numpy(PIXELS[4:5])).numpy()
    found = bundle(PIXELS[4:5])
    assert 0 < np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


def test_the_same_request_is_found_and_other_data_is_another(made):
    bundle, folder = made
    before = (bundle.folder / runtime.MANIFEST).stat().st_mtime_ns
    deploy(folder / "bundle")
    assert (bundle.folder / runtime.MANIFEST).stat().st_mtime_ns == before
    with pytest.raises(RequestError, match="precision and calibration data"):
        deploy(folder / "bundle", PIXELS[:10])
    with pytest.raises(RequestError, match="precision and calibration data"):
        hetfeat.deploy_network(tiny(), model="none", trials=1, out=folder / "bundle")


def test_the_journal_keeps_the_network_for_other_machines(made):
    _, folder = made
    journal = folder / "bundle.journal"
    request = DeployRequest.of_journal(journal)
    kept = import_kept(journal, request)
    assert kept.accuracy.rows == 2
    assert kept.network.name == "tiny_int8"
    assert hetfeat.load_network(journal / QUANTISED).kind == "ONNX"


def test_a_journal_of_a_network_that_nobody_compared_is_refused(made, tmp_path):
    _, folder = made
    request = DeployRequest.of_journal(folder / "bundle.journal")
    onnx.save(quantised.small_network(), str(tmp_path / QUANTISED))
    with pytest.raises(DataError, match="a network that `hetfeat deploy` has quantised"):
        import_kept(tmp_path, request)


def test_the_quantiser_leaves_no_handler_behind_that_prints_lines_twice(monkeypatch):
    root, quantise = logging.getLogger(), quantization.quantize_static

    def talking(*arguments, **options):
        logging.info("as of larger networks")
        quantise(*arguments, **options)

    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(quantization, "quantize_static", talking)
    quantised_network(tiny(), of_arrays([PIXELS]))
    assert root.handlers == []


class Residual(torch.nn.Module):
    def __init__(self, normalises):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))
        self.norm = torch.nn.LayerNorm(8) if normalises else torch.nn.ReLU()

    def forward(self, x):
        first = self.layers[0](x)
        return self.norm(first + self.layers[1](first))


@pytest.mark.parametrize("normalises", [False, True])
def test_sums_of_a_transformer_stay_in_float32(normalises):
    torch.manual_seed(1)
    network = Network("residual", Residual(normalises).eval(), (torch.randn(2, 8),))
    rows = np.random.default_rng(1).normal(size=(20, 8)).astype(np.float32)
    made, accuracy = quantised_network(network, of_arrays([rows]))
    nodes = {name: node for node in made.onnx.graph.node for name in node.output}
    (total,) = [node for node in made.onnx.graph.node if node.op_type == "Add"]
    kinds = {nodes[name].op_type for name in total.input}
    assert ("Gemm" in kinds) == normalises
    assert accuracy.snr_db > 20


class Uneven(torch.nn.Module):
    """Its second layer reads numbers of which a few are a thousand times as large."""

    def __init__(self, outputs):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, n) for n in (16, 16, 16, outputs))
        with torch.no_grad():
            self.layers[0].weight[3] *= 1000
            self.layers[1].weight[:, 3] /= 1000

    def forward(self, x):
        for layer in self.layers[:3]:
            x = torch.relu(layer(x))
        return self.layers[3](x)


def loss_of(max_loss, outputs=16):
    torch.manual_seed(1)
    network = Network("uneven", Uneven(outputs).eval(), (torch.randn(2, 16),))
    rows = np.random.default_rng(1).normal(size=(60, 16)).astype(np.float32)
    return network, *quantised_network(network, of_arrays([rows]), max_loss)


def test_layers_go_back_to_float32_until_no_more_is_lost():
    _, plain, accuracy = loss_of(None)
    assert accuracy.in_float == () and accuracy.loss > 0.1
    network, made, bounded = loss_of(accuracy.loss / 2)
    assert bounded.loss <= accuracy.loss / 2
    assert 0 < len(bounded.in_float) < 4
    onnx.checker.check_model(made.onnx)
    products = [node for node in made.onnx.graph.node if node.op_type == "Gemm"]
    weights = {tensor.name for tensor in made.onnx.graph.initializer}
    floats = {node.name for node in products if node.input[1] in weights}
    assert floats == set(bounded.in_float)
    assert len(products) == 4
    rows = np.random.default_rng(2).normal(size=(2, 16)).astype(np.float32)
    with torch.inference_mode():
        expected = network.module(torch.from_numpy(rows)).numpy()
    off, before = (np.abs(of.module(rows)[0] - expected).max() for of in (made, plain))
    assert off < before


def test_a_loss_that_nothing_in_int8_keeps_to_is_refused():
    with pytest.raises(RequestError, match="with all 4 layers in float32"):
        loss_of(1e-9, outputs=1)


class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))

    def forward(self, x):
        scores = self.layers[0](x).masked_fill(torch.arange(8) > 5, -torch.inf)
        return self.layers[1](torch.softmax(scores, -1))


def test_an_infinite_mask_is_no_layer_that_is_off():
    torch.manual_seed(1)
    network = Network("masked", Masked().eval(), (torch.randn(2, 8),))
    rows = np.random.default_rng(1).normal(size=(20, 8)).astype(np.float32)
    _, accuracy = quantised_network(network, of_arrays([rows]))
    assert accuracy.worst_layers
    assert np.isfinite([ratio for _, ratio in accuracy.worst_layers]).all()


def test_a_network_of_onnx_keeps_its_weights(tmp_path):
    torch.manual_seed(1)
    module, rows = torch.nn.Sequential(torch.nn.Linear(32, 32)), torch.randn(4, 32)
    file = tmp_path / "wide.onnx"
    torch.onnx.export(module, (rows[:2],), file, dynamo=False)
    network = hetfeat.load_network(file)
    before = network.onnx.SerializeToString()
    quantised_network(network, of_arrays([rows.numpy()]))
    assert network.onnx.SerializeToString() == before


def test_what_is_quantised_already_and_what_cannot_be(tmp_path):
    onnx.save(quantised.small_network(), str(tmp_path / "small.onnx"))
    network = hetfeat.load_network(tmp_path / "small.onnx")
    rows = np.random.default_rng(1).normal(size=(2, 4, 8, 8)).astype(np.float32)
    with pytest.raises(RequestError, match="a quantised ONNX model, to be quantised"):
        quantised_network(network, of_arrays([rows]))
    nothing = Network("nothing", torch.nn.Sigmoid(), (torch.zeros(1, 4),))
    with pytest.raises(RequestError, match="nothing to quantise"):
        quantised_network(nothing, of_arrays([rows[0, 0, :, :4]]))
