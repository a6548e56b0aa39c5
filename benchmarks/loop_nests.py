"""Loop nests of auto-scheduler programs, interpreted from their traces: what baselines read.

A record does not hold the computation. So a block with as many loops as the output has dimensions
is taken to have their extents, and an argument's dimension to belong to the axis of its extent: of
that dimension a loop touches as much as the axis covers inside it, and of all others everything.
Extents that stay unknown are 0. Loops of one iteration without an annotation are left out.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from hetfeat.dataset.store import RecordStore
from hetfeat.features.batch import Examples
from hetfeat.features.trace import WIDTH

KINDS = {"": 0, "Parallel": 1, "Vectorize": 2, "Unroll": 3, "vthread": 4, "blockIdx": 5}
THREAD = 6
LEVELS, ARGUMENTS = 8, 3
ELEMENT_BYTES = 4
BLOCK_WIDTH = THREAD + 4 + 2 * LEVELS


@dataclass
class Loop:
    """`axis` is what it was split from; `extent` is 0 where it is not known."""

    axis: str
    extent: float
    kind: int = 0


@dataclass
class Block:
    """Loops outermost first, extents of its axes, and the step that it is unrolled by."""

    loops: list[str] = field(default_factory=list)
    axes: dict[str, float] = field(default_factory=dict)
    unroll: float = 0.0
    inlined: bool = False


@dataclass(frozen=True)
class Level:
    """A loop among the others of its block: iterations outside and inside, bytes by argument."""

    loop: Loop
    outside: float
    inside: float
    touched: list[float]


class Nest:
    """The blocks of a program."""

    def __init__(self, trace: str, output: list[int]) -> None:
        instructions, decisions = json.loads(trace)
        self.loops: dict[str, Loop] = {}
        self.blocks: dict[str, Block] = {}
        self.home: dict[str, Block] = {}
        self.output = output
        self.values: dict[str, float] = {}
        chosen = dict(decisions)
        for index, (kind, inputs, attributes, outputs) in enumerate(instructions):
            if kind == "SamplePerfectTile":
                self.values.update(zip(outputs, chosen[index], strict=True))
                self._cover(inputs[0], math.prod(chosen[index]))
            elif kind == "GetLoops":
                self._get_loops(inputs[0], outputs)
            elif kind == "Split":
                self._split(inputs[0], inputs[1:], outputs)
            elif kind == "Fuse":
                self._fuse(inputs, outputs[0])
            elif kind == "Reorder":
                self.home[inputs[0]].loops = list(inputs)
            elif kind in KINDS:
                self.loops[inputs[0]].kind = KINDS[kind]
            elif kind == "Bind":
                self.loops[inputs[0]].kind = KINDS.get(attributes[0].split(".")[0], THREAD)
            elif kind == "Annotate" and inputs[0] in self.home:
                self.home[inputs[0]].unroll = float(inputs[1])
            elif kind == "ComputeInline":
                self.blocks.setdefault(inputs[0], Block()).inlined = True

    def _get_loops(self, block: str, outputs: list[str]) -> None:
        found = self.blocks.setdefault(block, Block())
        extents = self.output if len(outputs) == len(self.output) else [0] * len(outputs)
        found.loops, found.axes = list(outputs), dict(zip(outputs, extents, strict=True))
        for name, extent in found.axes.items():
            self.loops[name], self.home[name] = Loop(name, float(extent)), found

    def _cover(self, name: str, extent: float) -> None:
        self.loops[name].extent = extent
        if name in self.home[name].axes:
            self.home[name].axes[name] = extent

    def _split(self, name: str, factors: list, outputs: list[str]) -> None:
        old, block = self.loops[name], self.home[name]
        known = [self.values.get(f, 0.0) if isinstance(f, str) else float(f) for f in factors]
        if 0.0 in known:
            known[known.index(0.0)] = -(-old.extent // math.prod(f for f in known if f))
        at = block.loops.index(name)
        block.loops[at : at + 1] = outputs
        for output, extent in zip(outputs, known, strict=True):
            self.loops[output], self.home[output] = Loop(old.axis, extent), block

    def _fuse(self, inputs: list[str], output: str) -> None:
        block = self.home[inputs[0]]
        at = block.loops.index(inputs[0])
        block.loops[at : at + len(inputs)] = [output]
        axes = {self.loops[name].axis for name in inputs}
        extent = math.prod(self.loops[name].extent for name in inputs)
        self.loops[output] = Loop(axes.pop() if len(axes) == 1 else output, extent)
        self.home[output] = block

    def levels(self, block: Block, shapes: list[list[int]]) -> list[Level]:
        """Loops that do something, outermost first."""
        loops = [self.loops[name] for name in block.loops]
        found, inside, total = [], 1.0, math.prod(max(loop.extent, 1) for loop in loops)
        covered: dict[str, float] = {}
        for loop in reversed(loops):
            extent = max(loop.extent, 1)
            inside *= extent
            covered[loop.axis] = covered.get(loop.axis, 1) * extent
            if loop.kind or loop.extent != 1:
                touched = [touched_bytes(shape, block.axes, covered) for shape in shapes]
                found.append(Level(loop, total / inside, inside, touched))
        return found[::-1]


def touched_bytes(shape: list[int], axes: dict[str, float], covered: dict[str, float]) -> float:
    """Of an argument, where each axis covers so many iterations."""
    free, elements = dict(axes), 1.0
    for dimension in shape:
        axis = next((name for name, extent in free.items() if extent == dimension), None)
        free.pop(axis, None)
        elements *= dimension if axis is None else min(covered.get(axis, 1), dimension)
    return ELEMENT_BYTES * elements


def rows_of(trace: str, shapes: list[list[int]]) -> tuple[list[list[float]], list[list[float]]]:
    """A program's rows by block, for a sum over blocks, and by loop, for a sequence."""
    nest = Nest(trace, shapes[-1] if shapes else [])
    arguments = sorted(shapes, key=math.prod)[-ARGUMENTS:]
    blocks, loops = [], []
    for number, block in enumerate(b for b in nest.blocks.values() if not b.inlined):
        levels = nest.levels(block, arguments)
        loops += [loop_row(level, number, block.unroll) for level in levels]
        blocks.append(block_row(levels, block.unroll))
    return blocks or [[0.0] * BLOCK_WIDTH], loops or [[0.0] * WIDTH]


