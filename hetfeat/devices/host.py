"""What this machine says of itself, read from the operating system."""

import contextlib
import ctypes
import math
import os
import platform
import re
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hetfeat.errors import RequestError

ROOT = Path("/")
"""Folder that holds the system's `sys` and `proc`."""
CGROUP_QUOTAS = ("sys/fs/cgroup/cpu.max", "sys/fs/cgroup/cpu/cpu.cfs_quota_us")
CGROUPS = "proc/self/cgroup"
CGROUP_MEMORY = (
    ("sys/fs/cgroup", "", "memory.max", "memory.current"),
    ("sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Files of a group's memory in the second and the first version of cgroups: the folder of all
groups, the name of the controller in `CGROUPS`, the files of its bound and of what it takes."""
CACHES = "sys/devices/system/cpu/cpu0/cache"

NEWER_CPU = "sapphirerapids"
FLAGS_OF_NEWER = {"amx_int8", "amx_bf16", "avx512_fp16", "avx512_bf16", "avx_vnni"}
"""What Linux says of a CPU with all that `NEWER_CPU` has and those before it have not."""

ASK_FOR_TILES = (158, 0x1023, 18)
"""`arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)` of Linux on x86-64."""

TVM_SPINS = "10000"
"""TVM_THREAD_POOL_SPIN_COUNT: how often an idle thread of TVM yields before it sleeps, some 5 ms in
all and longer than what lies between two kernels. By TVM's own 300,000 a program that ran right
after another process took 1.9 times as long (docs/measuring.md)."""


def usable_cores(root: Path = ROOT) -> int:
    """Cores this process may use: its affinity, bounded by the cgroup's CPU quota.

    Args:
        root: Folder that holds the system's `sys`, default `ROOT`.
    """
    cores = len(os.sched_getaffinity(0))
    quota = _quota_cores(root)
    return max(1, min(cores, int(quota))) if quota else cores


def cross_compiler(target: Mapping[str, Any]) -> str | None:
    """The command that links libraries for a target of another architecture than this machine's."""
    triple = str(target.get("mtriple", platform.machine()))
    return None if triple.partition("-")[0] == platform.machine() else f"{triple}-g++"


def need_cross_compiler(device: str, target: Mapping[str, Any]) -> None:
    """Refuses a device for which nothing can be linked here.

    Raises:
        RequestError: Its architecture's `cross_compiler` is not on the path.
    """
    command = cross_compiler(target)
    if command and shutil.which(command) is None:
        raise RequestError(
            f"device '{device}', for which {command} links, and it is not here",
            "the cross-compiler of its architecture on the path",
            "install it (docs/fleet.md)",
        )


def memory_left_bytes(root: Path = ROOT) -> float:
    """What the cgroup, and those around it, let this process take yet; infinite without a bound.

    Args:
        root: Folder that holds the system's `sys` and `proc`, default `ROOT`.
    """
    left = math.inf
    for folder, controller, bound, taken in CGROUP_MEMORY:
        all_groups = root / folder
        own = all_groups / _own_group(root, controller)
        for group in (own, *own.parents):
            # ValueError: "max". A container may see its own group at the root alone.
            with contextlib.suppress(OSError, ValueError):
                free = int((group / bound).read_text()) - int((group / taken).read_text())
                left = min(left, max(0, free + _idle_cache_bytes(group)))
            if group == all_groups:
                break
    return left


def _idle_cache_bytes(group: Path) -> int:
    """Cached files that nobody has read lately: counted as taken, and given up when needed."""
    with contextlib.suppress(OSError):
        lines = (group / "memory.stat").read_text().splitlines()
        told = dict(line.split() for line in lines)
        return int(told.get("total_inactive_file") or told.get("inactive_file") or 0)
    return 0


def _own_group(root: Path, controller: str) -> str:
    """This process's cgroup below the root of a controller, "" where there is none."""
    with contextlib.suppress(OSError):
        for line in (root / CGROUPS).read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controller in controllers.split(","):
                return group.lstrip("/")
    return ""


def memory_free_bytes() -> float:
    """Memory that this process can have without taking it from another."""
    import psutil

    return min(psutil.virtual_memory().available, memory_left_bytes())


def cpu_model() -> str:
    """The processor's own name, e.g. `AMD EPYC 9R14`."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def cpu_flags(root: Path = ROOT) -> frozenset[str]:
    """What Linux says this CPU has; nothing where it does not say.

    Args:
        root: Folder that holds the system's `proc`, default `ROOT`.
    """
    try:
        text = (root / "proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def llvm_cpu(root: Path = ROOT) -> str:
    """LLVM's name of this CPU.

    LLVM goes by the model's number, and a hypervisor may give that of an older CPU: then flags
    count.

    Args:
        root: Folder that holds the system's `proc`, default `ROOT`.
    """
    import tvm
    from tvm.target import codegen

    named = str(codegen.llvm_get_system_cpu())
    target = tvm.target.Target({"kind": "llvm", "mcpu": named})
    is_older = not codegen.target_has_features("amx-int8", target)
    return NEWER_CPU if is_older and cpu_flags(root) >= FLAGS_OF_NEWER else named


@cache
def allow_tiles() -> bool:
    """Asks Linux for AMX's tiles for this process, once; returns whether it has them."""
    if "amx_tile" not in cpu_flags():
        return False
    return bool(ctypes.CDLL(None).syscall(*ASK_FOR_TILES) == 0)


def cache_line_bytes(root: Path = ROOT) -> int:
    """Size of a data-cache line; 64 where the system does not say.

    Args:
        root: Folder that holds the system's `sys`, default `ROOT`.
    """
    try:
        return int((root / CACHES / "index0/coherency_line_size").read_text())
    except (OSError, ValueError):
        return 64


def cache_bytes(root: Path = ROOT) -> dict[int, int]:
    """Bytes of a core's data caches by level, 1 to 3; a level that the system hides is absent.

    Args:
        root: Folder that holds the system's `sys`, default `ROOT`.
    """
    found = {}
    for index in sorted((root / CACHES).glob("index*")):
        try:
            level, kind = int((index / "level").read_text()), (index / "type").read_text().strip()
            kilobytes = re.fullmatch(r"(\d+)K\s*", (index / "size").read_text())
        except (OSError, ValueError):
            continue
        if kilobytes and kind in ("Data", "Unified") and level <= 3:
            found[level] = 1024 * int(kilobytes.group(1))
    return found


def _quota_cores(root: Path) -> float | None:
    for path in (root / name for name in CGROUP_QUOTAS):
        try:
            words = path.read_text().split()
            if path.name == "cpu.cfs_quota_us":
                words.append((path.parent / "cpu.cfs_period_us").read_text().strip())
        except OSError:
            continue
        if len(words) == 2 and words[0].isdigit() and int(words[1]) > 0:
            return int(words[0]) / int(words[1])
        return None
    return None
