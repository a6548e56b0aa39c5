"""Device profiles: written, read, refused, and probed for real once."""

import itertools
import json
import math
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hetfeat.devices import host, probe
from hetfeat.devices.profile import DeviceProfile, load_profile, save_profile
from hetfeat.errors import DataError, RequestError

CORES = len(os.sched_getaffinity(0))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class TestCores:
    @pytest.mark.parametrize(
        ("quota", "cores"),
        [
            ("100000 100000\n", 1),
            ("150000 100000\n", 1),
            ("50000 100000\n", 1),
            ("6400000 100000\n", CORES),
            ("max 100000\n", CORES),
            ("\n", CORES),
        ],
    )
    def test_a_quota_of_cgroup_2_bounds_them(self, tmp_path, quota, cores):
        write(tmp_path / "sys/fs/cgroup/cpu.max", quota)
        assert host.usable_cores(tmp_path) == cores

    @pytest.mark.parametrize(("quota", "cores"), [("100000", 1), ("-1", CORES)])
    def test_a_quota_of_cgroup_1_bounds_them(self, tmp_path, quota, cores):
        write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", f"{quota}\n")
        write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
        assert host.usable_cores(tmp_path) == cores

    def test_affinity_counts_without_a_quota(self, tmp_path):
        assert host.usable_cores(tmp_path) == CORES

    def test_the_cpu_has_a_name_and_a_cache_line(self):
        assert host.cpu_model()
        assert host.cache_line_bytes() in (32, 64, 128, 256)

    def test_sizes_of_data_caches_are_read_and_what_is_amiss_is_left_out(self, tmp_path):
        caches = (
            ("1", "Data", "48K\n"),
            ("1", "Instruction", "32K\n"),
            ("2", "Unified", "1024K\n"),
            ("3", "Unified", "a lot\n"),
        )
        for i, (level, kind, size) in enumerate(caches):
            folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{i}"
            write(folder / "level", f"{level}\n")
            write(folder / "type", f"{kind}\n")
            write(folder / "size", size)
        (folder.parent / "index4").mkdir()
        assert host.cache_bytes(tmp_path) == {1: 48 * 1024, 2: 1024 * 1024}


class TestProfile:
    def test_round_trip(self, device, tmp_path):
        save_profile(device, tmp_path / "new" / "here.yaml")
        assert load_profile(tmp_path / "new" / "here.yaml") == device
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["here.yaml"]

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"speed": 3}, "unknown keys speed"),
            ({"name": "Upper Case"}, "Upper Case"),
            ({"name": 7}, "name"),
            ({"family": "tpu"}, "cpu-x86"),
            ({"threads": "two"}, "threads"),
            ({"threads": 0}, "threads"),
            ({"target": "llvm"}, "target"),
            ({"threads": True}, "threads"),
            ({"route": "rpc"}, "route"),
            ({"route": {"key": "lab"}}, "route"),
            ({"peak_gflops": "fast"}, "peak_gflops"),
            ({"peak_gflops": -1}, "peak_gflops"),
            ({"vector_unit_bytes": "64"}, "vector_unit_bytes"),
            ({"num_cores": True}, "num_cores"),
            ({"source": 7}, "source"),
            ({"profile_version": 3}, "version 3"),
            ({"profile_version": "two"}, "version 'two'"),
        ],
    )
    def test_what_is_amiss_is_said(self, device, tmp_path, change, said):
        path = tmp_path / "x.yaml"
        path.write_text(yaml.safe_dump(device.to_dict() | change))
        with pytest.raises(RequestError, match="expected") as error:
            load_profile(path)
        assert said in str(error.value)

    def test_its_file_holds_target_and_route_as_they_were_given(self, device, tmp_path):
        target = {"kind": "cuda", "arch": "sm_80", "later": [1]}
        route = {"kind": "rpc", "key": "k", "tracker": "lab:9190"}
        given = replace(device, target=target, route=route)
        save_profile(given, tmp_path / "gpu.yaml")
        held = yaml.safe_load((tmp_path / "gpu.yaml").read_text())
        assert (held["target"], held["route"]) == (target, route)
        assert json.loads(json.dumps(given.to_dict())) == held
        assert load_profile(tmp_path / "gpu.yaml") == given

    @pytest.mark.parametrize(
        ("kind", "is_cpu", "is_gpu"), [("llvm", 1, 0), ("cuda", 0, 1), ("opencl", 0, 0)]
    )
    def test_a_target_says_what_it_is(self, device, kind, is_cpu, is_gpu):
        target = replace(device, target={"kind": kind}).target
        assert (target.is_cpu, target.is_gpu) == (is_cpu, is_gpu)
        assert target | {"arch": "sm_80"} == {"kind": kind, "arch": "sm_80"}

    @pytest.mark.parametrize(
        ("kind", "is_local", "is_rpc"), [("local", 1, 0), ("rpc", 0, 1), ("adb", 0, 0)]
    )
    def test_a_route_says_where_it_leads(self, device, kind, is_local, is_rpc):
        route = replace(device, route={"kind": kind}).route
        assert (route.is_local, route.is_rpc) == (is_local, is_rpc)

    def test_a_file_of_the_first_version_is_read_its_new_figures_unknown(self, device, tmp_path):
        (tmp_path / "x.yaml").write_text(
            "{name: old, family: cpu-x86, target: {kind: llvm}, threads: 2, peak_gflops: 474.8}"
        )
        found = load_profile(tmp_path / "x.yaml")
        assert (found.peak_gflops, found.l1_gb_s, found.fork_join_us) == (474.8, None, None)

    @pytest.mark.parametrize("text", ["- a list", "name: x", "", "{", "\x00"])
    def test_other_files_are_refused(self, tmp_path, text):
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(DataError, match=r"x\.yaml"):
            load_profile(tmp_path / "x.yaml")

    def test_yaml_makes_no_objects(self, tmp_path):
        (tmp_path / "x.yaml").write_text("!!python/object/apply:os.getcwd []")
        with pytest.raises(DataError, match="YAML"):
            load_profile(tmp_path / "x.yaml")


