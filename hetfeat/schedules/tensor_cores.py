"""Programs for tensor cores: which kernels have them, by which rules, and which fit a GPU.

MetaSchedule's rule multiplies fragments of 16 x 16 elements, each of a warp. What warps of a block
read between two barriers is copied to shared memory; what they have summed goes through it to the
steps that follow. A tile of a loop is all of its factors within a block: five of a loop of the
output (two of blocks, warps, two of fragments), three of the loop over sums.
"""

import math
from typing import Any

import tvm
import tvm.s_tir.meta_schedule as ms
from tvm.s_tir.meta_schedule.schedule_rule import MultiLevelTilingTensorCore, ReuseType
from tvm.s_tir.schedule import Schedule

from hetfeat.devices.nvidia import multiprocessor
from hetfeat.schedules.intrinsics import WMMA, load_for_tensor_cores
from hetfeat.schedules.threads import WARP
from hetfeat.schedules.trace import TILE, Trace

FRAGMENT = 16
"""Rows, columns and depth of what one instruction multiplies."""
TENSORIZED, MULTIPLIES = "meta_schedule.auto_tensorize", '"wmma_sync'
STAGES = "software_pipeline_stage"
FRAGMENT_REGISTERS = 8
"""Registers of a thread for a fragment: 256 sums of float32, or 256 float16 that are held twice."""
MOST_REGISTERS = 255
HALF_BYTES, SUM_BYTES = 2, 4
STATIC_BYTES = 48 * 1024
"""Most shared memory of a block that a program has without asking: sums lie there."""


def multiplies_halves(kernel: Schedule) -> bool:
    """Whether a block of a kernel, unscheduled, sums products of float16."""
    for block in kernel.get_child_blocks(kernel.get_sblock("root")):
        statement = kernel.get(block)
        summed = any(int(axis.iter_type) == 2 for axis in statement.iter_vars)
        halves = [of for of in statement.reads if str(of.source.dtype) == "float16"]
        if summed and len(halves) >= 2:
            return True
    return False


def with_opt_in_memory(target: tvm.target.Target) -> tvm.target.Target:
    """The target with the shared memory that a block has where it asks for it.

    Only dynamic shared memory may be more than the 48 KB that others have: that of tensor cores'
    programs is.
    """
    given = dict(target.export())
    known = multiprocessor(given)
    if known is None:
        return target
    given["max_shared_memory_per_block"] = known.opt_in_bytes_of_block
    return tvm.target.Target(given)


def space_generators() -> list[ms.SpaceGenerator]:
    """MetaSchedule's rules for tensor cores, without and with a pipeline of copies and products.

    They are those of `cuda-tensorcore` but for the instructions that sum float16, which would lose
    digits, those of integers, those of B transposed, whose copies are of single elements, and those
    of TVM's `mma`, which take no step after the product.
    """
    load_for_tensor_cores()
    first, *others = ms.ScheduleRule.create("cuda")
    return [
        ms.space_generator.PostOrderApply(
            sch_rules=[first, _rule(pipelined), *others],
            postprocs="cuda-tensorcore",
            mutator_probs="cuda-tensorcore",
        )
        for pipelined in (False, True)
    ]


def _rule(pipelined: bool) -> ms.ScheduleRule:
    return MultiLevelTilingTensorCore(
        [WMMA],
        structure="SSSRRSRS",
        tile_binds=["blockIdx.y", "blockIdx.x", "threadIdx.y"],
        max_innermost_factor=4,
        vector_load_lens=[1, 2, 4, 8],
        reuse_read=ReuseType("must", [4], "shared.dyn"),
        reuse_write=ReuseType("must", [2], "shared"),
        use_software_pipeline=pipelined,
    )


class TensorCores:
    """How much shared memory and how many registers a block of threads may have.

    Args:
        shared_bytes: Most bytes of shared memory of a block.
        registers: Most registers of a block; 65,536 by default, which all of these GPUs have.
    """

    def __init__(self, shared_bytes: int, registers: int = 65536) -> None:
        self._shared_bytes, self._registers = shared_bytes, registers

    def holds(self, trace: Trace) -> bool:
        """Whether a program finds room; True of one that has no fragments."""
        instructions, decisions = trace
        noted: dict[str, list[Any]] = {}
        for kind, inputs, attributes, _ in instructions:
            if kind == "Annotate":
                noted.setdefault(attributes[0], []).append(inputs[1])
        if not any(text.startswith(MULTIPLIES) for text in noted.get(TENSORIZED, ())):
            return True
        tiles = [chosen for index, chosen in sorted(decisions) if instructions[index][0] == TILE]
        stages = 2 if STAGES in noted else 1
        steps, products = tiles[-1][:2]
        if stages > 1 and (steps == 1 or products % 2):
            return False  # TVM lowers no pipeline whose two stages do not take turns
        copied = stages * _copied_bytes(tiles)
        summed = _summed_bytes(tiles)
        return (
            summed <= STATIC_BYTES
            and copied + summed <= self._shared_bytes
            and (each := _registers(tiles)) <= MOST_REGISTERS
            and each * WARP * math.prod(tile[2] for tile in tiles[:-1]) <= self._registers
        )


def _copied_bytes(tiles: list[list[int]]) -> int:
    """What a stage copies of both operands."""
    *batches, rows, columns, depth = tiles
    many = math.prod(math.prod(tile[2:]) for tile in batches)
    high, wide = (FRAGMENT * math.prod(tile[2:]) for tile in (rows, columns))
    deep = FRAGMENT * math.prod(depth[1:])
    return HALF_BYTES * many * (high * _aligned(deep) + deep * _aligned(wide))


def _summed_bytes(tiles: list[list[int]]) -> int:
    """One row of fragments of sums of each warp."""
    *batches, rows, columns, _ = tiles
    many = math.prod(math.prod(tile[2:]) for tile in batches)
    return SUM_BYTES * FRAGMENT**2 * many * rows[2] * math.prod(columns[2:])


def _aligned(width: int) -> int:
    """The stride of rows of so many elements, which keeps them off each other's banks."""
    return width + (8 - width) % 32


def _registers(tiles: list[list[int]]) -> int:
    """Registers of a thread for its fragments."""
    *batches, rows, columns, depth = tiles
    many = math.prod(math.prod(tile[3:]) for tile in batches)
    high, wide = (math.prod(tile[3:]) for tile in (rows, columns))
    return FRAGMENT_REGISTERS * many * (high * wide + depth[2] * (high + wide))
