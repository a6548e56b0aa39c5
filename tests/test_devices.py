"""Device profiles: written, read, refused, and probed for real once."""

import os
from pathlib import Path

import pytest
import yaml

from hetfeat.devices import host, probe
from hetfeat.devices.profile import DeviceProfile, load_profile, save_profile
from hetfeat.errors import DataError, RequestError

CORES = len(os.sched_getaffinity(0))


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
    def test_a_quota_of_cgroup_2_bounds_them(self, tmp_path, monkeypatch, quota, cores):
        (tmp_path / "cpu.max").write_text(quota)
        monkeypatch.setattr(host, "CGROUP_QUOTAS", (tmp_path / "cpu.max",))
        assert host.usable_cores() == cores

    @pytest.mark.parametrize(("quota", "cores"), [("100000", 1), ("-1", CORES)])
    def test_a_quota_of_cgroup_1_bounds_them(self, tmp_path, monkeypatch, quota, cores):
        (tmp_path / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
        paths = (tmp_path / "cpu.max", tmp_path / "cpu.cfs_quota_us")
        monkeypatch.setattr(host, "CGROUP_QUOTAS", paths)
        assert host.usable_cores() == cores

    def test_affinity_counts_without_a_quota(self, tmp_path, monkeypatch):
        monkeypatch.setattr(host, "CGROUP_QUOTAS", (tmp_path / "none",))
        assert host.usable_cores() == CORES

    def test_the_cpu_has_a_name_and_a_cache_line(self):
        assert host.cpu_model()
        assert host.cache_line_bytes() in (32, 64, 128, 256)


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
        ],
    )
    def test_what_is_amiss_is_said(self, device, tmp_path, change, said):
        path = tmp_path / "x.yaml"
        path.write_text(yaml.safe_dump(device.to_dict() | change))
        with pytest.raises(RequestError, match="expected") as error:
            load_profile(path)
        assert said in str(error.value)

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


@pytest.mark.slow
@pytest.mark.tvm
def test_this_machine_can_be_probed():
    found = probe.probe("this-one", threads=1)
    assert found.name == "this-one"
    assert found.target["num-cores"] == found.threads == found.num_cores == 1
    assert found.vector_unit_bytes in (4, 16, 32, 64)
    assert found.peak_gflops > 1
    assert found.bandwidth_gb_s > 0.1
    assert DeviceProfile.from_dict(found.to_dict(), "here") == found
