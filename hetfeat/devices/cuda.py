"""This machine's first NVIDIA GPU, as its driver describes it."""

import re
from importlib.metadata import version

import tvm

from hetfeat.devices.probe import slug
from hetfeat.devices.profile import DeviceProfile, Target
from hetfeat.errors import RequestError

VECTOR_BYTES, CACHE_LINE_BYTES, VTHREADS = 16, 64, 8
"""Ansor's hardware parameters of every CUDA device: a vector load, a line, virtual threads."""
LOCAL_MEMORY_BYTES = 2**31 - 1
"""Bytes of local memory, of every CUDA device too: no bound."""
NEEDED = "an NVIDIA GPU, its driver and CUDA's runtime library, libcudart.so.13"


def need_gpu(arch: str | None = None) -> str:
    """The architecture of the first GPU, such as `sm_75`.

    Args:
        arch: Architecture that programs are compiled for, default None for any.

    Raises:
        RequestError: There is no GPU, or it is older than `arch`.
    """
    gpu = tvm.cuda()
    if not gpu.exist:
        raise RequestError(
            "a machine without a GPU that TVM can use", NEEDED, "choose another device"
        )
    found = f"sm_{gpu.compute_version.replace('.', '')}"
    if arch and int(found[3:]) < int(re.sub(r"\D", "", arch)):
        raise RequestError(
            f"a GPU of {found} for programs of {arch}",
            f"a GPU of {arch} or later",
            "make its profile with `hetfeat devices probe --gpu true --out FILE`",
        )
    return found


def gpu_profile(name: str | None = None) -> DeviceProfile:
    """The profile of the first GPU.

    Args:
        name: Name of the profile; default None for a slug of what the driver calls the GPU.

    Raises:
        RequestError: There is none.
    """
    arch, gpu = need_gpu(), tvm.cuda()
    threads, shared = gpu.max_threads_per_block, gpu.max_shared_memory_per_block
    return DeviceProfile(
        name=name or slug(gpu.device_name),
        family="gpu-nvidia",
        target=Target(
            {
                "kind": "cuda",
                "arch": arch,
                "max_threads_per_block": threads,
                "max_shared_memory_per_block": shared,
                "thread_warp_size": gpu.warp_size,
            }
        ),
        threads=1,
        vector_unit_bytes=VECTOR_BYTES,
        cache_line_bytes=CACHE_LINE_BYTES,
        max_shared_memory_per_block_bytes=shared,
        max_local_memory_per_block_bytes=LOCAL_MEMORY_BYTES,
        max_threads_per_block=threads,
        max_vthread_extent=VTHREADS,
        warp_size=gpu.warp_size,
        source=f"asked of {gpu.device_name}'s driver, tvm {version('apache-tvm')}",
    )
