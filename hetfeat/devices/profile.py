"""A device profile: everything the toolkit knows about a piece of hardware."""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from hetfeat.durable import write_file
from hetfeat.errors import DataError, RequestError
from hetfeat.parsing import read_yaml

FAMILIES = ("cpu-x86", "cpu-arm", "gpu-nvidia", "gpu-amd", "gpu-apple")
PROFILE_VERSION = 2
"""Version of the file's format; 1 had neither the figures of caches and scalars nor those of data
sheets."""
REQUIRED = ("name", "family", "target", "threads")
FP32_BYTES = 4
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True, eq=False)
class _Options(Mapping[str, Any]):
    """A mapping of a profile's file, kept as it is: its keys are for others to read."""

    options: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.options[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.options)

    def __len__(self) -> int:
        return len(self.options)

    def __or__(self, changes: Mapping[str, Any]) -> Self:
        return type(self)({**self, **changes})


class Target(_Options):
    """What code is compiled for: TVM's own dictionary, as its attributes are many.

    Examples:
        >>> import hetfeat
        >>> target = hetfeat.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
        >>> target["kind"], target.is_cpu
        ('llvm', True)
    """

    @property
    def is_cpu(self) -> bool:
        """Whether LLVM makes the code."""
        return self.get("kind") == "llvm"

    @property
    def is_gpu(self) -> bool:
        """Whether it is an NVIDIA GPU, the only kind that is compiled for."""
        return self.get("kind") == "cuda"


class Route(_Options):
    """How a device is reached; `devices.fleet.route` reads one over RPC.

    Examples:
        >>> import hetfeat
        >>> hetfeat.Route({"kind": "local"}).is_local
        True
    """

    @property
    def is_local(self) -> bool:
        """Whether the device is this machine, or in it."""
        return self.get("kind") == "local"

    @property
    def is_rpc(self) -> bool:
        """Whether a tracker has servers of it."""
        return self.get("kind") == "rpc"


