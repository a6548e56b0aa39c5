"""Kernels for an NVIDIA GPU, compiled by nvcc when a bundle is made: no GPU is needed for it."""

from collections.abc import Mapping
from typing import Any

from hetfeat.errors import WorkFailed


def compile_kernels(executable: Any, target: Mapping[str, Any]) -> bytes:
    """The kernels of a compiled network as a fatbin.

    It holds machine code for the target's architecture, and PTX, which later ones compile.

    Raises:
        WorkFailed: There is no nvcc, or it does not know the architecture.
    """
    import tvm
    from tvm.support import nvcc

    (source,) = [
        kernels.inspect_source()
        for host in executable.mod.imports
        for kernels in host.imports
        if kernels.kind == "cuda"
    ]
    number = target["arch"].removeprefix("sm_")
    architecture = ["-gencode", f"arch=compute_{number},code=[sm_{number},compute_{number}]"]
    try:
        with tvm.target.Target(dict(target)):
            compiled = nvcc.compile_cuda(
                source, "fatbin", architecture, ["--no-compress"], compiler="nvcc"
            )
    except (FileNotFoundError, RuntimeError) as error:
        said = str(error).strip().splitlines()[-1]
        raise WorkFailed(
            f"kernels for {target['arch']} ({said})",
            "an nvcc that compiles for this architecture",
            "install a CUDA toolkit that does, and put its bin on the path",
        ) from error
    return bytes(compiled)
