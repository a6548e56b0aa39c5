"""Deploying to 64-bit Arm: built here, measured and verified in an emulated user space.

`make test-arm`; whatever is timed there is the emulator's doing, and no result.
"""

import json
import shutil
import subprocess
from functools import partial
from pathlib import Path

import digested
import fleets
import numpy as np
import pytest
from integer_networks import compiled_by_sketches, imported, on_arm

from hetfeat.dataset.store import RecordStore
from hetfeat.devices.profile import DeviceProfile, save_profile
from hetfeat.devices.target import linker
from hetfeat.measure import factory
from hetfeat.measure.remote.measurer import RemoteMeasurer, RemoteOptions
from hetfeat.measure.remote.session import SessionOptions
from registry.jobs.deploy import DeployJob, deploy_and_register

pytestmark = [pytest.mark.arm, pytest.mark.tvm, pytest.mark.timeout(3600)]

TOOLS = ("qemu-aarch64-static", "aarch64-linux-gnu-g++")
THREADS = 2
START_S = 300.0
"""Importing TVM takes half a minute there, beside other work more."""
OPTIONS = RemoteOptions(session=SessionOptions(run_timeout_s=100.0))
"""A bad program of ResNet-18 takes longer there than the 15 s that a device has."""


@pytest.fixture(scope="module")
def arm_python(project: Path) -> str:
    """The Arm's Python, of the root that `make test-arm` makes."""
    python = str(project / ".arm" / "python")
    lacking = [name for name in (*TOOLS, python) if not shutil.which(name)]
    if lacking:
        pytest.skip(f"no {', no '.join(lacking)}: docs/arm.md says how to get them")
    return python


@pytest.fixture(scope="module")
def arm(arm_python: str):
    """The profile of an emulated Arm, behind a tracker that knows a server in it."""
    with fleets.fleet() as fleet:
        fleet.start_server(THREADS, wait=False, python=arm_python)
        fleets.wait_until(lambda: fleet.servers_known() > 0, START_S)
        yield DeviceProfile(
            name="emulated-arm",
            family="cpu-arm",
            target={"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": THREADS},
            threads=THREADS,
            num_cores=THREADS,
            vector_unit_bytes=16,
            source="QEMU on another processor: its times say nothing of an Arm",
            route={"kind": "rpc", "key": fleet.key, "tracker": str(fleet.tracker)},
        )


@pytest.mark.parametrize(("network", "trials"), [("bert_tiny", 8), ("resnet18", 4)])
def test_a_network_is_deployed(
    network, trials, arm, arm_python, registry_here, child_environment, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", child_environment["PYTHONPATH"])
    monkeypatch.setattr(factory, "RemoteMeasurer", partial(RemoteMeasurer, options=OPTIONS))
    save_profile(arm, registry_here / "arm.yaml")
    job = DeployJob(network, registry_here / "bundle", device="arm.yaml", trials=trials)
    report = deploy_and_register(job).report
    records = RecordStore.open(registry_here / "bundle.journal").read(["device"])
    assert len(records) == report.trials == trials
    assert set(records["device"].to_pylist()) == {"emulated-arm"}
    assert report.failed < trials
    assert 0 < report.max_abs_error <= report.tolerance
    library = (registry_here / "bundle" / "lib_1.so").read_bytes()
    assert library[18:20] == b"\xb7\x00"  # ELF's e_machine of AArch64
    done = subprocess.run(
        [arm_python, registry_here / "bundle" / "run.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


RUN = """
import sys
import numpy
import tvm
from tvm import relax
for name in sys.argv[1:]:
    given = numpy.load(f"{name}.npz")
    parameters = [tvm.runtime.tensor(given[key]) for key in given.files if key != "inputs"]
    main = relax.VirtualMachine(tvm.runtime.load_module(f"{name}.so"), tvm.cpu())["main"]
    outputs = []
    for value in given["inputs"]:
        found = main(tvm.runtime.tensor(value), *parameters)
        outputs += [found] if hasattr(found, "numpy") else [*found]
    numpy.savez(f"{name}-out.npz", *[output.numpy() for output in outputs])
"""


@pytest.mark.parametrize("cpu", ["cortex-a53", "cortex-a76", "neoverse-n2"])
def test_integers_have_the_bits_of_every_other_cpu(cpu, arm_python, tmp_path):
    """By NEON alone, by `sdot`, and by `usdot`."""
    committed, folder, sketched = json.loads(digested.COMMITTED.read_text()), tmp_path, 0
    for name, make in digested.NETWORKS.items():
        model = make()
        made, count = compiled_by_sketches(imported(model), on_arm(cpu))
        sketched += count
        made.executable.export_library(str(folder / f"{name}.so"), fcompile=linker(on_arm(cpu)))
        inputs = np.stack([*digested.inputs_of(model, digested.INPUTS)])
        np.savez(folder / f"{name}.npz", *made.parameters, inputs=inputs)
    assert (sketched > 0) == (cpu != "cortex-a53")
    script = folder / "run.py"
    script.write_text(RUN)
    subprocess.run([arm_python, script, *committed], cwd=folder, check=True)
    found = {}
    for name in committed:
        with np.load(folder / f"{name}-out.npz") as outputs:
            found[name] = digested.of_outputs(outputs[key] for key in outputs.files)
    assert found == committed
