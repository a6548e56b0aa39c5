"""Bundles of float16 for NVIDIA GPUs, where there may be none."""

import dataclasses
import re
import shutil

import pytest
import torch
import tvm
from halves import Attention, multiplications_on_tensor_cores

from hetfeat import deploy_network
from hetfeat.deploy import bundle
from hetfeat.deploy.compile import compile_network
from hetfeat.deploy.lowered import lower_networks
from hetfeat.deploy.request import DeployRequest, Imported
from hetfeat.devices.cuda import gpu_profile
from hetfeat.devices.presets import preset
from hetfeat.errors import RequestError
from hetfeat.records import Program
from hetfeat.schedules.design_space import TaskSpace
from hetfeat.workloads.network import Network
from hetfeat.workloads.relax import as_target, extract_tasks, into_kernels

pytestmark = [pytest.mark.slow, pytest.mark.tvm]


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return Network("attention", Attention().eval(), (torch.randn(2, 32, 32),))


def test_a_bundle_has_the_kernels_of_tensor_cores_that_were_chosen(network, tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc on the path")
    h100 = dataclasses.replace(preset("nvidia-h100"), route={"kind": "local"})
    request = DeployRequest("attention", "attention_float16", (1,), "h100", None, "quick", 0, 0)
    half = dataclasses.replace(request, precision="float16")
    given = [Imported.of(1, network)]
    lowered, exact = (lower_networks(of, given, h100) for of in (half, request))
    of_half, of_float = (of.references[0].samples[0].outputs[0] for of in (lowered, exact))
    assert of_half.tolerance > 10 * of_float.tolerance
    assert (of_half.value == of_float.value).all()
    target = as_target(h100.target)
    kernels = into_kernels(lowered.modules[0], target)
    tasks = extract_tasks(kernels, target)
    chosen = {}
    for task in tasks:
        for program in TaskSpace(task.module, target, 64).sample(1, seed=0):
            chosen[task.task.hash] = Program(task.task, *program)
    compiled = compile_network(kernels, h100, tasks, chosen)
    assert {str(value.dtype) for value in compiled.parameters} == {"float16", "float32"}
    variant = bundle.Variant(1, compiled.executable, compiled.parameters)
    bundle.write_bundle(tmp_path / "b", [variant], h100, lowered.references[0].samples[0], {})
    made = (tmp_path / "b/lib_1.fatbin").read_bytes()
    (code,) = [made[found.start() :] for found in re.finditer(b"\x7fELF", made)]
    assert multiplications_on_tensor_cores(code) > 0


def test_an_x86_without_f16c_is_refused_float16(network):
    with pytest.raises(RequestError, match="float16 on 'x86-8-cores', of llvm"):
        deploy_network(network, "x86-8-cores", model="none", precision="float16")


def test_a_network_in_float16_computes_on_the_gpu_what_it_should(network, tmp_path):
    if not tvm.cuda().exist:
        pytest.skip("no GPU")
    made = deploy_network(
        network, gpu_profile(), model="none", trials=32, precision="float16", out=tmp_path / "b"
    )
    assert made.report.max_abs_error <= made.report.tolerance
    assert made.report.precision == "float16"
