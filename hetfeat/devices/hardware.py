"""Whether two profiles are of the same hardware."""

from hetfeat.devices.profile import DeviceProfile
from hetfeat.parsing import printable

PARAMETERS = (
    *("num_cores", "vector_unit_bytes", "cache_line_bytes", "max_threads_per_block"),
    *("max_shared_memory_per_block_bytes", "max_local_memory_per_block_bytes"),
    *("max_vthread_extent", "warp_size"),
)
USE = ("family", "threads")
"""What is chosen when a device is described; foreign records do not tell of it."""
_TARGET = ("kind", "mcpu", "arch", "model")


def differing(
    known: DeviceProfile, found: DeviceProfile, fields: tuple[str, ...] = (*USE, *PARAMETERS)
) -> str:
    """The fields and parts of the target in which two profiles differ; those of one alone do not.

    Args:
        known: Profile to compare with.
        found: Profile that is compared.
        fields: Names of the fields; all that tell of hardware and its use by default.
    """
    pairs = [(name, getattr(known, name), getattr(found, name)) for name in fields]
    pairs += [(name, known.target.get(name), found.target.get(name)) for name in _TARGET]
    return printable(
        "; ".join(f"{name} {b}, not {a}" for name, a, b in pairs if a and b and a != b), 200
    )
