"""What the machine lets this process take."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hetfeat.devices import host

V1 = Path("/sys/fs/cgroup/memory")
GROUPS = {"v2": "0::/box/inner\n", "v1": "4:cpu,memory:/box/inner\n0::/\n"}
FILES = {
    "v2": ("memory.max", "memory.current"),
    "v1": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}


@pytest.fixture(params=["v2", "v1"])
def all_groups(request, tmp_path):
    """The folder of all groups in a system with either version of cgroups."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(GROUPS[request.param])
    return tmp_path / ("sys/fs/cgroup" if request.param == "v2" else "sys/fs/cgroup/memory")


@pytest.fixture
def bound(all_groups):
    """Sets what a group may take and what it takes."""
    version = "v1" if all_groups.name == "memory" else "v2"

    def write(group: str, most: object, taken: int) -> None:
        folder = all_groups / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in zip(FILES[version], (most, taken), strict=True):
            (folder / name).write_text(f"{value}\n")

    return write


def test_without_a_bound_memory_is_not_limited(bound, tmp_path):
    assert host.memory_left_bytes(tmp_path) == math.inf
    bound("box/inner", "max", 10)
    assert host.memory_left_bytes(tmp_path) == math.inf


def test_the_narrowest_group_around_counts(bound, tmp_path):
    bound("box/inner", 1000, 10)
    assert host.memory_left_bytes(tmp_path) == 990
    bound("box", 500, 100)
    assert host.memory_left_bytes(tmp_path) == 400


@pytest.mark.parametrize(
    "told", ["inactive_file 30\n", "inactive_file 9\nactive_file 50\ntotal_inactive_file 30\n"]
)
def test_files_cached_and_not_read_lately_are_left(bound, all_groups, tmp_path, told):
    bound("box/inner", 1000, 100)
    (all_groups / "box/inner/memory.stat").write_text(told)
    assert host.memory_left_bytes(tmp_path) == 930


def test_a_container_sees_its_group_at_the_root(bound, tmp_path):
    bound(".", 700, 800)
    assert host.memory_left_bytes(tmp_path) == 0


def test_a_real_group_is_heeded():
    group = V1 / f"hetfeat-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("needs cgroups of the first version, and to be root")
    enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    say = "from hetfeat.devices.host import memory_left_bytes; print(memory_left_bytes())"
    try:
        (group / "memory.limit_in_bytes").write_text(str(300 << 20))
        told = subprocess.run(
            [*enter, sys.executable, "-c", say], stdout=subprocess.PIPE, text=True, check=True
        )
    finally:
        group.rmdir()
    assert 0 < int(told.stdout) < 300 << 20


INTEL = {"amx_int8", "amx_bf16", "amx_tile", "avx512_fp16", "avx512_bf16", "avx_vnni"}


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("known_as", "flags", "named"),
    [
        ("rocketlake", INTEL, "sapphirerapids"),  # as a hypervisor numbers it
        ("graniterapids", INTEL, "graniterapids"),
        ("rocketlake", INTEL - {"amx_bf16"}, "rocketlake"),
        ("znver5", {"avx_vnni", "avx512_bf16"}, "znver5"),
        ("znver3", set(), "znver3"),
    ],
)
def test_flags_count_where_the_model_s_number_is_that_of_an_older_cpu(
    monkeypatch, tmp_path, known_as, flags, named
):
    from tvm.target import codegen

    monkeypatch.setattr(codegen, "llvm_get_system_cpu", lambda: known_as)
    (tmp_path / "proc").mkdir()
    text = f"model name\t: a CPU\nflags\t\t: fpu {' '.join(sorted(flags))}\n"
    (tmp_path / "proc/cpuinfo").write_text(text)
    assert host.llvm_cpu(tmp_path) == named


@pytest.mark.tvm
@pytest.mark.parametrize("allowed", [True, False])
def test_a_target_has_tiles_where_linux_allows_them(monkeypatch, allowed):
    from hetfeat.devices import target

    monkeypatch.setattr(host, "llvm_cpu", lambda: "sapphirerapids")
    monkeypatch.setattr(host, "allow_tiles", lambda: allowed)
    found = target.host_target(2)
    assert target.has_tiles(found) == allowed
    assert ("amx-tile" in target.code_features(found)) == allowed
    assert target.vector_isa(found) == ("avx512", 64)