@dataclass(frozen=True)
class DeviceProfile:
    """A device's target, its parameters (the paper's Table 2) and its figures.

    A parameter that the hardware class does not have is None: a CPU has no warp, a GPU no cores.
    A figure that nobody has measured, or looked up, is None as well. Measured figures are those
    of all threads of the profile together, compiled for its target.

    Attributes:
        name: A slug that names the device; enters records, models and bundles.
        family: Family of the device, one of `FAMILIES`.
        target: Target that programs are compiled for; a plain mapping becomes one.
        threads: Number of threads that every measurement on the device uses (1 for a GPU).
        num_cores: Number of cores the target is compiled for, default None.
        vector_unit_bytes: Width of a vector register in bytes, default None.
        cache_line_bytes: Length of a cache line in bytes, default 64.
        max_shared_memory_per_block_bytes: Most bytes of shared memory of a block, default None; GPU
            only.
        max_local_memory_per_block_bytes: Most bytes of local memory of a block, default None; GPU
            only.
        max_threads_per_block: Most threads of a block, default None; GPU only.
        max_vthread_extent: Most virtual threads, default None; GPU only.
        warp_size: Number of threads of a warp, default None; GPU only.
        peak_gflops: Measured fp32 peak in GFLOP/s, default None.
        scalar_gflops: Measured fp32 peak without vectors in GFLOP/s, default None.
        bandwidth_gb_s: Measured bandwidth of scaling an array in DRAM, in 1e9 bytes/s; default
            None.
        l1_gb_s: Measured bandwidth of reading from the first-level cache, in 1e9 bytes/s; default
            None.
        l2_gb_s: Measured bandwidth of reading from the second-level cache, in 1e9 bytes/s; default
            None.
        l3_gb_s: Measured bandwidth of reading from the third-level cache, in 1e9 bytes/s; default
            None.
        fork_join_us: Measured duration of a parallel loop with nothing to do, in microseconds;
            default None.
        datasheet_gflops: The maker's fp32 peak in GFLOP/s, never measured; default None.
        datasheet_gb_s: The maker's memory bandwidth in 1e9 bytes/s, never measured; default None.
        source: Origin of the figures, default empty.
        route: Route by which the device is reached, default local; a plain mapping becomes one.

    Examples:
        >>> import hetfeat
        >>> target = hetfeat.Target({"kind": "llvm"})
        >>> board = hetfeat.DeviceProfile("board", "cpu-arm", target, threads=4)
        >>> board.name, board.threads, board.peak_gflops
        ('board', 4, None)
    """

    name: str
    family: str
    target: Target
    threads: int
    num_cores: int | None = None
    vector_unit_bytes: int | None = None
    cache_line_bytes: int = 64
    max_shared_memory_per_block_bytes: int | None = None
    max_local_memory_per_block_bytes: int | None = None
    max_threads_per_block: int | None = None
    max_vthread_extent: int | None = None
    warp_size: int | None = None
    peak_gflops: float | None = None
    scalar_gflops: float | None = None
    bandwidth_gb_s: float | None = None
    l1_gb_s: float | None = None
    l2_gb_s: float | None = None
    l3_gb_s: float | None = None
    fork_join_us: float | None = None
    datasheet_gflops: float | None = None
    datasheet_gb_s: float | None = None
    source: str = ""
    route: Route = field(default_factory=lambda: Route({"kind": "local"}))

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", Target(dict(self.target)))
        object.__setattr__(self, "route", Route(dict(self.route)))
        check_name(self.name)
        if self.family not in FAMILIES:
            raise RequestError(
                f"family {self.family!r} of device {self.name!r}",
                f"one of {', '.join(FAMILIES)}",
                "correct the profile",
            )

    @property
    def lanes(self) -> int | None:
        """fp32 elements that run in step: a warp's, or those of a vector register."""
        return self.warp_size or (self.vector_unit_bytes and self.vector_unit_bytes // FP32_BYTES)

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain data, with the version of its fields."""
        fields = dataclasses.asdict(self)
        fields |= {key: fields[key]["options"] for key in ("target", "route")}
        return {"profile_version": PROFILE_VERSION, **fields}

    @classmethod
    def from_dict(cls, data: Any, where: str) -> "DeviceProfile":
        """A profile from plain data; `where` names the source in an error."""
        names = {f.name for f in dataclasses.fields(cls)}
        if not isinstance(data, dict) or not set(REQUIRED) <= set(data):
            raise DataError(
                f"device profile {where}",
                "a mapping with at least name, family, target and threads",
                "write it with `hetfeat devices probe --out FILE`",
            )
        if wrong := [key for key in data if key in names and not _fits(key, data[key])]:
            raise DataError(
                f"device profile {where} with {', '.join(wrong)} amiss",
                "texts, a mapping as target, one with a kind as route, and positive numbers",
                "write it with `hetfeat devices probe --out FILE`",
            )
        data = dict(data)
        version = data.pop("profile_version", 1)
        if version not in range(1, PROFILE_VERSION + 1):
            raise DataError(
                f"device profile {where} of version {version!r}",
                f"version 1 to {PROFILE_VERSION}",
                "update hetfeat",
            )
        if unknown := sorted(map(str, set(data) - names)):
            raise DataError(
                f"device profile {where} with unknown keys {', '.join(unknown)}",
                f"keys among {', '.join(sorted(names))}",
                "remove them",
            )
        return cls(**data)


def _fits(key: str, value: Any) -> bool:
    """Whether a field may have this value."""
    match key:
        case "name" | "family" | "source":
            return isinstance(value, str)
        case "target":
            return isinstance(value, dict)
        case "route":
            return isinstance(value, dict) and isinstance(value.get("kind"), str)
        case "threads":
            return type(value) is int and value > 0
    if value is None or isinstance(value, bool):
        return value is None
    return isinstance(value, int | float) and 0 < value < math.inf


def check_name(name: str) -> None:
    """Raises RequestError unless a device may be called this."""
    if not NAME_PATTERN.fullmatch(name):
        raise RequestError(
            f"device name {name!r}",
            "lower-case letters, digits, dots, dashes",
            "choose another name",
        )


def save_profile(profile: DeviceProfile, path: Path) -> None:
    """Writes a profile as YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, yaml.safe_dump(profile.to_dict(), sort_keys=False).encode())


def load_profile(path: Path) -> DeviceProfile:
    """Reads a profile written by `save_profile`.

    Raises:
        DataError: The file is missing, is not YAML or is not a profile.
    """
    try:
        data = read_yaml(path)
    except ValueError as error:
        raise DataError(
            f"device profile {path}", "a readable YAML file", f"check it ({error})"
        ) from error
    return DeviceProfile.from_dict(data, str(path))
