"""What a compute capability says of NVIDIA's multiprocessors."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_KB = 1024


@dataclass(frozen=True)
class Multiprocessor:
    """A multiprocessor of a compute capability.

    Attributes:
        capability: Compute capability, a number.
        fp32_lanes: Multiply-adds of fp32 that it can finish in a cycle.
        threads: Number of threads that it can hold at a time.
        shared_memory_bytes: Bytes of shared memory of all blocks that it holds.
        registers: Number of its registers of 32 bits, default 65,536.
    """

    capability: float
    fp32_lanes: int
    threads: int
    shared_memory_bytes: int
    registers: int = 65536

    @property
    def opt_in_bytes_of_block(self) -> int:
        """Most shared memory in bytes of a block that asks for it; CUDA keeps 1 KB from 8.0 on."""
        return self.shared_memory_bytes - (_KB if self.capability >= 8 else 0)


_KNOWN = (
    Multiprocessor(3.0, 192, 2048, 48 * _KB),
    Multiprocessor(3.5, 192, 2048, 48 * _KB),
    Multiprocessor(3.7, 192, 2048, 112 * _KB, 131072),
    Multiprocessor(5.0, 128, 2048, 64 * _KB),
    Multiprocessor(5.2, 128, 2048, 96 * _KB),
    Multiprocessor(6.0, 64, 2048, 64 * _KB),
    Multiprocessor(6.1, 128, 2048, 96 * _KB),
    Multiprocessor(7.0, 64, 2048, 96 * _KB),
    Multiprocessor(7.5, 64, 1024, 64 * _KB),
    Multiprocessor(8.0, 64, 2048, 164 * _KB),
    Multiprocessor(8.6, 128, 1536, 100 * _KB),
    Multiprocessor(8.9, 128, 1536, 100 * _KB),
    Multiprocessor(9.0, 128, 2048, 228 * _KB),
)
"""CUDA C++ Programming Guide: technical specifications, and arithmetic throughput, by compute
capability."""
_OF_ARCH = {f"sm_{round(10 * known.capability)}": known for known in _KNOWN}


def has_tensor_cores(target: Mapping[str, Any]) -> bool:
    """Whether a TVM target is a GPU whose tensor cores programs are made for: from sm_80 on."""
    digits = re.sub(r"\D", "", str(target.get("arch", "")))
    return target["kind"] == "cuda" and bool(digits) and int(digits) >= 80


def multiprocessor(target: Mapping[str, Any]) -> Multiprocessor | None:
    """That of a TVM target's `arch`; None where it names none, or one that is not known."""
    return _OF_ARCH.get(str(target.get("arch")).removesuffix("a"))
