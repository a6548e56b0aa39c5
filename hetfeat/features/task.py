"""A task as a feature vector."""

import functools
import math
import re

import numpy as np

from hetfeat.features.batch import Floats
from hetfeat.features.columns import OPERATORS, TASK
from hetfeat.records import Task


def element_bytes(dtype: str) -> float:
    """Size of an element of a TVM dtype such as `float32` or `bool`, in bytes."""
    bits = re.search(r"\d+", dtype)
    return int(bits.group()) / 8 if bits else 1.0


@functools.lru_cache(maxsize=4096)
def task_vector(task: Task) -> Floats:
    """Features of a task, float32 [len(columns.TASK)]; bytes count each argument once."""
    elements = [math.prod(shape) for shape in task.shapes] or [1]
    inputs = [*sorted(elements[:-1], reverse=True), 0, 0]
    size = element_bytes(task.dtype)
    total_bytes = sum(elements) * size
    known = task.operator if task.operator in OPERATORS else "other"
    last_extent = task.shapes[-1][-1] if task.shapes and task.shapes[-1] else 1
    values = [
        math.log2(1 + task.flops),
        math.log2(1 + total_bytes),
        math.log2((1 + task.flops) / (1 + total_bytes)),
        math.log2(1 + elements[-1]),
        math.log2(1 + inputs[0]),
        math.log2(1 + inputs[1]),
        math.log2(1 + last_extent),
        float(len(task.shapes)),
        size,
        *(float(name == known) for name in (*OPERATORS, "other")),
    ]
    vector = np.array(values, np.float32)
    assert len(vector) == len(TASK)
    vector.setflags(write=False)  # shared by every caller
    return vector
