"""What a pack says of itself, and of each program in it."""

from typing import Literal, Self

from pydantic import model_validator

from hetfeat.devices.profile import DeviceProfile
from hetfeat.measure.messages import Argument
from hetfeat.parsing import Count, Digest, FileName, Json, Schema
from hetfeat.records import ErrorKind, Program, Task

PACK_FORMAT: Literal[1] = 1
Shapes = tuple[tuple[Count, ...], ...]


class PackedTask(Schema):
    """A task of the programs of a pack.

    Attributes:
        hash: Structural hash of the workload.
        operator: Anchor operator.
        shapes: Shape of each argument, outputs last.
        dtype: Element type of the output.
        flops: Floating-point operations of one run.
        module: Module of the task, as `save_workload` writes it.
    """

    hash: str
    operator: str
    shapes: Shapes
    dtype: str
    flops: float
    module: str

    @property
    def task(self) -> Task:
        """The task without its module."""
        return Task(self.hash, self.operator, self.shapes, self.dtype, self.flops)


class PackedProgram(Schema):
    """A program that was built, or failed to.

    Attributes:
        task: Hash of its task.
        trace: Schedule of the program.
        arguments: Shape and type of each argument of `main`; none of a failure.
        library: Name of the file with its code for a CPU; None for a failure.
        kernels: Name of the file with its kernels for a GPU; None without a GPU.
        error: Kind of failure of its build; None if it was built.
    """

    task: str
    trace: str
    arguments: tuple[Argument, ...]
    library: FileName | None
    kernels: FileName | None
    error: ErrorKind | None


class Manifest(Schema):
    """The manifest of a pack.

    Attributes:
        format: Version of the format.
        profile: Profile of the device, as `DeviceProfile.to_dict` gives it.
        code_features: Names that LLVM has for the CPU features that the code may use.
        tvm: Version of the TVM that built the programs.
        networks: Occurrences of tasks, by network and task hash.
        tasks: Tasks of the programs.
        programs: Programs in the order in which they are to be measured.
        files: SHA-256 of each file, by name.
    """

    format: Literal[1]
    profile: dict[str, Json]
    code_features: list[str]
    tvm: str
    networks: dict[str, dict[str, Count]]
    tasks: list[PackedTask]
    programs: list[PackedProgram]
    files: dict[FileName, Digest]

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        tasks = {task.hash for task in self.tasks}
        named = set[str]()
        for program in self.programs:
            if program.task not in tasks:
                raise ValueError("a program of a task that is not there")
            if (program.library is None) != (program.error is not None):
                raise ValueError("a program with neither a library nor an error, or with both")
            named |= {name for name in (program.library, program.kernels) if name is not None}
        if named != set(self.files):
            raise ValueError("files that are not those of the programs")
        return self

    def device(self, where: str) -> DeviceProfile:
        """The profile of the device; `where` names the pack in an error."""
        return DeviceProfile.from_dict(self.profile, where)

    def tasks_by_hash(self) -> dict[str, PackedTask]:
        """The tasks by their hashes."""
        return {task.hash: task for task in self.tasks}


def program_of(packed: PackedProgram, task: PackedTask) -> Program:
    """A packed program as records know it."""
    return Program(task.task, packed.trace)
