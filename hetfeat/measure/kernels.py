"""CUDA source into machine code of one architecture, without a GPU: by NVRTC, or else by nvcc."""

import contextlib
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from hetfeat.errors import WorkFailed

REGISTER_USE = "--register-usage-level=10"
"""Option of ptxas that TVM gives to nvcc: other code would be measured than is deployed."""
_PREAMBLE = re.compile(r"\A\s*#ifdef __CUDACC_RTC__\n.*?\n#endif\n", re.DOTALL)
_INCLUDED = re.compile(r"#include\s*[<\"](.+?)[>\"]")
_TOP = re.compile(r"^#\$ TOP=(.+)$", re.MULTILINE)
_INTEGERS = """\
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
"""
"""What kernels need of the headers that TVM includes, which take a second to read each time."""
_HEADERS = frozenset({"cuda_fp16.h", "mma.h"})
"""Headers that stand by themselves: those of float16 and of tensor cores."""


def compile_kernels(source: str, arch: str) -> bytes:
    """A cubin of the kernels of a program.

    Args:
        source: CUDA source as TVM writes it.
        arch: Architecture such as `sm_90`.

    Raises:
        WorkFailed: There is no compiler, or it refuses the source.
    """
    nvrtc = _nvrtc()
    return _by_nvcc(source, arch) if nvrtc is None else _by_nvrtc(nvrtc, source, arch)


def need_compiler(arch: str) -> None:
    """Refuses an architecture for which nothing can be compiled here.

    Raises:
        WorkFailed: There is no compiler, or it does not know the architecture.
    """
    compile_kernels('extern "C" __global__ void probe() {}\n', arch)


def without_headers(source: str) -> str:
    """The source with types of its own in place of TVM's headers, where nothing else needs these.

    Kernels that include more than float16 and tensor cores are left as they are.
    """
    short, count = _PREAMBLE.subn(_INTEGERS, source, count=1)
    stays = count and "std::" not in short and _HEADERS.issuperset(_INCLUDED.findall(short))
    return short if stays else source


@cache
def _include_folders() -> list[Path]:
    """Headers of the toolkit that nvcc is of, by its own word: it may be a link, or a script."""
    top = Path("/usr/local/cuda")
    if nvcc := shutil.which("nvcc"):
        command = [nvcc, "--dryrun", "-E", "-x", "cu", os.devnull]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if found := _TOP.search(said.stderr):
            top = Path(found[1]).resolve()
    return [each for each in (top / "include", top / "include/cccl") if each.is_dir()]


def _nvrtc() -> Any:
    """NVIDIA's module, or None where it or its library is not installed."""
    with contextlib.suppress(ImportError, RuntimeError):  # the second: without libnvrtc
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
        return nvrtc
    return None


def _by_nvrtc(nvrtc: Any, source: str, arch: str) -> bytes:
    options = [f"--gpu-architecture={arch}", "--use_fast_math", f"--ptxas-options={REGISTER_USE}"]
    options += [f"-I{folder}" for folder in _include_folders()]
    encoded = [option.encode() for option in options]
    _, program = nvrtc.nvrtcCreateProgram(
        without_headers(source).encode(), b"kernels.cu", 0, [], []
    )
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if int(status):
            _, size = nvrtc.nvrtcGetProgramLogSize(program)
            said = b" " * size
            nvrtc.nvrtcGetProgramLog(program, said)
            raise _refused(arch, said.decode(errors="replace"))
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        cubin = b" " * size
        nvrtc.nvrtcGetCUBIN(program, cubin)
        return bytes(cubin)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _by_nvcc(source: str, arch: str) -> bytes:
    import tvm
    from tvm.support import nvcc

    number = arch.removeprefix("sm_")
    architecture = ["-gencode", f"arch=compute_{number},code=sm_{number}"]
    try:
        with tvm.target.Target({"kind": "cuda", "arch": arch}):
            return bytes(nvcc.compile_cuda(source, "cubin", architecture, compiler="nvcc"))
    except (FileNotFoundError, RuntimeError) as error:
        raise _refused(arch, str(error)) from error


def _refused(arch: str, said: str) -> WorkFailed:
    last = (said.strip().splitlines() or ["nothing was said"])[-1]
    return WorkFailed(
        f"kernels for {arch} ({last})",
        "NVRTC or an nvcc that compiles for this architecture",
        "install cuda-bindings and nvidia-cuda-nvrtc, or a CUDA toolkit",
    )
