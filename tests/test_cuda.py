"""Bundles for NVIDIA GPUs, made where there may be none: what is in them, and who is refused."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys

import pytest

from hetfeat.deploy import bundle
from hetfeat.deploy.tvm import compile_network
from hetfeat.deploy.verify import sample_of
from hetfeat.devices.presets import preset
from hetfeat.errors import WorkFailed
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.tvm import as_target, import_network, lower

pytestmark = [pytest.mark.slow, pytest.mark.tvm]

FATBIN, ELF_MACHINE_OF_CUDA = bytes.fromhex("50ed55ba"), 190


@pytest.fixture(scope="module", autouse=True)
def nvcc():
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc on the path")


@pytest.fixture(scope="module")
def network():
    return load_network("nets:tiny", 1)


def written(folder, network, arch):
    """A bundle for a GPU of an architecture."""
    t4 = preset("nvidia-t4")
    profile = dataclasses.replace(t4, target=t4.target | {"arch": arch})
    lowered = lower(import_network(network), as_target(profile.target))
    compiled = compile_network(lowered, profile, [], {})
    variant = bundle.Variant(1, compiled.executable, compiled.parameters)
    bundle.write_bundle(folder, [variant], profile, sample_of(network), {})
    return folder


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_a_bundle_holds_machine_code_and_ptx_of_the_architecture(network, tmp_path, arch):
    made = written(tmp_path / "bundle", network, arch)
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
    import tvm

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
