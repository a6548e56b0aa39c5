"""A TVM target as a device profile."""

from typing import Any

from hetfeat.devices.profile import DeviceProfile, Target

FAMILY_OF_GPU = {"cuda": "gpu-nvidia", "rocm": "gpu-amd", "metal": "gpu-apple"}
KINDS = ("llvm", *FAMILY_OF_GPU)
_NO_LIMIT = 2**31 - 1
_NOT_HARDWARE = ("keys", "tag", "host")


def profile_of(name: str, target: dict[str, Any]) -> DeviceProfile | None:
    """The device that a target describes, its other figures unknown; None for other `KINDS`."""
    kind = target.get("kind")
    own = {key: value for key, value in target.items() if key not in _NOT_HARDWARE}
    source = "the target of imported records"
    if kind == "llvm":
        arm = str(target.get("mtriple", "")).startswith(("aarch64", "arm"))
        cores = _count(target.get("num-cores"))
        return DeviceProfile(
            name,
            "cpu-arm" if arm else "cpu-x86",
            Target(own),
            threads=cores or 1,
            num_cores=cores,
            vector_unit_bytes=_vector_bytes(own),
            source=source,
        )
    if not isinstance(kind, str) or kind not in FAMILY_OF_GPU:
        return None
    # Of other kinds the limits are those that the tuner kept to, not the device's.
    limits = target if kind == "cuda" else {}
    return DeviceProfile(
        name,
        FAMILY_OF_GPU[kind],
        Target(own),
        threads=1,
        max_shared_memory_per_block_bytes=_count(limits.get("max_shared_memory_per_block")),
        max_threads_per_block=_count(limits.get("max_threads_per_block")),
        warp_size=_count(target.get("thread_warp_size")),
        source=source,
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < _NO_LIMIT else None


def _vector_bytes(target: dict[str, Any]) -> int | None:
    from hetfeat.devices.target import vector_isa

    try:
        name, width = vector_isa(target)
    except Exception:  # whatever TVM finds wrong with a foreign target
        return None
    return None if name == "scalar" else width  # or that of another architecture
