"""NVIDIA GPUs, where there may be none: programs for them, bundles, and who is refused."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tvm

from hetfeat.dataset.schema import FEATURES_PER_STORE
from hetfeat.deploy import bundle
from hetfeat.deploy.compile import KEEP_SOURCE, compile_network
from hetfeat.deploy.verify import sample_of
from hetfeat.devices.cuda import gpu_profile
from hetfeat.devices.presets import preset
from hetfeat.devices.profile import save_profile
from hetfeat.errors import RequestError, WorkFailed
from hetfeat.measure.elsewhere import GpuMeasurer
from hetfeat.records import Program
from hetfeat.schedules.design_space import TaskSpace, replay
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.relax import as_target, extract_tasks, import_network, lower, save_workload

pytestmark = [pytest.mark.slow, pytest.mark.tvm]

FATBIN, ELF_MACHINE_OF_CUDA = bytes.fromhex("50ed55ba"), 190


@pytest.fixture(scope="module", autouse=True)
def nvcc():
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc on the path")


@pytest.fixture(scope="module")
def network():
    return load_network("nets:tiny", 1)


def profile_of(arch):
    t4 = preset("nvidia-t4")
    return dataclasses.replace(t4, target=t4.target | {"arch": arch}, route={"kind": "local"})


def written(folder, network, arch, tasks=(), programs=None):
    """A bundle for a GPU of an architecture."""
    profile = profile_of(arch)
    lowered = lower(import_network(network), as_target(profile.target))
    compiled = compile_network(lowered, profile, tasks, programs or {})
    variant = bundle.Variant(1, compiled.executable, compiled.parameters)
    bundle.write_bundle(folder, [variant], profile, sample_of(network), {})
    return folder


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_a_bundle_holds_machine_code_and_ptx_of_the_architecture(network, tmp_path, arch):
    made = written(tmp_path / "bundle", network, arch)
    assert KEEP_SOURCE not in os.environ  # children that measure compile theirs
    kernels = (made / "lib_1.fatbin").read_bytes()
    assert kernels.startswith(FATBIN)
    ptx = re.findall(rb"\.target (sm_\d+)", kernels)
    assert ptx == [arch.encode()]
    codes = [found.start() for found in re.finditer(b"\x7fELF", kernels)]
    machines = [int.from_bytes(kernels[at + 18 : at + 20], "little") for at in codes]
    assert machines == [ELF_MACHINE_OF_CUDA]
    # The library launches by name what the machine code and the PTX both define.
    called = set(re.findall(rb"\w+_kernel\b", (made / "lib_1.so").read_bytes()))
    entries = re.findall(rb"\.entry (\w+)", kernels)
    assert len(entries) >= 3
    assert all(name in called and b".text." + name in kernels for name in entries)
    assert "lib_1.fatbin" in json.loads((made / "bundle.json").read_text())["files"]


def test_without_a_gpu_a_sentence_refuses_it(network, tmp_path):
    if tvm.cuda().exist:
        pytest.skip("there is a GPU")
    made = written(tmp_path / "bundle", network, "sm_75")
    done = subprocess.run(
        [sys.executable, made / "run.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "on no NVIDIA GPU; expected a GPU of sm_75 or later" in done.stderr


def test_an_architecture_that_nvcc_does_not_know(network, tmp_path):
    with pytest.raises(WorkFailed, match=r"kernels for sm_20 .*compute_20"):
        written(tmp_path / "bundle", network, "sm_20")
    assert not (tmp_path / "bundle").exists()


def proposed(network, arch):
    """The tasks of a network, and by hash a few programs of each."""
    target = as_target(profile_of(arch).target)
    tasks = extract_tasks(lower(import_network(network), target), target)
    spaces = {task.task.hash: TaskSpace(task.module, target, 64) for task in tasks}
    return tasks, {name: list(space.sample(4, seed=0)) for name, space in spaces.items()}


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_programs_that_are_proposed_for_a_gpu_bind_its_threads(network, arch):
    tasks, programs = proposed(network, arch)
    for task in tasks:
        found = programs[task.task.hash]
        assert found
        for trace, features in found:
            assert features.shape[1] == FEATURES_PER_STORE
            assert np.isfinite(features).all()
            module = replay(task.module, trace).mod
            bound = re.findall(r'thread="(threadIdx.\w)"', module.script())
            assert bound


def test_chosen_programs_are_the_kernels_of_a_bundle(network, tmp_path):
    tasks, programs = proposed(network, "sm_75")
    chosen = {task.task.hash: Program(task.task, *programs[task.task.hash][0]) for task in tasks}
    made = written(tmp_path / "tuned", network, "sm_75", tasks, chosen)
    plain = written(tmp_path / "plain", network, "sm_75")
    kernels = [(folder / "lib_1.fatbin").read_bytes() for folder in (made, plain)]
    entries = [set(re.findall(rb"\.entry (\w+)", each)) for each in kernels]
    assert entries[0]
    assert kernels[0] != kernels[1]
    called = set(re.findall(rb"\w+_kernel\b", (made / "lib_1.so").read_bytes()))
    assert called == entries[0]


def test_a_machine_without_a_gpu_measures_nothing_on_one():
    if tvm.cuda().exist:
        pytest.skip("there is a GPU")
    with pytest.raises(RequestError, match=r"a machine without a GPU .* libcudart\.so\.13"):
        GpuMeasurer(profile_of("sm_75"))


@pytest.fixture(scope="module")
def gpu():
    """The profile of this machine's GPU."""
    if not tvm.cuda().exist:
        pytest.skip("no GPU")
    return gpu_profile()


def test_programs_are_measured_on_the_gpu_and_one_that_fails_costs_itself(network, gpu):
    target = as_target(gpu.target)
    tasks = extract_tasks(lower(import_network(network), target), target)
    with GpuMeasurer(gpu) as measurer:
        for task in tasks:
            measurer.add_task(task.task, save_workload(task.module))
            programs = measurer.sample(task.task, 4, 0)
            broken = dataclasses.replace(programs[0], trace="[[],[]]")
            *found, lost = measurer.measure([*programs, broken])
            assert all(len(each.latencies_s) >= 1 for each in found)
            assert lost.error
            (cold,) = measurer.measure_each(programs[:1], cold=True)
            assert cold.latency_s > 0


def test_a_tuned_bundle_computes_on_the_gpu_what_it_should(
    gpu, hetfeat_command, child_environment, tmp_path
):
    save_profile(gpu, tmp_path / "gpu.yaml")
    command = [*hetfeat_command, "deploy", "--network", "nets:tiny", "--trials", "32", "--json"]
    command += ["--device", "gpu.yaml", "--out", "bundle"]
    told = {"cwd": tmp_path, "env": child_environment, "capture_output": True, "text": True}
    done = subprocess.run(command, **told)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["max_abs_error"] <= report["tolerance"]
    assert set(report["peers_ms"]) >= {"torch", "torch_compile"}
