"""The profiles of known devices: complete, with their sources, and of targets that TVM reads."""

import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from hetfeat.devices.nvidia import multiprocessor
from hetfeat.devices.presets import preset, preset_names
from hetfeat.devices.probe import find_profile
from hetfeat.errors import RequestError
from hetfeat.measure.local import LocalMeasurer

PAPER = (
    "intel-xeon-platinum-8272cl",
    "amd-epyc-7452",
    "aws-graviton2",
    "nvidia-t4",
    "nvidia-rtx-2080",
    "nvidia-a100",
    "nvidia-a40",
    "intel-xeon-gold-5115",
)
"""Table 1."""
NVIDIA = {p.target["arch"]: p for p in map(preset, preset_names()) if p.family == "gpu-nvidia"}
"""One of each architecture."""
OF_CPUS = {"num_cores", "vector_unit_bytes", "cache_line_bytes"}
OF_GPUS = {
    "vector_unit_bytes",
    "cache_line_bytes",
    "max_shared_memory_per_block_bytes",
    "max_local_memory_per_block_bytes",
    "max_threads_per_block",
    "max_vthread_extent",
    "warp_size",
}
ELF_MACHINES = {"cpu-x86": 62, "cpu-arm": 183}
TABLE_2 = OF_CPUS | OF_GPUS
MEASURED = ("peak_gflops", "scalar_gflops", "bandwidth_gb_s", "l1_gb_s", "fork_join_us")


def test_the_paper_s_devices_are_there():
    assert set(PAPER) < set(preset_names())


@pytest.mark.parametrize("name", preset_names())
class TestPreset:
    def test_it_has_the_parameters_of_its_class_and_their_source(self, name):
        found = preset(name)
        assert found.name == name
        has = {parameter for parameter in TABLE_2 if getattr(found, parameter) is not None}
        assert has == (OF_GPUS if found.family.startswith("gpu") else OF_CPUS)
        assert found.threads == (found.num_cores or 1)
        assert "Parameters: " in found.source

    def test_the_multiprocessors_of_its_architecture_are_known(self, name):
        found = preset(name)
        assert (multiprocessor(found.target) is not None) == (found.family == "gpu-nvidia")

    def test_no_figure_passes_for_measured(self, name):
        found = preset(name)
        assert not any(getattr(found, figure) for figure in MEASURED)
        if found.datasheet_gflops or found.datasheet_gb_s:
            assert "data sheet" in found.source or "Amazon's page" in found.source

    @pytest.mark.tvm
    def test_tvm_reads_its_target(self, name):
        from tvm.target import Target

        found = preset(name)
        target = Target(dict(found.target))
        assert target.kind.name == found.target["kind"]
        for key, value in found.target.items():
            if key != "kind":
                assert target.attrs[key] == value

    def test_it_is_found_by_name_and_not_measured_here(self, name):
        with pytest.raises(RequestError, match="route is local"):
            LocalMeasurer(find_profile(name))


@pytest.mark.parametrize("name", ["amd-radeon-pro-w6600", "apple-metal"])
def test_another_maker_s_gpu_is_not_measured_here_either(name):
    """Whatever its route says: the programs would be timed on this CPU."""
    here = replace(preset(name), route={"kind": "local"})
    with pytest.raises(RequestError, match=r"target is \w+; expected a CPU"):
        LocalMeasurer(here)


@pytest.fixture(scope="module")
def network():
    """A small network as a Relax module."""
    from hetfeat.workloads.networks import load_network
    from hetfeat.workloads.relax import import_network

    return import_network(load_network("nets:tiny", 1))


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize("name", [n for n in PAPER if preset(n).family.startswith("cpu")])
def test_a_program_of_its_design_space_is_built_for_a_cpu_of_the_paper(name, network, tmp_path):
    import tvm

    from hetfeat.schedules.design_space import TaskSpace, replay
    from hetfeat.workloads.relax import as_target, extract_tasks, lower

    found = preset(name)
    target = as_target(found.target)
    task = next(t for t in extract_tasks(lower(network, target), target) if t.task.flops > 1e5)
    ((trace, _),) = TaskSpace(task.module, target, found.cache_line_bytes).sample(1, seed=0)
    built = tvm.compile(replay(task.module, trace).mod, target).mod
    built.write_to_file(str(tmp_path / "kernel.o"))
    header = (tmp_path / "kernel.o").read_bytes()[:20]
    assert int.from_bytes(header[18:], "little") == ELF_MACHINES[found.family]


def compiled(network, found):
    """A network compiled for a GPU, and the source of its kernels."""
    from hetfeat.deploy.compile import compile_network
    from hetfeat.workloads.relax import as_target, lower

    made = compile_network(lower(network, as_target(found.target)), found, [], {}).executable
    (host,) = made.mod.imports
    (kernels,) = host.imports
    assert kernels.kind == "cuda"
    return made, kernels.inspect_source()


@pytest.mark.tvm
@pytest.mark.parametrize("name", [n for n in PAPER if preset(n).family.startswith("gpu")])
def test_kernels_are_generated_for_a_gpu_of_the_paper(name, network):
    _, source = compiled(network, preset(name))
    assert source.count("__launch_bounds__") >= 4  # declared and defined


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize("arch", sorted(NVIDIA))
def test_a_kernel_is_compiled_for_an_nvidia_gpu(arch):
    """By nvcc, if it is here and knows the GPU: 13 begins at sm_75, and of older ones the source
    has to do."""
    from hetfeat.deploy.cuda import compile_kernels
    from hetfeat.workloads.networks import load_network
    from hetfeat.workloads.relax import import_network

    made, source = compiled(import_network(load_network("nets:dense")), NVIDIA[arch])
    assert "__launch_bounds__" in source
    if arch in known_to_nvcc():
        kernels = compile_kernels(made, NVIDIA[arch].target)
        assert re.findall(rb"\.target (sm_\d+)", kernels) == [arch.encode()]


def known_to_nvcc() -> list[str]:
    if shutil.which("nvcc") is None:
        return []
    line = ["nvcc", "--list-gpu-code"]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()


def test_there_is_no_other():
    assert preset("../presets/nvidia-t4") is None
