"""Verification against the framework refuses whatever is not the network's own output."""

from types import SimpleNamespace

import pytest
import torch
from nets import tiny

from hetfeat.deploy.verify import (
    reference_of,
    rows_are_independent,
    verify,
)
from hetfeat.errors import WorkFailed
from hetfeat.workloads.network import Network

RANDOM_INPUTS = 3


@pytest.fixture(scope="module")
def network():
    module, inputs = tiny(1)
    return Network("tiny", module.eval(), inputs)


def compiled(network, change, from_call=0):
    """A bundle that computes the network, its output changed from one call on."""
    calls = []

    def run(inputs):
        calls.append(inputs)
        with torch.inference_mode():
            output = network.module(*map(torch.from_numpy, inputs)).numpy().copy()
        if len(calls) > from_call:
            change(output)
        return output

    return SimpleNamespace(run=run, calls=calls)


def test_the_same_output_passes(network):
    loaded = compiled(network, lambda output: None)
    found = verify(loaded, reference_of(network, seed=0, random_inputs=RANDOM_INPUTS))
    assert found.max_abs_error == 0.0 < found.tolerance
    assert len(loaded.calls) == RANDOM_INPUTS + 1


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_an_output_that_no_input_changes_is_told(network, scale):
    module = torch.nn.Sequential(network.module, torch.nn.Linear(10, 4)).eval()
    torch.nn.init.constant_(module[1].weight, scale)
    headed = Network("headed", module, network.inputs)
    assert reference_of(headed, seed=0).tells == (scale != 0)


@pytest.mark.parametrize("wrong", [0.1, float("nan"), float("inf")])
@pytest.mark.parametrize("from_call", [0, RANDOM_INPUTS])
def test_one_wrong_element_on_any_input_is_refused(network, wrong, from_call):
    def change(output):
        output[0, 3] += wrong

    with pytest.raises(WorkFailed, match="off by"):
        verify(
            compiled(network, change, from_call),
            reference_of(network, seed=0, random_inputs=RANDOM_INPUTS),
        )


class Computing(torch.nn.Module):
    """A network of one function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def one_row_alone(x):
    assert len(x) == 1
    return x * 2


@pytest.mark.parametrize(
    ("function", "row", "independent"),
    [
        (lambda x: x * 2, torch.ones(1, 4), True),
        (lambda x: x - x.mean(0), torch.ones(1, 4), False),
        (lambda x: (x * x.amax(0)).float(), torch.ones(1, 4, dtype=torch.int64), True),
        (lambda x: (x - x.amax(0)).float(), torch.zeros(1, 4, dtype=torch.int64), False),
        (one_row_alone, torch.ones(1, 4), True),
    ],
)
def test_of_one_row_its_framework_tells_whether_it_stands_alone(function, row, independent):
    network = Network("n", Computing(function), (row,))
    loaded = compiled(network, lambda output: None)
    assert rows_are_independent(loaded, reference_of(network, 0), 1) == independent


def test_a_network_may_return_its_output_by_name():
    network = Network("n", Computing(lambda x: {"logits": x * 2}), (torch.ones(1, 4),))
    plain = Network("n", Computing(lambda x: x * 2), network.inputs)
    reference = reference_of(network, seed=0)
    assert verify(compiled(plain, lambda output: None), reference).max_abs_error == 0
