"""The shared memory that a trace asks of a GPU's block, before it is applied.

Of MetaSchedule's multi-level tiling for CUDA: what a block reads of its operands between two
barriers is copied to shared memory, once for each stage of a software pipeline. A tile of a loop,
there, is all of its factors but the outermost.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.schedules.trace import TILE, Trace

TILING = '"SSSRRSRS"'
"""The structure that this is the arithmetic of."""
STAGES = "software_pipeline_stage"


@dataclass(frozen=True)
class Read:
    """An operand that a kernel reads.

    Attributes:
        strides: Strides of its indices by the kernel's loops, int [dimensions, loops].
        bytes: Size of an element in bytes.
    """

    strides: npt.NDArray[np.int64]
    bytes: int

    def tile_bytes(self, tile: list[int]) -> int:
        """What a tile of the loops, int [loops], reads of it."""
        spans = np.abs(self.strides) @ (np.array(tile) - 1) + 1
        return int(spans.prod()) * self.bytes


class SharedMemory:
    """How much of it a block may have, and what the blocks of a kernel read.

    Args:
        limit_bytes: Most shared memory of a block of threads, in bytes.
        reads_of: Function that gives the operands of a kernel's block by its name; None for one
            whose indices are not linear in the loops.
    """

    def __init__(self, limit_bytes: int, reads_of: Callable[[str], Sequence[Read | None]]) -> None:
        self._limit_bytes, self._reads_of = limit_bytes, reads_of

    def holds(self, trace: Trace) -> bool:
        """Whether a block's operands find room, as far as their indices are linear in the loops."""
        instructions, decisions = trace
        chosen = dict(decisions)
        names: dict[str, str] = {}
        loops: dict[str, list[str]] = {}
        tiles: dict[str, int] = {}
        tiled: set[str] = set()
        copied: list[tuple[str, int]] = []
        stages = 1
        for index, (kind, inputs, attributes, outputs) in enumerate(instructions):
            if kind == "GetSBlock":
                names[outputs[0]] = attributes[0]
            elif kind == "GetLoops":
                loops.setdefault(inputs[0], outputs)
            elif kind == TILE and index in chosen:
                tiles[inputs[0]] = math.prod(chosen[index][1:])
            elif kind == "Annotate" and inputs[1] == TILING:
                tiled.add(inputs[0])
            elif kind == "Annotate" and attributes[0] == STAGES:
                stages = 1 + max(inputs[1])
            elif kind == "CacheRead" and attributes[1] == "shared" and inputs[0] in tiled:
                copied.append((inputs[0], attributes[0]))
        return self._limit_bytes >= stages * sum(
            self._bytes(names[block], position, [tiles.get(loop, 1) for loop in loops[block]])
            for block, position in copied
        )

    def _bytes(self, block: str, position: int, tile: list[int]) -> int:
        read = self._reads_of(block)[position]
        return 0 if read is None else read.tile_bytes(tile)