class TestFinding:
    @pytest.fixture
    def known(self, device: DeviceProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("HETFEAT_HOME", str(tmp_path / "home"))
        probe.remember(device)
        return device

    def test_local_and_its_own_name_are_this_machine(self, known):
        assert probe.find_profile("local") == probe.find_profile("here") == known

    def test_a_file_is_taken_as_it_is(self, known, tmp_path, device_file):
        assert probe.find_profile(str(device_file)) == known

    def test_another_name_is_refused_with_the_names_there_are(self, known):
        with pytest.raises(RequestError, match="'local', 'here'"):
            probe.find_profile("laptop")

    def test_a_missing_file_is_refused(self, known):
        with pytest.raises(DataError, match=r"missing\.yaml"):
            probe.find_profile("missing.yaml")

    def test_other_cores_mean_another_profile(self, known, monkeypatch):
        path = probe._cache_path()
        monkeypatch.setattr(host, "usable_cores", lambda: 64)
        assert probe._cache_path() != path


@pytest.mark.tvm
def test_an_arm_s_target_names_its_triple_and_is_linked_for_it(monkeypatch):
    from tvm.support import cc

    from hetfeat.devices import target as device_target

    monkeypatch.setattr(device_target.platform, "machine", lambda: "aarch64")
    there = device_target.host_target(1)
    assert there["mtriple"] == "aarch64-linux-gnu"
    assert device_target.linker(there) is cc.create_shared
    monkeypatch.setattr(device_target.platform, "machine", lambda: "x86_64")
    assert "mtriple" not in device_target.host_target(1)
    here = device_target.host_target(1) | {"mcpu": "haswell"}
    assert device_target.linker(here) is cc.create_shared
    assert device_target.linker(there).get_target_triple() == "aarch64-linux-gnu"


@pytest.mark.tvm
class TestRestricting:
    def test_a_cpu_is_restricted_to_what_it_has(self, monkeypatch):
        from hetfeat.devices import target as device_target

        monkeypatch.setattr(device_target.platform, "machine", lambda: "x86_64")
        own = {"kind": "llvm", "mcpu": "znver5", "num-cores": 2}
        assert device_target.restricted(own, "avx512") == own
        assert device_target.restricted(own, "avx2") == own | {"mcpu": "haswell"}
        assert device_target.vector_isa(device_target.restricted(own, "avx2")) == ("avx2", 32)
        assert device_target.vector_isa(device_target.restricted(own, "sse42")) == ("sse42", 16)
        with pytest.raises(RequestError, match="one of avx2, sse42"):
            device_target.restricted(own | {"mcpu": "haswell"}, "avx512")

    def test_more_threads_than_cores_are_refused(self):
        with pytest.raises(RequestError, match=f"at most {CORES}"):
            probe.probe(threads=CORES + 1)


@pytest.mark.parametrize(
    ("percent", "options", "warns"),
    [
        (2.0, probe.ProbeOptions(), False),
        (60.0, probe.ProbeOptions(), True),
        (60.0, probe.ProbeOptions(busy_percent=70.0), False),
    ],
)
def test_probing_a_busy_machine_warns(percent, options, warns, monkeypatch, caplog):
    done = subprocess.CompletedProcess([], 0, stdout='{"peak_gflops": 1.0}')
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: percent)
    assert probe._measure({}, 1, options) == {"peak_gflops": 1.0}
    assert ("60 % busy with other work" in caplog.text) == warns


@pytest.mark.tvm
def test_what_a_job_of_the_peak_multiplies_fits_a_first_level_cache():
    from hetfeat.devices import target as device_target

    for tile in device_target.REGISTER_TILES:
        _, shapes, _ = device_target._multiply_add_schedule(16, tile)
        assert sum(4 * math.prod(shape[1:]) for shape in shapes) <= 32 * 1024


@pytest.mark.slow
@pytest.mark.tvm
def test_this_machine_can_be_probed():
    found = probe.probe("this-one", threads=1)
    assert found.name == "this-one"
    assert found.target["num-cores"] == found.threads == found.num_cores == 1
    assert found.vector_unit_bytes in (4, 16, 32, 64)
    assert found.peak_gflops > 1
    assert found.peak_gflops >= 0.8 * found.scalar_gflops
    # Neighbours may be at work: half of a level's bandwidth is allowed to be lost.
    levels = [found.l1_gb_s, found.l2_gb_s, found.l3_gb_s, found.bandwidth_gb_s]
    known = [level for level in levels if level is not None]
    assert len(known) >= 2
    assert all(near >= 0.5 * far for near, far in itertools.pairwise(known)), known
    assert 0 < found.fork_join_us < 1000
    assert DeviceProfile.from_dict(found.to_dict(), "here") == found
