"""Deploying to a device behind a tracker: tuned, verified and timed there, compiled here."""

import dataclasses
import shutil
import subprocess
import sys

import fleets
import numpy as np
import pytest
from small_deploys import deploy_small

from hetfeat.dataset import sidecar_files
from hetfeat.dataset.store import RecordStore
from hetfeat.deploy import bundle
from hetfeat.deploy.compile import compile_network
from hetfeat.deploy.remote import device as remote
from hetfeat.deploy.verify import sample_of
from hetfeat.devices.profile import save_profile
from hetfeat.errors import WorkFailed
from hetfeat.measure.base import DeviceLost
from hetfeat.measure.remote import session
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.relax import as_target, import_network, lower
from registry.jobs.deploy import DeployJob, deploy_and_register

pytestmark = [pytest.mark.slow, pytest.mark.tvm]

SOON = remote.BundleSessionOptions(rest_s=0.1)


@pytest.fixture(scope="module")
def fleet():
    with fleets.fleet(servers=2) as made:
        yield made


@pytest.fixture(scope="module")
def there(device, fleet):
    """The profile of this machine, as a device behind the tracker."""
    route = {"kind": "rpc", "key": fleet.key, "tracker": str(fleet.tracker)}
    return dataclasses.replace(device, name="there", route=route, peak_gflops=None)


@pytest.fixture(autouse=True)
def children_find_the_package(child_environment, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", child_environment["PYTHONPATH"])


def job(there, folder) -> DeployJob:
    save_profile(there, folder / "there.yaml")
    device = str(folder / "there.yaml")
    return DeployJob("nets:tiny", folder / "bundle", device=device, trials=8, batch=(1, 3))


def test_deploying_over_rpc(there, registry_here, monkeypatch):
    """Once as if the server had become another while the bundle was verified there."""
    deploy_small(monkeypatch, "registry.jobs.deploy", peers=None, session=SOON)
    verdicts = iter(["3 GFLOP/s"])
    monkeypatch.setattr(remote, "last_probe", lambda worker, profile: next(verdicts, None))
    report = deploy_and_register(job(there, registry_here)).report
    (kept_apart,) = sidecar_files.read_rows(
        registry_here / "bundle.journal", sidecar_files.QUARANTINE
    )
    assert kept_apart["reason"] == "3 GFLOP/s"
    assert report.device == "there"
    assert report.trials == 8
    assert report.max_abs_error <= report.tolerance
    assert report.latency_ms > 0 and report.untuned_ms > 0
    assert set(report.batches_ms) == {"3"}
    assert report.peers_ms == dict.fromkeys(("torch", "onnxruntime", "openvino"))
    assert set(report.left_out.values()) == {"'there' is behind a tracker"}
    journal = RecordStore.open(registry_here / "bundle.journal")
    assert set(journal.read()["device"].to_pylist()) == {"there"}
    # The device is this machine, so that the bundle runs here as well.
    done = subprocess.run([sys.executable, registry_here / "bundle" / "run.py", "--check"])
    assert done.returncode == 0
    assert deploy_and_register(job(there, registry_here)).reused


def test_no_tracker(there, registry_here, monkeypatch):
    """It is said before the network is read, or the registry asked."""
    monkeypatch.setattr("registry.jobs.deploy.find_source", None)
    route = there.route | {"tracker": f"127.0.0.1:{fleets.free_port()}"}
    nowhere = dataclasses.replace(there, route=route)
    with pytest.raises(WorkFailed, match="hetfeat fleet start-tracker"):
        deploy_and_register(job(nowhere, registry_here))


@pytest.fixture(scope="module")
def deployed(device, tmp_path_factory):
    """A bundle for this machine."""
    network = load_network("nets:tiny", 1, 0)
    module = import_network(network)
    executable = compile_network(lower(module, as_target(device.target)), device, [], {})
    variant = bundle.Variant(1, executable.executable, executable.parameters)
    folder = tmp_path_factory.mktemp("deployed") / "bundle"
    bundle.write_bundle(folder, [variant], device, sample_of(network), {})
    return folder


@pytest.fixture
def quarantined() -> list[str]:
    return []


@pytest.fixture
def keep(quarantined):
    """Takes the reasons for which servers are turned away."""
    return lambda measurements, reason: quarantined.append(reason)


@pytest.mark.parametrize("fails", [False, True])
def test_what_the_last_probe_discredits_does_not_count(
    there, deployed, monkeypatch, keep, quarantined, fails
):
    verdicts = iter(["3 GFLOP/s, not within 2 times 100"])
    monkeypatch.setattr(session, "slow_or_fast", lambda profile, gflops: next(verdicts, None))
    tried = []

    def check(on):
        tried.append(on.run(bundle.sample_inputs(deployed)))
        if fails and len(tried) == 1:
            raise WorkFailed("an output that is off", "a right one", "deploy anew")
        return len(tried)

    assert remote.on_device(there, deployed, check, keep, SOON) == 2
    assert quarantined == ["3 GFLOP/s, not within 2 times 100"]


def test_a_failure_on_the_device_itself_counts(there, deployed, keep, quarantined):
    def check(on):
        raise WorkFailed("an output that is off", "a right one", "deploy anew")

    with pytest.raises(WorkFailed, match="off"):
        remote.on_device(there, deployed, check, keep)
    assert quarantined == []


@pytest.mark.fleet
def test_a_server_that_dies_while_a_bundle_is_verified(there, fleet, deployed, keep):
    """Everything is done again on the other one."""
    inputs = bundle.sample_inputs(deployed)
    tried = []

    def run(on):
        tried.append(on)
        if len(tried) == 1:
            for server in fleet.servers:
                server.kill_session()
        return on.run(inputs)

    output = remote.on_device(there, deployed, run, keep)
    assert len(tried) == 2
    assert np.array_equal(output, bundle.load_bundle(deployed).run(inputs))


@pytest.mark.fleet
def test_nobody_to_verify_on(there, deployed, keep, quarantined):
    options = dataclasses.replace(SOON, attempts=2)
    other = dataclasses.replace(there, threads=there.threads + 1)
    with pytest.raises(DeviceLost, match="not 3 on as many or more"):
        remote.on_device(other, deployed, lambda on: on, keep, options)
    assert quarantined == ["2 threads on 2 cores, not 3 on as many or more"] * 2


@pytest.mark.fleet
def test_a_changed_bundle_is_not_sent(there, deployed, tmp_path, keep):
    copied = shutil.copytree(deployed, tmp_path / "bundle")
    (copied / "sample_output.npy").write_bytes(b"changed")
    with pytest.raises(WorkFailed, match="has changed"):
        once = dataclasses.replace(SOON, attempts=1)
        remote.on_device(there, copied, lambda on: on, keep, once)
