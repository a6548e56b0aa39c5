"""Exported programs of torch that are quantised, as its own quantiser writes them."""

import numpy as np
import pytest
import torch
from integer_networks import AVX2, SSE, ran

from hetfeat.errors import RequestError
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.quantised_torch import know_operators

pytestmark = [pytest.mark.tvm]


class Program(torch.nn.Module):
    """A convolution, a pooling, and a product, between `convert_pt2e`'s operators."""

    def __init__(self, most=255):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.most = most
        for name, shape in (("filters", (8, 4, 3, 3)), ("matrix", (5, 8))):
            drawn = torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
            self.register_buffer(name, drawn)
            scales = torch.rand(shape[0], generator=generator) * 0.01 + 0.001
            self.register_buffer(f"{name}_scales", scales)
            self.register_buffer(f"{name}_zeros", torch.zeros(shape[0], dtype=torch.int64))
        self.bias = torch.nn.Parameter(torch.randn(8, generator=generator))

    def forward(self, x):
        x = torch.relu(
            torch.nn.functional.conv2d(
                self.rounded(x, 0.03, 128), self.weights("filters"), self.bias, padding=1
            )
        )
        x = self.rounded(x, 0.02, 0).mean((2, 3))
        return torch.nn.functional.linear(self.rounded(x, 0.01, 3), self.weights("matrix"))

    def rounded(self, x, scale, zero):
        of = torch.ops.quantized_decomposed
        x = of.quantize_per_tensor(x, scale, zero, 0, self.most, torch.uint8)
        return of.dequantize_per_tensor(x, scale, zero, 0, self.most, torch.uint8)

    def weights(self, name):
        parts = (getattr(self, f"{name}{end}") for end in ("", "_scales", "_zeros"))
        return torch.ops.quantized_decomposed.dequantize_per_channel(
            *parts, 0, -127, 127, torch.int8
        )


def saved(folder, most=255):
    know_operators()
    x = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    path = folder / "program.pt2"
    torch.export.save(torch.export.export(Program(most).eval(), (x,)), path)
    return path


@pytest.mark.parametrize("most", [255, pytest.param(127, marks=pytest.mark.slow)])
def test_a_program_is_computed_in_integers(tmp_path, most):
    from hetfeat.deploy.verify import reference_of
    from hetfeat.workloads.integer_reference import run_integers
    from hetfeat.workloads.relax import import_network

    network = load_network(str(saved(tmp_path, most)))
    module = import_network(network)
    facts = reference_of(network, 0, module=module).facts()["integers"]
    assert facts == {"exact": True, "products": 2, "in_float": []}
    inputs = [network.inputs[0].numpy()]
    (expected,) = run_integers(module, inputs)
    assert np.ptp(expected) > 0
    for cpu in (AVX2, SSE):
        (found,) = ran(module, cpu, inputs)
        np.testing.assert_array_equal(found, expected)


def test_weights_of_8_bits_that_nothing_dequantises_are_refused(tmp_path):
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.ones(4, dtype=torch.int8))

        def forward(self, x):
            return x * self.rows

    path = tmp_path / "odd.pt2"
    torch.export.save(torch.export.export(Odd(), (torch.randn(4),)), path)
    with pytest.raises(RequestError, match="of int8; expected float32, or an ONNX file or a prog"):
        load_network(str(path))
