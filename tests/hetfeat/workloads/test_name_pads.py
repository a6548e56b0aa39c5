"""ONNX's pads: those with one number become Relax's operator, others stay code."""

import numpy as np
import pytest
import quantised

pytestmark = pytest.mark.tvm

SIDES = [0, 0, 1, 2, 0, 0, 0, 3]


def named(pads, number=None, mode="constant"):
    """The operators of a network that pads, and the last call's attributes."""
    from tvm.relax.frontend.onnx import from_onnx

    from hetfeat.workloads.passes.integers import bindings
    from hetfeat.workloads.passes.name_pads import name_pads
    from hetfeat.workloads.passes.simplify import operator_of

    net = quantised.Qdq((1, 4, 8, 8))
    numbers = [] if number is None else [net.constant(np.float32(number))]
    value = net.node("Pad", "x", net.constant(np.array(pads)), *numbers, mode=mode)
    found = [
        one.value for one in bindings(name_pads(from_onnx(net.model(net.node("Relu", value)))))
    ]
    return [operator_of(call) for call in found], found[0].attrs


@pytest.mark.parametrize("number", [None, 0, -1.5])
def test_a_pad_with_one_number_is_the_operator(number):
    operators, attributes = named(SIDES, number)
    assert operators == ["relax.nn.pad", "relax.nn.relu"]
    assert [int(side) for side in attributes.pad_width] == [0, 0, 0, 0, 1, 0, 2, 3]
    assert float(attributes.pad_value) == (number or 0)


def test_a_mask_is_no_pad():
    """It chooses between what it reads and a number, too."""
    from tvm import relax, te, tirx

    from hetfeat.workloads.passes.integers import bindings
    from hetfeat.workloads.passes.name_pads import name_pads
    from hetfeat.workloads.passes.simplify import operator_of

    def lower_half(x):
        return te.compute(
            x.shape, lambda i, j: te.if_then_else(i >= j, x[i, j], tirx.FloatImm("float32", 0.0))
        )

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            masked = builder.emit_output(builder.emit_te(lower_half, x))
        builder.emit_func_output(masked)
    assert "relax.call_tir" in {operator_of(o.value) for o in bindings(name_pads(builder.get()))}


@pytest.mark.parametrize(("pads", "mode"), [(SIDES, "reflect"), (SIDES, "edge")])
def test_another_pad_stays_code(pads, mode):
    operators, _ = named(pads, mode=mode)
    assert operators == ["relax.call_tir", "relax.nn.relu"]
