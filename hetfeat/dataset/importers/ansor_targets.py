"""Target strings and hardware lists of the auto-scheduler as device profiles."""

from typing import Any

from hetfeat.devices.profile import DeviceProfile, Target

_KEPT = {"mcpu", "mtriple", "arch", "model", "mabi", "mfloat-abi"}
_LISTS = {"keys", "mattr"}
_NUMBERS = {"max_num_threads", "thread_warp_size"}
_FAMILY = {"cuda": "gpu-nvidia", "rocm": "gpu-amd", "hip": "gpu-amd", "metal": "gpu-apple"}
_NO_LIMIT = 2**31 - 1
_PARAMETERS = (
    *("num_cores", "vector_unit_bytes", "cache_line_bytes"),
    *("max_shared_memory_per_block_bytes", "max_local_memory_per_block_bytes"),
    *("max_threads_per_block", "max_vthread_extent", "warp_size"),
)
"""What the hardware list holds (the paper's Table 2), in its order."""


def profile_of(device: str, target: str, hardware: list[int] | None) -> DeviceProfile:
    """The profile of a device as a record describes it.

    A parameter that is zero, negative or without limit is one that the hardware class lacks.

    Args:
        device: Name of the profile.
        target: Target in its command-line form, e.g. `llvm -keys=cpu -mcpu=core-avx2`.
        hardware: Eight numbers of a record; None for records of version 0.2, which have none.

    Raises:
        ValueError: The target is of no family, or the list is none of eight numbers.
    """
    parsed = _parse(target)
    if hardware is not None and [type(value) for value in hardware] != [int] * len(_PARAMETERS):
        raise ValueError("hardware that is not eight numbers")
    given: dict[str, Any] = {
        name: value
        for name, value in zip(_PARAMETERS, hardware or (), strict=False)
        if 0 < value < _NO_LIMIT
    }
    cores = given.get("num_cores")
    is_cpu = parsed["kind"] == "llvm"
    if is_cpu and cores:
        parsed["num-cores"] = cores
    return DeviceProfile(
        name=device,
        family=_family(parsed),
        target=Target(parsed),
        threads=cores or 1 if is_cpu else 1,
        source=f"Ansor records for target {target.strip()!r}",
        **given,
    )


def _parse(target: str) -> dict[str, Any]:
    """A target as the dictionary that TVM 0.27 wants; what it no longer knows is left out."""
    kind, *options = target.split() or [""]
    parsed: dict[str, Any] = {"kind": kind}
    for option in options:
        name, _, value = option.removeprefix("-").partition("=")
        if name in _KEPT:
            parsed[name] = value
        elif name in _LISTS:
            parsed[name] = value.split(",")
        elif name in _NUMBERS and value.isdecimal():
            parsed[name] = int(value)
    return parsed


def _family(target: dict[str, Any]) -> str:
    kind = target["kind"]
    if kind == "llvm":
        named = " ".join(str(target.get(key, "")) for key in ("mtriple", "keys", "mattr"))
        return "cpu-arm" if any(word in named for word in ("arm", "aarch64", "neon")) else "cpu-x86"
    if kind not in _FAMILY:
        raise ValueError(f"a target of kind {kind[:20]!r}")
    return _FAMILY[kind]
