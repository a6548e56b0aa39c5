"""ResNet-18 as an ONNX file with drawn weights: a real network where none is at hand.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1; normalization is left
out, since inference folds it into the convolutions before it.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hetfeat.durable import write_file

CHANNELS = (64, 128, 256, 512)
BLOCKS = 2
CLASSES = 1000
OPSET, IR_VERSION = 17, 8


class _GraphWriter:
    """Nodes and weights, added from the input to the output."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        """Adds a node; returns the name of its output."""
        from onnx import helper

        output = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def weight(self, shape: tuple[int, ...], deviation: float) -> str:
        """Adds normally distributed float32 weights of a shape; returns their name."""
        from onnx import numpy_helper

        name = f"weight_{len(self.weights)}"
        values = self.rng.normal(0.0, deviation, shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def convolution(self, x: str, channels: int, outputs: int, kernel: int, stride: int) -> str:
        """Adds a convolution with bias that keeps the size but for the stride."""
        deviation = math.sqrt(2 / (channels * kernel * kernel))
        weight = self.weight((outputs, channels, kernel, kernel), deviation)
        bias = self.weight((outputs,), 0.1)
        pads = [kernel // 2] * 4
        return self.add("Conv", [x, weight, bias], strides=[stride, stride], pads=pads)

    def block(self, x: str, channels: int, outputs: int, stride: int) -> str:
        """Adds two 3x3 convolutions beside a shortcut."""
        inner = self.add("Relu", [self.convolution(x, channels, outputs, 3, stride)])
        residual = self.convolution(inner, outputs, outputs, 3, 1)
        is_same = channels == outputs and stride == 1
        shortcut = x if is_same else self.convolution(x, channels, outputs, 1, stride)
        return self.add("Relu", [self.add("Add", [residual, shortcut])])


def write_resnet18(
    path: Path, seed: int = 0, side: int = 224, stages: Sequence[int] = CHANNELS
) -> None:
    """Writes ResNet-18 with weights drawn by a seed (47 MB).

    Args:
        path: Path of the ONNX file.
        seed: Seed of the weights, default 0.
        side: Height and width of the image in pixels, default 224.
        stages: Number of channels of each stage, default those of ResNet-18; fewer make a smaller
            network.
    """
    from onnx import TensorProto, helper

    graph = _GraphWriter(seed)
    x = graph.add("Relu", [graph.convolution("image", 3, stages[0], 7, 2)])
    x = graph.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    before = stages[0]
    for stage, channels in enumerate(stages):
        for number in range(BLOCKS):
            x = graph.block(x, before, channels, 2 if stage and not number else 1)
            before = channels
    x = graph.add("Flatten", [graph.add("GlobalAveragePool", [x])])
    weight = graph.weight((CLASSES, before), 1 / math.sqrt(before))
    x = graph.add("Gemm", [x, weight, graph.weight((CLASSES,), 0.1)], transB=1)
    made = helper.make_graph(
        graph.nodes,
        "resnet18",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, side, side])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, CLASSES])],
        graph.weights,
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(made, opset_imports=[opset], ir_version=IR_VERSION)
    write_file(path, model.SerializeToString())
