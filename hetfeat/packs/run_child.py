"""The child that loads and times programs of a pack, with TVM's runtime alone.

    python -m hetfeat.packs.run_child FILE_DESCRIPTOR START

Where `TVM_USE_RUNTIME_LIB` is 1, TVM's compiler is not loaded, and need not be there.
"""

import ctypes
import resource
import sys
from importlib.metadata import version
from multiprocessing.connection import Connection
from typing import Any

from tvm.libinfo import package_lib_paths

from hetfeat.measure.messages import MAX_MESSAGE_BYTES, Handlers, Message, Seconds, Start
from hetfeat.measure.program_timer import ProgramTimer, gone_on_failure, load_library
from hetfeat.measure.worker_loop import serve
from hetfeat.packs.messages import DescribeDevice, DeviceFacts, RunPacked
from hetfeat.parsing import decode
from hetfeat.records import ErrorKind

CUDA_LIBRARY = "libtvm_runtime_cuda.so"


class PackService(ProgramTimer):
    """Loads libraries that were built elsewhere, and times them.

    Args:
        start: Device, and options of timing programs.
    """

    def __init__(self, start: Start) -> None:
        gpu = start.target["kind"] == "cuda"
        self._missing = _load_cuda() if gpu else None
        super().__init__(start.timing, gpu)

    def handlers(self) -> Handlers:
        """What the child does for each message."""
        return {DescribeDevice: self.describe, RunPacked: self.run}

    def describe(self, request: DescribeDevice) -> DeviceFacts:
        """What the device says of itself."""
        arch, name = None, "CPU"
        if self._gpu and self._missing is None and self._device.exist:
            arch = f"sm_{self._device.compute_version.replace('.', '')}"
            name = str(self._device.device_name)
        return DeviceFacts(arch=arch, name=name, tvm=version("apache-tvm"), missing=self._missing)

    def run(self, request: RunPacked) -> Seconds:
        """Seconds of a program, a mean per repeat."""
        library = load_library(request.library, request.kernels)
        arrays = [self._array(i, *argument) for i, argument in enumerate(request.arguments)]
        if not self._gpu:
            return self._latencies(library, arrays, request.incumbent_s, request.cold)
        with gone_on_failure():
            return self._latencies(library, arrays, request.incumbent_s, request.cold)


def _load_cuda() -> str | None:
    """Loads TVM's part for CUDA, which needs CUDA's runtime library and the driver.

    Returns:
        Which of them is missing, or None.
    """
    found = [path for folder in package_lib_paths() if (path := folder / CUDA_LIBRARY).is_file()]
    try:
        ctypes.CDLL(str(found[0] if found else CUDA_LIBRARY), ctypes.RTLD_GLOBAL)
    except OSError as error:
        return str(error)
    return None


def error_kind(request: Message[Any] | None, error: Exception) -> ErrorKind:
    """The kind of a failed request."""
    return "memory" if isinstance(error, MemoryError) or "bad_alloc" in str(error) else "run"


def main(arguments: list[str]) -> None:
    """Serves until the parent is gone; `arguments` are those of the process."""
    descriptor, text = arguments[1:3]
    start = decode(
        text,
        Start,
        what="what a child is told at its start",
        action="start it by `hetfeat pack run`",
        max_bytes=MAX_MESSAGE_BYTES,
    )
    if start.target["kind"] != "cuda":  # a GPU's driver reserves addresses by the hundred GB
        resource.setrlimit(resource.RLIMIT_AS, (start.memory_limit_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(Connection(int(descriptor)), PackService(start).handlers(), error_kind)


if __name__ == "__main__":
    main(sys.argv)
