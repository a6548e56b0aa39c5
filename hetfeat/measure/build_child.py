"""The child that proposes programs, and builds them into files for a device that is elsewhere.

Its arguments are those of `hetfeat.measure.child`.
"""

import os
import sys
from pathlib import Path

import tvm_ffi

from hetfeat.devices.target import linker
from hetfeat.measure import child as here
from hetfeat.measure.kernels import compile_kernels
from hetfeat.measure.messages import Argument, BuildFile, Handlers, Start

KERNELS = ".cubin"
KEEP_SOURCE = "TVM_COMPILE_FORCE_FALLBACK"
STAND_IN = "// the kernels lie beside this library\n"
"""What a library holds in place of their source; its runner answers with their machine code."""


class BuildService(here.Service):
    """Builds into files; the kernels of a GPU into one beside the library.

    Args:
        start: Device, and options of building for it.
    """

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self._linker = linker({"kind": "llvm"} if self._gpu else start.target)
        self._source = ""
        if self._gpu:
            self._arch = str(start.target["arch"])
            os.environ[KEEP_SOURCE] = "1"  # with a driver as without one
            tvm_ffi.register_global_func(
                "tvm_callback_cuda_postproc", self._take_source, override=True
            )

    def handlers(self) -> Handlers:
        """What the child does for each message."""
        return {**super().handlers(), BuildFile: self.build_file}

    def build_file(self, request: BuildFile) -> list[Argument]:
        """Compiles a program into a library; returns its arguments' shapes and types."""
        self._source = ""
        executable, arguments = self._compile(request.task, request.trace)
        path = Path(request.path)
        if self._gpu:
            path.with_suffix(KERNELS).write_bytes(compile_kernels(self._source, self._arch))
        executable.export_library(request.path, fcompile=self._linker, options=["-s"])
        return arguments

    def _take_source(self, source: str, target: object) -> str:
        self._source = str(source)
        return STAND_IN


if __name__ == "__main__":
    here.main(BuildService, sys.argv)
