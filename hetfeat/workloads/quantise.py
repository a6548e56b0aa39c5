"""Networks of float32 quantised to 8 bits by ONNX Runtime's quantiser, and what that changes."""

import logging
import math
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetfeat.errors import RequestError
from hetfeat.workloads.example_inputs import computed, named_inputs
from hetfeat.workloads.library_errors import refusals
from hetfeat.workloads.network import Network
from hetfeat.workloads.quantised_onnx import check_quantised, is_quantised

if TYPE_CHECKING:
    import onnx

Array = npt.NDArray[Any]
Sample = Sequence[Array]
"""An array for each input of a network."""

OF_ONE_ROUNDING = ("Add", "Conv", "Gemm", "MatMul")
"""Operators whose inputs are quantised, and whose output is once it was added to and cut off."""
QUANTISED_OPERATORS = (
    *OF_ONE_ROUNDING,
    *("Concat", "Flatten", "GlobalAveragePool", "MaxPool"),
    *("Reshape", "Squeeze", "Transpose", "Unsqueeze"),
)
"""What is computed in integers where it is quantised; all else stays in float32."""


def float_model(network: Network) -> "onnx.ModelProto":
    """A network of float32 as an ONNX model, folded as far as its quantiser likes it.

    Raises:
        RequestError: It is quantised already, of TFLite, or ONNX Runtime refuses it.
    """
    import onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with _refusals(network), tempfile.TemporaryDirectory() as folder:
        exported, path = (Path(folder) / f"{name}.onnx" for name in ("exported", "prepared"))
        _write_onnx(network, exported)
        quant_pre_process(exported, path, skip_symbolic_shape=True)
        model = onnx.load_model(path)
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{number}"
    return model


def quantised_model(
    network: Network, model: "onnx.ModelProto", samples: Sequence[Sample]
) -> "onnx.ModelProto":
    """The model with QuantizeLinear and DequantizeLinear: weights int8, tensors uint8.

    Args:
        network: Network that the model is of.
        model: Model from `float_model`.
        samples: Inputs from which the ranges of its tensors are taken.

    Raises:
        RequestError: ONNX Runtime refuses it, or nothing of it can be quantised.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_static

    with _refusals(network), tempfile.TemporaryDirectory() as folder:
        source, goal = (Path(folder) / f"{name}.onnx" for name in ("float", "quantised"))
        source.write_bytes(model.SerializeToString())  # a model in memory would be changed
        quantize_static(
            source,
            goal,
            _Reader(model, samples),
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=list(QUANTISED_OPERATORS),
            nodes_to_exclude=list(_kept_in_float(model)),
            extra_options={"OpTypesToExcludeOutputQuantization": list(OF_ONE_ROUNDING)},
        )
        made = onnx.load_model(goal)
    if not is_quantised(made):
        raise RequestError(
            f"network '{network.name}' with nothing to quantise",
            "convolutions or matrix products",
            "leave --precision out",
        )
    check_quantised(made, network.name)
    return made


def worst_layers(
    model: "onnx.ModelProto", made: "onnx.ModelProto", samples: Sequence[Sample], most: int = 5
) -> list[tuple[str, float]]:
    """The tensors that quantising changes most, and their signal-to-noise ratio in decibels.

    Args:
        model: Model from `float_model`.
        made: The same, from `quantised_model`.
        samples: Inputs on which both are compared; all tensors of both are held.
        most: Most tensors that are named, 5 by default.
    """
    from onnxruntime.quantization import qdq_loss_debug

    feeds = list(_feeds(model, samples))
    with tempfile.TemporaryDirectory() as folder:
        tensors = []
        for name, of in (("float", model), ("quantised", made)):
            plain, telling = (Path(folder) / f"{name}{end}.onnx" for end in ("", "_telling"))
            plain.write_bytes(of.SerializeToString())
            qdq_loss_debug.modify_model_output_intermediate_tensors(plain, telling)
            tensors.append(qdq_loss_debug.collect_activations(str(telling), feeds))
    pairs = qdq_loss_debug.create_activation_matching(tensors[1], tensors[0])
    known = {name: of for name, of in pairs.items() if "float" in of}
    errors = qdq_loss_debug.compute_activation_error(known)
    ratios = ((float(of["xmodel_err"]), name) for name, of in errors.items())
    worst = sorted(pair for pair in ratios if math.isfinite(pair[0]))  # a mask may be infinite
    return [(name, round(ratio, 2)) for ratio, name in worst[:most]]


@contextmanager
def _refusals(network: Network) -> Iterator[None]:
    """The quantiser's errors as ours, and none of its handlers left on the root logger."""
    root = logging.getLogger()
    before = root.handlers[:]
    try:
        with refusals(
            network.name,
            "which ONNX Runtime does not quantise",
            "operators of float32 that ONNX has",
            "leave --precision out",
        ):
            yield
    finally:
        root.handlers[:] = before


def _write_onnx(network: Network, path: Path) -> None:
    """Writes a network to a file: of a model in memory, ONNX Runtime takes the weights out."""
    if network.kind == "TFLite" or (network.onnx is not None and is_quantised(network.onnx)):
        raise RequestError(
            f"network '{network.name}', {'a' if network.kind == 'TFLite' else 'a quantised'} "
            f"{network.kind} model, to be quantised",
            "a network of float32, of torch or ONNX",
            "leave --precision out",
        )
    if network.onnx is not None:
        path.write_bytes(network.onnx.SerializeToString())
        return
    import torch

    outputs = network.output_names(len(computed(network, network.arrays())))
    names = [name or f"input_{n}" for n, (name, _) in enumerate(named_inputs(network))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The TorchScript exporter: the newer one needs a further package.
        torch.onnx.export(
            network.module,
            network.inputs,
            path,
            dynamo=False,
            input_names=names,
            output_names=list(outputs),
        )


def _kept_in_float(model: "onnx.ModelProto") -> Iterator[str]:
    """Sums whose terms need more than 8 bits: of a constant, and of what is normalised later.

    A transformer adds to the same numbers in each layer; a few of them grow far beyond the others.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    normalises = any(node.op_type == "LayerNormalization" for node in model.graph.node)
    for node in model.graph.node:
        if node.op_type == "Add" and (normalises or constants.intersection(node.input)):
            yield node.name


def _feeds(model: "onnx.ModelProto", samples: Sequence[Sample]) -> Iterator[dict[str, Array]]:
    weights = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in weights]
    for sample in samples:
        yield dict(zip(names, map(np.ascontiguousarray, sample), strict=True))


class _Reader:
    """Inputs as ONNX Runtime's quantiser asks for them: one after another, then None."""

    def __init__(self, model: "onnx.ModelProto", samples: Sequence[Sample]) -> None:
        self._left = _feeds(model, samples)

    def get_next(self) -> dict[str, Array] | None:
        return next(self._left, None)
