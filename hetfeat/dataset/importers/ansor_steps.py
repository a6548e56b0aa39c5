"""The transform steps of the auto-scheduler, interpreted into a trace.

Programs of one sketch differ in numbers only: the factors of splits and the unrolling steps. So
the steps are interpreted once for all programs of a skeleton, each number being an array with one
element a program, and so are the extents that follow from them.

Stages and iterators of the computation itself are not in a record. They are supposed to exist when
a step names them, until a step tells how many there are.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

Numbers = npt.NDArray[np.float64]
"""Whole numbers, one a program; 0 is an extent that is not known."""

MOST_IDS = 512
"""Stages of a computation and iterators of a stage; networks' tasks have a few dozen."""
MOST_PARTS = 16
MOST_VARIABLES = 2**16
"""Most variables of a trace; a kilobyte of steps could name half a million loops."""
LARGEST = 2.0**52
"""Largest product; up to here those of doubles are exact."""
MAX_INNERMOST = 64
"""`max_innermost_factor` of a `SamplePerfectTile`: the auto-scheduler's own limit."""

TAKEN = "$N"
"""What `take_numbers` leaves of a pragma's number."""

ANNOTATIONS = (
    "",
    *("unroll", "vectorize", "parallel", "vthread.x"),
    *("blockIdx.x", "threadIdx.x", "blockIdx.y", "threadIdx.y", "blockIdx.z", "threadIdx.z"),
    "tensorize",
)
"""What a loop may be annotated with, in the order of the records' numbers."""
_PRIMITIVES = {"unroll": "Unroll", "vectorize": "Vectorize", "parallel": "Parallel"}


class Uninterpretable(ValueError):
    """Steps that refer to what there is not, for every program of the skeleton."""


@dataclass
class Loop:
    """A loop of a stage.

    Attributes:
        name: Name of its variable in the trace.
        extent: Number of its iterations, float64 [programs]; 0 where it is not known.
        annotation: Annotation, one of `ANNOTATIONS`; empty, the default, for none.
    """

    name: str
    extent: Numbers
    annotation: str = ""


@dataclass(eq=False)
class Stage:
    """A stage: a block of the program with the loops around it, outermost first.

    Attributes:
        name: Name of the stage in the trace, in which stages of the computation are numbered; empty
            by default.
        block: Name of its variable in the trace; empty, the default, until a step names the stage.
        loops: Loops known so far, outermost first; none by default.
        complete: Whether there are no loops but those known; false by default.
        at: Stage and loop that it is computed at; None, the default, for the root.
        inlined: Whether it has no loops of its own any more; false by default.
    """

    name: str = ""
    block: str = ""
    loops: list[Loop] = field(default_factory=list)
    complete: bool = False
    at: tuple["Stage", Loop] | None = None
    inlined: bool = False
    originals: list[str] | None = None
    """Outputs of its GetLoops in the trace, to which loops are added as steps name them."""


