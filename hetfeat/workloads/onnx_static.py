"""ONNX models written anew for an importer: a newer opset, and what is constant as constants."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

OPSET = 17
"""Version of ONNX's operator set that older models are lifted to."""
KEPT = {"RandomNormal", "RandomUniform", "Bernoulli", "Multinomial", "Dropout", "DequantizeLinear"}
"""Operators that are not computed: what is drawn, and constants that stay integers."""


def static(model: "onnx.ModelProto", most_elements: int = 1_000_000) -> "onnx.ModelProto":
    """The model in a newer opset, with what does not depend on its inputs' values computed.

    Args:
        model: Model as its file has it.
        most_elements: Most elements of a constant that is computed; a million by default.
    """
    import onnx

    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), OPSET)
    if opset < OPSET:
        model = onnx.version_converter.convert_version(model, OPSET)
    before = -1
    while before != (before := len(model.graph.node)):  # a shape may hang on a folded constant
        model = _folded(onnx.shape_inference.infer_shapes(model, data_prop=True), most_elements)
    return model


def open_node(model: "onnx.ModelProto") -> str:
    """The first node of a model of `static` whose output has no known shape, or nothing."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    shapes = _known_shapes(inferred)
    for node in inferred.graph.node:
        if any(name and name not in shapes for name in node.output):
            name = f" '{node.name}'" if node.name else ""
            return f"node {node.op_type}{name} of {', '.join(filter(None, node.input))}"
    return ""


def _folded(model: "onnx.ModelProto", most_elements: int) -> "onnx.ModelProto":
    from onnx import numpy_helper

    shapes = _known_shapes(model)
    outputs = {value.name for value in model.graph.output}
    # Larger ones are weights, of which no shape is made.
    values = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if np.prod(tensor.dims) <= most_elements
    }
    kept = []
    for node in model.graph.node:
        computed = None if outputs & set(node.output) else _computed(model, node, values, shapes)
        if computed is None or any(np.size(value) > most_elements for value in computed.values()):
            kept.append(node)
            continue
        values |= computed
        model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in computed.items())
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def _computed(
    model: "onnx.ModelProto", node: Any, values: dict[str, Any], shapes: dict[str, list[int]]
) -> dict[str, Any] | None:
    """The outputs of a node whose inputs are constants, None where they are not all."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    if node.op_type == "Shape" and node.input[0] in shapes:
        values = values | {node.input[0]: np.zeros(shapes[node.input[0]], bool)}
    inputs = [name for name in node.input if name]
    constant = all(name in values for name in inputs)
    if not constant or node.domain or node.op_type in KEPT or _has_graph(node):
        return None
    names = [name for name in node.output if name]
    try:
        graph = helper.make_graph(
            [node],
            "one",
            [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(inputs)],
            [helper.make_empty_tensor_value_info(name) for name in names],
        )
        one = helper.make_model(graph, opset_imports=model.opset_import)
        computed = ReferenceEvaluator(one).run(names, {name: values[name] for name in inputs})
    except Exception:  # what cannot be computed here stays a node
        return None
    return {name: np.asarray(value) for name, value in zip(names, computed, strict=True)}


def _has_graph(node: Any) -> bool:
    return any(a.HasField("g") or a.graphs for a in node.attribute)


def _known_shapes(model: "onnx.ModelProto") -> dict[str, list[int]]:
    """The shapes of a model's values, where every size is known."""
    graph = model.graph
    shapes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
        if tensor.HasField("shape") and min(sizes, default=0) >= 0:
            shapes[value.name] = sizes
    return shapes
