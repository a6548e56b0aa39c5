"""Which operators other engines do not compute in exact integers: counts of tensors that differ.

    python benchmarks/quantised_peers.py [--rows 32]

Each network is one operator, quantised by ONNX Runtime's quantiser, and a product that follows it.
What the product takes is compared: integers of 8 bits, by each engine and by numpy's exact ones.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from hetfeat.workloads.integer_reference import run_integers
from hetfeat.workloads.network import Network
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.quantise import float_model, quantised_model
from hetfeat.workloads.relax import import_network

CHANNELS, SIDE, SEED = 32, 16, 0
ENGINES = ("onnxruntime", "as it is written", "openvino")


class Residual(nn.Module):
    """The sum of a convolution and its input, cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.conv(value) + value)


class Gated(nn.Module):
    """A tensor times the sigmoid of its averages."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value * torch.sigmoid(value.mean((2, 3), keepdim=True))


class Attention(nn.Module):
    """Products of rows with each other, and their softmax."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return torch.softmax(value @ value.transpose(-1, -2) / 4, -1)


def operators() -> Iterator[tuple[str, nn.Module, tuple[int, ...]]]:
    """Names, modules, and shapes of their inputs."""
    image, rows = (1, CHANNELS, SIDE, SIDE), (1, SIDE, CHANNELS)
    conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
    each = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS)
    point = nn.Conv2d(CHANNELS, CHANNELS, 1)
    linear = nn.Linear(CHANNELS, CHANNELS)
    yield "1x1 convolution", point, image
    yield "3x3 convolution and ReLU", nn.Sequential(conv, nn.ReLU()), image
    yield "depthwise convolution", each, image
    yield "convolution, sum and ReLU", Residual(), image
    yield "convolution and hard-swish", nn.Sequential(point, nn.Hardswish()), image
    yield "maximum pooling", nn.MaxPool2d(3, 2, 1), image
    yield "average of all pixels", nn.AdaptiveAvgPool2d(1), image
    yield "gate by sigmoid", Gated(), image
    yield "linear layer", linear, rows
    yield "linear layer and GELU", nn.Sequential(linear, nn.GELU()), rows
    yield "layer normalisation", nn.LayerNorm(CHANNELS), rows
    yield "scores and softmax", Attention(), rows


def quantised_file(path: Path, module: nn.Module, shape: tuple[int, ...]) -> None:
    """Writes a network whose output is what the product after a module takes, in 8 bits."""
    value = module(torch.zeros(shape))
    width = value.shape[1] if value.dim() == 4 else value.shape[-1]
    product = nn.Conv2d(width, 8, 1) if value.dim() == 4 else nn.Linear(width, 8)
    rng = np.random.default_rng(SEED)
    samples = [[rng.standard_normal(shape, np.float32)] for _ in range(8)]
    inputs = (torch.from_numpy(samples[0][0]),)
    network = Network("one", nn.Sequential(module, product).eval(), inputs)
    model = quantised_model(network, float_model(network), samples)
    made_by = {name: node for node in model.graph.node for name in node.output}
    last = next(n for n in reversed(model.graph.node) if n.op_type in ("Conv", "MatMul", "Gemm"))
    quantised = made_by[last.input[0]].input[0]
    del model.graph.output[:]
    model.graph.output.append(
        onnx.helper.make_tensor_value_info(quantised, onnx.TensorProto.UINT8, value.shape)
    )
    onnx.save_model(model, path)


def computed(engine: str, path: Path, rows: list[np.ndarray]) -> list[np.ndarray]:
    """What an engine computes of each row."""
    if engine == "openvino":
        import openvino as ov

        compiled = ov.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return [np.asarray(compiled([row])[0]).copy() for row in rows]
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    if engine == "as it is written":
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options)
    name = session.get_inputs()[0].name
    return [session.run(None, {name: row})[0] for row in rows]


def main(arguments: Any = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=32, help="inputs of each network")
    count = parser.parse_args(arguments).rows
    torch.manual_seed(SEED)
    print(f"| operator | {' | '.join(ENGINES)} |\n| --- |{' --- |' * len(ENGINES)}")
    for name, module, shape in operators():
        rng = np.random.default_rng(SEED + 1)
        rows = [rng.standard_normal(shape, np.float32) for _ in range(count)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "one.onnx"
            quantised_file(path, module, shape)
            imported = import_network(load_network(str(path)))
            exact = np.stack([run_integers(imported, [row])[0] for row in rows]).astype(int)
            cells = []
            for engine in ENGINES:
                off = np.abs(np.stack(computed(engine, path, rows)).astype(int) - exact)
                share = np.count_nonzero(off) / off.size
                cells.append(f"{1e6 * share:.0f} of a million, by {off.max()}" if share else "0")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
