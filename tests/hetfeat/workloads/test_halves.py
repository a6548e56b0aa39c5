"""Networks whose products are of float16: what is cast, and how far off that is."""

import numpy as np
import pytest
import torch
import tvm
from halves import Attention, Residual
from tvm import relax
from tvm.s_tir import Schedule

from hetfeat.deploy.precision import check_precision, need_half
from hetfeat.deploy.verify import OF_HALVES, reference_of, verify
from hetfeat.devices.presets import preset
from hetfeat.errors import RequestError
from hetfeat.packs.tasks import tasks_of_networks
from hetfeat.schedules.tensor_cores import multiplies_halves
from hetfeat.workloads.network import Network
from hetfeat.workloads.relax import (
    arguments,
    as_target,
    extract_tasks,
    import_network,
    in_layout,
    into_kernels,
)

pytestmark = [pytest.mark.slow, pytest.mark.tvm]

CPU = {"kind": "llvm", "mcpu": "haswell", "num-cores": 1}


def network_of(kind):
    torch.manual_seed(0)
    inputs = torch.randn(2, 24, 32) if kind is Attention else torch.randn(1, 3, 12, 12)
    return Network(kind.__name__.lower(), kind().eval(), (inputs,))


class Runs:
    """A module compiled for this CPU."""

    def __init__(self, module):
        compiled = tvm.compile(module, as_target(CPU))
        self._machine = relax.VirtualMachine(compiled, tvm.cpu())

    def run(self, inputs):
        given = [tvm.runtime.tensor(np.ascontiguousarray(value)) for value in inputs]
        made = self._machine["main"](*given)
        outputs = [made] if hasattr(made, "numpy") else list(made)
        return tuple(output.numpy() for output in outputs)


@pytest.mark.parametrize("kind", [Attention, Residual])
def test_a_network_in_halves_is_near_the_same_in_float32(kind):
    network, target = network_of(kind), as_target(CPU)
    imported = import_network(network)
    halved = in_layout(imported, target, half="float16")
    verified = verify(
        Runs(into_kernels(halved, target)), reference_of(network, 0, tolerance=OF_HALVES["float16"])
    )
    exact = verify(
        Runs(into_kernels(in_layout(imported, target), target)), reference_of(network, 0)
    )
    assert exact.max_abs_error < verified.max_abs_error <= verified.tolerance / 4


@pytest.mark.parametrize("kind", [Attention, Residual])
def test_products_read_float16_and_only_the_input_is_cast_by_a_kernel_of_its_own(kind):
    target = as_target(preset("nvidia-h100").target)
    imported = import_network(network_of(kind))
    kernels = []
    for half in ("float16", None):
        lowered = into_kernels(in_layout(imported, target, half=half), target)
        tasks = extract_tasks(lowered, target)
        products = [task for task in tasks if task.task.operator in ("matmul", "conv2d")]
        assert len(products) >= 3
        assert {multiplies_halves(Schedule(task.module)) for task in products} == {half is not None}
        kernels.append(sum(task.weight for task in tasks))
    assert kernels[0] <= kernels[1] + 1


def test_norms_and_softmax_store_what_products_read():
    target = as_target(preset("nvidia-h100").target)
    halved = in_layout(import_network(network_of(Attention)), target, half="float16")
    kernels = {name.name_hint for name in halved.get_global_vars()} - {"main"}
    assert {"softmax", "layer_norm"} <= kernels
    for name in ("softmax", "layer_norm"):
        *_, stored = arguments(tvm.IRModule({"main": halved[name]}))
        assert stored[1] == "float16"


def test_float16_has_no_winograd_and_slugs_of_its_own(monkeypatch):
    torch.manual_seed(0)
    network = Network("residual", Residual().eval(), (torch.randn(1, 3, 12, 12),))
    monkeypatch.setattr("hetfeat.packs.tasks.load_network", lambda *given: network)
    h100 = preset("nvidia-h100")
    halves, floats = (tasks_of_networks(["n"], h100, of) for of in ("float16", "float32"))
    assert list(halves.networks) == ["residual_float16"]
    assert not any("winograd" in task.operator for task in halves.tasks.values())
    assert any("winograd" in task.operator for task in floats.tasks.values())
    assert not set(halves.tasks) & {t for t in floats.tasks if floats.tasks[t].operator == "conv2d"}


@pytest.mark.parametrize("name", ["nvidia-t4", "x86-8-cores"])
def test_float16_is_for_gpus_with_such_tensor_cores(name):
    profile = preset(name)
    with pytest.raises(RequestError, match=r"float16 on '.*'.*an NVIDIA GPU of sm_80 or later"):
        need_half("float16", name, profile.target)
    need_half("float32", name, profile.target)


def test_float16_takes_no_calibration_data():
    check_precision("float16", None, 2)
    with pytest.raises(RequestError, match="calibration data for int8"):
        check_precision("float16", "data.npz", 1)
