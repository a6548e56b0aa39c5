"""The measuring child: proposes, builds and times programs of tasks it was given.

    python -m hetfeat.measure.child FILE_DESCRIPTOR START

`START` is a `messages.Start` as JSON. Requests and replies are those of `messages`; a failed
request is answered with its kind of error.
"""

import base64
import os
import resource
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from hetfeat.measure.messages import (
    MAX_MESSAGE_BYTES,
    AddTask,
    ApplyTraces,
    Argument,
    BuildFile,
    BuildProgram,
    ExtractFeatures,
    Handlers,
    LoadProgram,
    Message,
    Proposal,
    RunProgram,
    SamplePrograms,
    Seconds,
    Start,
    VaryPrograms,
)
from hetfeat.measure.program_timer import ProgramTimer, gone_on_failure, load_library
from hetfeat.measure.worker_loop import KindOf, serve
from hetfeat.parsing import decode
from hetfeat.records import ErrorKind
from hetfeat.schedules.design_space import TaskSpace, as_candidate, replay
from hetfeat.workloads.relax import load_workload

BIG_CORES_FIRST = 1
"""Mode in which TVM's thread pool chooses cores: the big ones first."""


class Service(ProgramTimer):
    """State of the child: the tasks it knows and the programs it has built.

    Args:
        start: Device, and options of timing programs.
    """

    def __init__(self, start: Start) -> None:
        super().__init__(start.timing, start.target["kind"] == "cuda")
        self._target = tvm.target.Target(start.target)
        self._cache_line_bytes, self._full_rate = start.cache_line_bytes, start.full_rate
        self._spaces: dict[str, TaskSpace] = {}
        self._built: dict[str, Any] = {}

    def handlers(self) -> Handlers:
        """What the child does for each message."""
        return {
            AddTask: self.add_task,
            SamplePrograms: self.sample,
            VaryPrograms: self.vary,
            ApplyTraces: self.apply,
            ExtractFeatures: self.features,
            BuildProgram: self.build,
            LoadProgram: self.load,
            RunProgram: self.run,
        }

    def add_task(self, request: AddTask) -> None:
        """Makes a task known."""
        module = load_workload(request.module)
        self._spaces[request.task] = TaskSpace(
            module, self._target, self._cache_line_bytes, full_rate=self._full_rate
        )

    def sample(self, request: SamplePrograms) -> list[Proposal]:
        """Random programs."""
        space = self._spaces[request.task]
        return [_pack(*found) for found in space.sample(request.count, request.seed)]

    def vary(self, request: VaryPrograms) -> list[Proposal]:
        """Programs near others."""
        space = self._spaces[request.task]
        varied = space.vary(request.parents, request.count, request.seed)
        return [_pack(*found) for found in varied]

    def apply(self, request: ApplyTraces) -> list[Proposal]:
        """The programs of traces, less what does not apply."""
        return [_pack(*found) for found in self._spaces[request.task].apply(request.traces)]

    def features(self, request: ExtractFeatures) -> list[str | None]:
        """Per-store features of recorded programs, None for those that do not replay."""
        found = map(self._spaces[request.task].features, request.traces)
        return [None if features is None else _encode(features) for features in found]

    def build(self, request: BuildProgram) -> None:
        """Compiles a program in memory and keeps it for `run`."""
        executable, arguments = self._compile(request.task, request.trace)
        library = executable.jit()
        library["main"]  # LLVM compiles on the first look-up: here, not in the timed run
        arrays = [self._array(i, *a) for i, a in enumerate(arguments)]
        self._built[request.program] = library, arrays

    def load(self, request: LoadProgram) -> None:
        """Keeps a library that was built elsewhere for `run`."""
        library = load_library(request.path, request.kernels)
        arrays = [self._array(i, *a) for i, a in enumerate(request.arguments)]
        self._built[request.program] = library, arrays

    def run(self, request: RunProgram) -> Seconds:
        """Seconds of one run, a mean per repeat; the built program is let go unless kept.

        Cold: of single runs, each after all arguments but the first have left the caches. In a
        network the first, the data, has just been written; the weights are long gone.
        """
        take = self._built.__getitem__ if request.keep else self._built.pop
        library, arguments = take(request.program)
        if self._gpu:
            with gone_on_failure():
                return self._latencies(library, arguments, request.incumbent_s, request.cold)
        if request.threads is not None:
            tvm.get_global_func("runtime.config_threadpool")(BIG_CORES_FIRST, request.threads)
        return self._latencies(library, arguments, request.incumbent_s, request.cold)

    def _compile(self, task: str, trace: str) -> tuple[Any, list[Argument]]:
        """A program's executable, and the shape and type of each of its arguments."""
        candidate = as_candidate(replay(self._spaces[task].module, trace))
        module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(candidate.sch.mod)
        arguments = [(tuple(int(n) for n in a.shape), str(a.dtype)) for a in candidate.args_info]
        return tvm.compile(module, self._target), arguments


def error_kind(request: Message[Any] | None, error: Exception) -> ErrorKind:
    """The kind of a failed request."""
    if isinstance(error, MemoryError) or "bad_alloc" in str(error):
        return "memory"
    match request:
        case BuildProgram() | BuildFile() | LoadProgram():
            return "build"
        case RunProgram():
            return "run"
    return "schedule"


def _pack(trace: str, features: Any) -> Proposal:
    return trace, _encode(features)


def _encode(features: Any) -> str:
    return base64.b64encode(features.tobytes()).decode()


def main(
    service: Callable[[Start], Service], arguments: list[str], kind_of: KindOf = error_kind
) -> None:
    """Serves until the parent is gone; `arguments` are those of the process."""
    descriptor, text = arguments[1:3]
    start = decode(
        text,
        Start,
        what="what a child is told at its start",
        action="start it by its measurer",
        max_bytes=MAX_MESSAGE_BYTES,
    )
    if start.target["kind"] == "cuda":
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
    else:  # a GPU's driver reserves addresses by the hundred GB
        resource.setrlimit(resource.RLIMIT_AS, (start.memory_limit_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(Connection(int(descriptor)), service(start).handlers(), kind_of)


if __name__ == "__main__":
    main(Service, sys.argv)