class Interpreter:
    """Runs steps over the programs of one skeleton.

    Args:
        numbers: Numbers that `take_numbers` took out of the steps, float64 [programs, numbers].
    """

    def __init__(self, numbers: Numbers) -> None:
        self.stages: list[Stage] = []
        self.instructions: list[list[Any]] = []
        self.decisions: list[list[Any]] = []
        self.wrong: list[tuple[str, npt.NDArray[np.bool_]]] = []
        self._splits: dict[int, tuple[Numbers, list[Numbers]]] = {}
        self._columns = iter(np.ascontiguousarray(numbers.T))
        self._unknown = np.zeros(len(numbers))
        self._step = 0
        self._variables = 0
        self._computed = 0

    def run(self, steps: list[Any]) -> None:
        """Interprets all steps.

        Raises:
            Uninterpretable: A step is malformed or refers to what there is not.
        """
        for index, (kind, *arguments) in enumerate(steps):
            if type(kind) is not str or kind not in _STEPS:
                raise Uninterpretable("step of an unknown kind")
            types, apply = _STEPS[kind]
            if tuple(map(type, arguments)) != types:
                raise Uninterpretable(f"{kind} with other arguments")
            self._step = index
            apply(self, *arguments)

    def traces(self, which: npt.NDArray[np.bool_]) -> list[str]:
        """The traces of the programs of a mask, as compact JSON."""
        columns: list[Numbers] = []

        def hole(value: Any) -> str:
            columns.append(value)
            return "\0"

        text = orjson.dumps([self.instructions, self.decisions], default=hole).decode()
        pattern = text.replace("%", "%%").replace('"\\u0000"', "%d")
        if not columns:
            return [text] * int(which.sum())
        rows = np.stack(columns, 1)[which].astype(np.int64)
        return [pattern % tuple(row) for row in rows.tolist()]

    def _refuse(self, where: npt.NDArray[np.bool_], reason: str) -> None:
        if where.any():
            self.wrong.append((reason, where))

    def _new(self, letter: str) -> str:
        self._variables += 1
        if self._variables > MOST_VARIABLES:
            raise Uninterpretable("more loops than a program has")
        return f"{letter}{self._variables - 1}"

    def _emit(
        self, kind: str, inputs: list[Any], attributes: list[Any], outputs: list[str]
    ) -> None:
        self.instructions.append([kind, inputs, attributes, outputs])

    def _stage(self, index: int, inlined: bool = False) -> Stage:
        if not 0 <= index < MOST_IDS:
            raise Uninterpretable("stage that does not exist")
        while len(self.stages) <= index:
            self.stages.append(Stage(f"stage{self._computed}"))
            self._computed += 1
        stage = self.stages[index]
        if not stage.block:
            stage.block = self._new("b")
            self._emit("GetSBlock", [], [stage.name, "main"], [stage.block])
        if stage.inlined and not inlined:
            raise Uninterpretable("step on a stage that was inlined")
        return stage

    def _loop(self, stage: Stage, index: int) -> Loop:
        if not 0 <= index < (len(stage.loops) if stage.complete else MOST_IDS):
            raise Uninterpretable("iterator that does not exist")
        if stage.originals is None:
            stage.originals = []
            self._emit("GetLoops", [stage.block], [], stage.originals)
        while len(stage.loops) <= index:
            loop = Loop(self._new("l"), self._unknown)
            stage.loops.append(loop)
            stage.originals.append(loop.name)
        return stage.loops[index]

    def _split(self, stage: Stage, index: int, extents: list[Numbers], factors: list[Any]) -> None:
        old = self._loop(stage, index)
        loops = [Loop(self._new("l"), extent) for extent in extents]
        self._emit("Split", [old.name, *factors], [1, 0], [loop.name for loop in loops])
        stage.loops[index : index + 1] = loops

    def _sp(self, stage_id: int, index: int, _: int, count: int, inner_to_outer: int) -> None:
        if not 0 < count <= MOST_PARTS:
            raise Uninterpretable("SP of no parts or too many")
        given, lengths = next(self._columns), [next(self._columns) for _ in range(count)]
        stage = self._stage(stage_id)
        loop = self._loop(stage, index)
        known = loop.extent
        self._refuse((given < 0) | (given > LARGEST), "split of a negative or boundless extent")
        self._refuse((given > 0) & (known > 0) & (given != known), "split of another extent")
        extent = np.where(given > 0, given, known)
        outermost = self._outermost(extent, lengths)
        extents = [outermost, *lengths] if inner_to_outer else [*lengths, outermost]
        factors = [self._new("v") for _ in extents]
        self._emit("SamplePerfectTile", [loop.name], [len(factors), MAX_INNERMOST], factors)
        self.decisions.append([len(self.instructions) - 1, extents])
        self._split(stage, index, extents, factors)
        self._splits[self._step] = extent, lengths

    def _fsp(self, stage_id: int, index: int, source: int, count: int) -> None:
        extent, lengths = self._source(source)
        if not 1 <= count <= len(lengths) + 1:
            raise Uninterpretable("FSP of more parts than its split has")
        last = self._product(lengths[count - 1 :])
        # The auto-scheduler follows splits from a stage to its consumer, along the same axis.
        self._constant_split(stage_id, index, extent, [*lengths[: count - 1], last], True)

    def _ffsp(self, stage_id: int, index: int, sources: list[int], level: int, factor: int) -> None:
        splits = [self._source(source)[1] for source in sources]
        if not all(0 <= level < len(lengths) for lengths in splits):
            raise Uninterpretable("FFSP of a level that its splits have not")
        length = self._product([lengths[level] for lengths in splits])
        self._constant_split(stage_id, index, self._unknown, [length], bool(factor))

    def _constant_split(
        self,
        stage_id: int,
        index: int,
        extent: Numbers,
        lengths: list[Numbers],
        inner_to_outer: bool,
    ) -> None:
        """Splits a loop of this extent, should its own not be known."""
        stage = self._stage(stage_id)
        known = self._loop(stage, index).extent
        outermost = self._outermost(np.where(known > 0, known, extent), lengths)
        factor = outermost if outermost.all() else "None"
        if inner_to_outer:
            self._split(stage, index, [outermost, *lengths], [factor, *lengths])
        else:
            self._split(stage, index, [*lengths, outermost], [*lengths, factor])

    def _source(self, step: int) -> tuple[Numbers, list[Numbers]]:
        if type(step) is not int or step not in self._splits:
            raise Uninterpretable("split that follows no split")
        return self._splits[step]

    def _product(self, numbers: list[Numbers]) -> Numbers:
        product = np.prod(numbers, axis=0) if numbers else np.ones_like(self._unknown)
        self._refuse(product > LARGEST, "extent beyond all bounds")
        return np.minimum(product, LARGEST)

    def _outermost(self, extent: Numbers, lengths: list[Numbers]) -> Numbers:
        """ceil(extent / product), so that the factors cover the extent."""
        for length in lengths:
            self._refuse(length < 1, "split by a factor below one")
        return -(-extent // np.maximum(self._product(lengths), 1))

    def _re(self, stage_id: int, order: list[int]) -> None:
        stage = self._stage(stage_id)
        _check_ids(order)
        if sorted(order) != list(range(len(order))) or len(order) < len(stage.loops):
            raise Uninterpretable("RE that is no permutation of the iterators")
        self._loop(stage, len(order) - 1)
        stage.loops = [stage.loops[index] for index in order]
        stage.complete = True
        self._emit("Reorder", [loop.name for loop in stage.loops], [], [])

    def _fu(self, stage_id: int, indices: list[int]) -> None:
        stage = self._stage(stage_id)
        _check_ids(indices)
        if indices != list(range(indices[0], indices[0] + len(indices))):
            raise Uninterpretable("FU of iterators that are not consecutive")
        loops = [self._loop(stage, index) for index in indices]
        fused = Loop(self._new("l"), self._product([loop.extent for loop in loops]))
        self._emit("Fuse", [loop.name for loop in loops], [1], [fused.name])
        stage.loops[indices[0] : indices[-1] + 1] = [fused]

    def _an(self, stage_id: int, index: int, kind: int) -> None:
        loop = self._loop(self._stage(stage_id), index)
        if not 0 <= kind < len(ANNOTATIONS):
            raise Uninterpretable("annotation of an unknown kind")
        loop.annotation = ANNOTATIONS[kind]
        if loop.annotation in _PRIMITIVES:
            self._emit(_PRIMITIVES[loop.annotation], [loop.name], [], [])
        elif loop.annotation == "tensorize":
            self._emit("Tensorize", [loop.name], ["", 1], [])
        elif loop.annotation:
            self._emit("Bind", [loop.name], [loop.annotation], [])

    def _pr(self, stage_id: int, index: int, pragma: str) -> None:
        loop = self._loop(self._stage(stage_id), index)
        name = pragma.removesuffix(TAKEN)
        value = 1 if name == pragma else next(self._columns, None)
        if value is None or not re.fullmatch(r"\w+", name, re.ASCII):
            raise Uninterpretable("PR of an unknown form")
        self._emit("Annotate", [loop.name, value], [f"pragma_{name}"], [])

    def _ca(self, stage_id: int, target_id: int, index: int) -> None:
        stage, target = self._stage(stage_id), self._stage(target_id)
        if stage is target:
            raise Uninterpretable("CA of a stage at itself")
        stage.at = (target, self._loop(target, index))
        self._forget_extents(stage)
        self._emit("ComputeAt", [stage.block, stage.at[1].name], [1, -1], [])

    def _cr(self, stage_id: int) -> None:
        stage = self._stage(stage_id, inlined=True)
        stage.at, stage.inlined = None, False
        self._forget_extents(stage)
        self._emit("ComputeRoot", [stage.block], [], [])

    def _ci(self, stage_id: int) -> None:
        stage = self._stage(stage_id)
        stage.inlined = True
        self._emit("ComputeInline", [stage.block], [], [])

    def _chr(self, stage_id: int, scope: str, readers: list[int]) -> None:
        _check_ids(readers)
        stage = self._stage(stage_id)
        blocks = [self._stage(reader).block for reader in readers]
        made = Stage(block=self._new("b"))
        self.stages.insert(stage_id + 1, made)
        self._emit("CacheRead", [stage.block, blocks], [0, _checked(scope)], [made.block])

    def _chw(self, stage_id: int, scope: str) -> None:
        stage = self._stage(stage_id)
        # As in TVM's schedules the block goes on to compute, and the new one copies.
        self.stages.insert(stage_id, Stage(block=stage.block))
        self._start_anew(stage, self._new("b"))
        inputs = [self.stages[stage_id].block, []]
        self._emit("CacheWrite", inputs, [0, _checked(scope)], [stage.block])

    def _rf(self, stage_id: int, index: int, factor_axis: int) -> None:
        stage = self._stage(stage_id)
        loop = self._loop(stage, index)
        made = Stage(block=self._new("b"))
        self.stages.insert(stage_id, made)
        self._start_anew(stage, stage.block)
        self._emit("RFactor", [loop.name], [factor_axis], [made.block])

    def _sa(self, stage_id: int, index: int, factor: int, offset: int) -> None:
        stage = self._stage(stage_id)
        self._loop(stage, index)
        self._emit("StorageAlign", [stage.block], [0, index, factor, offset], [])

    def _start_anew(self, stage: Stage, block: str) -> None:
        stage.block, stage.loops, stage.complete, stage.originals = block, [], False, None

    def _forget_extents(self, stage: Stage) -> None:
        """A stage that moves computes as much as its new place needs."""
        for loop in stage.loops:
            loop.extent = self._unknown


def take_numbers(steps: list[Any]) -> list[Any]:
    """Takes the numbers that differ between programs of one sketch out of `steps`.

    Extents and lengths of splits and the numbers after `$` in pragmas; what is left in place, the
    skeleton, says how many they were. Their types are the caller's to check.
    """
    numbers: list[Any] = []
    for step in steps:
        kind = step[0]
        if kind == "SP":
            numbers.append(step[3])
            numbers += step[4]
            step[3], step[4] = 0, len(step[4])
        elif kind == "PR":
            name, _, value = step[3].partition("$")
            if value.isdecimal() and value.isascii() and len(value) < 10:
                numbers.append(int(value))
                step[3] = name + TAKEN
    return numbers


def _check_ids(ids: list[Any]) -> None:
    if not ids or len(ids) > MOST_IDS or any(type(index) is not int for index in ids):
        raise Uninterpretable("list of ids that is none")


def _checked(scope: str) -> str:
    if not re.fullmatch(r"[\w.]+", scope, re.ASCII):
        raise Uninterpretable("memory scope that is none")
    return scope


_STEPS: dict[str, tuple[tuple[type, ...], Callable[..., object]]] = {
    "SP": ((int, int, int, int, int), Interpreter._sp),
    "FSP": ((int, int, int, int), Interpreter._fsp),
    "FFSP": ((int, int, list, int, int), Interpreter._ffsp),
    "RE": ((int, list), Interpreter._re),
    "FU": ((int, list), Interpreter._fu),
    "AN": ((int, int, int), Interpreter._an),
    "PR": ((int, int, str), Interpreter._pr),
    "CA": ((int, int, int), Interpreter._ca),
    "CI": ((int,), Interpreter._ci),
    "CR": ((int,), Interpreter._cr),
    "CHR": ((int, str, list), Interpreter._chr),
    "CHW": ((int, str), Interpreter._chw),
    "RF": ((int, int, int), Interpreter._rf),
    "SA": ((int, int, int, int), Interpreter._sa),
}
"""Kind of a step -> types of its arguments after `take_numbers`, and what it does."""