def loop_row(level: Level, number: int, unroll: float) -> list[float]:
    kinds = [float(level.loop.kind == kind) for kind in range(THREAD + 1)]
    touched = sum(level.touched)
    sizes = [level.loop.extent, level.outside, level.inside, touched, touched / level.inside]
    sizes += [*level.touched, *[0.0] * (ARGUMENTS - len(level.touched)), unroll, number]
    row = [*kinds, *(math.log2(1 + size) for size in sizes)]
    return row + [0.0] * (WIDTH - len(row))


def block_row(levels: list[Level], unroll: float) -> list[float]:
    extents = [0.0] * (THREAD + 1)
    for level in levels:
        if level.loop.kind:
            extents[level.loop.kind] = max(extents[level.loop.kind], level.loop.extent)
    innermost = levels[::-1][:LEVELS]
    sizes = [*extents[1:], levels[0].inside if levels else 0.0, unroll, len(levels)]
    sizes.append(sum(levels[0].touched) if levels else 0.0)
    for of in (lambda level: level.loop.extent, lambda level: sum(level.touched)):
        sizes += [*map(of, innermost), *[0.0] * (LEVELS - len(innermost))]
    return [math.log2(1 + size) for size in sizes]


def with_nests(store: RecordStore, examples: Examples) -> Examples:
    """The examples with blocks in the place of stores, and loops in that of primitives."""
    if len(examples.batch.loaded().stores):
        raise SystemExit("loop nests are interpreted from records of the auto-scheduler alone")
    wanted = set(examples.program.tolist())
    found = dict(_rows(store, wanted))
    rows = [found[key] for key in examples.program.tolist()]
    blocks, loops = ([row[part] for row in rows] for part in (0, 1))
    batch = replace(
        examples.batch,
        stores=np.array([row for each in blocks for row in each], np.float32),
        offsets=np.cumsum([0, *map(len, blocks)]),
        steps=np.array([row for each in loops for row in each], np.float32),
        step_offsets=np.cumsum([0, *map(len, loops)]),
    )
    return replace(examples, batch=batch)


def _rows(store: RecordStore, wanted: set[str]) -> Iterator[tuple[str, tuple]]:
    for table in store.scan(["program", "trace", "shapes"]):
        for row in table.to_pylist():
            if row["program"] in wanted:
                wanted.remove(row["program"])
                yield row["program"], rows_of(row["trace"], json.loads(row["shapes"]))
