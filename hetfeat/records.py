"""The record: one measured program of one task on one device."""

import hashlib
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

SCHEMA_VERSION = 1
"""Version of the stored form of a record; old versions keep their readers."""

ErrorKind = Literal["schedule", "build", "timeout", "crash", "run", "memory", "wrong"]
"""Why a candidate has no latency: its trace would not replay, it would not compile, it hung,
it took the worker down, it raised, it asked for too much memory, or its answer was wrong."""


@dataclass(frozen=True)
class Task:
    """One tensor computation, whatever the device.

    Attributes:
        hash: Structural hash of the workload, without its target.
        operator: Anchor operator, e.g. `conv2d`, `matmul`, `max_pool2d`.
        shapes: Shape of each argument, outputs last.
        dtype: Element type of the output.
        flops: Floating-point operations of one run.
    """

    hash: str
    operator: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    flops: float

    @property
    def anchor(self) -> str:
        """What tasks share that differ only in what is fused."""
        return anchor_of(self.operator, self.shapes)


def anchor_of(operator: str, shapes: Sequence[Sequence[int]]) -> str:
    """Operator and shapes of data and weights, as text."""
    return f"{operator} {json.dumps(shapes[:2])}"


@dataclass(frozen=True)
class Program:
    """A task with a schedule.

    Attributes:
        task: Task that the program computes.
        trace: Schedule as compact JSON, `[instructions, decisions]`.
        stores: Per-store features, float32 [stores, 164]; None, the default, if not extracted.
    """

    task: Task
    trace: str
    stores: npt.NDArray[np.float32] | None = field(default=None, compare=False, repr=False)

    @cached_property
    def key(self) -> str:
        """Identity of the program: a digest of its task and trace."""
        return hashlib.sha256(f"{self.task.hash}\n{self.trace}".encode()).hexdigest()[:24]


def spread(latencies_s: Sequence[float]) -> float:
    """Noise of repeats: (slowest - fastest) / median; 0 for one repeat."""
    return (max(latencies_s) - min(latencies_s)) / statistics.median(latencies_s)


@dataclass(frozen=True)
class Measurement:
    """What a device said of a program. A failure is data, never an exception and never infinity.

    Attributes:
        program: Program that was run.
        device: Name of the device profile.
        latencies_s: One mean latency in seconds per repeat; empty if the program failed.
        error: Kind of failure; None if the program ran.
        unix_s: Time of the measurement, in seconds since 1970.
        versions: Names and versions of the tools that took part, e.g. `tvm 0.27.0.post1`.
    """

    program: Program
    device: str
    latencies_s: tuple[float, ...]
    error: ErrorKind | None
    unix_s: float
    versions: str

    def __post_init__(self) -> None:
        if (self.error is None) != bool(self.latencies_s):
            raise ValueError("a measurement has either latencies or an error")
        if not all(math.isfinite(s) and s > 0 for s in self.latencies_s):
            raise ValueError(f"latencies must be positive and finite, not {self.latencies_s}")

    @property
    def latency_s(self) -> float | None:
        """Median latency in seconds, or None for a failure."""
        return statistics.median(self.latencies_s) if self.latencies_s else None
