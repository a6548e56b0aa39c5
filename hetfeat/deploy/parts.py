"""A network's kernels compiled in parts, by as many threads as there are cores."""

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.relax import vm_build

from hetfeat.devices.host import usable_cores


def compile_in_parts(
    module: tvm.IRModule, target: tvm.target.Target, *, parts: int = 8
) -> vm_build.VMExecutable:
    """What `tvm.compile` makes of a network for a CPU, its kernels by several threads.

    A kernel's name alone decides in which part it is: on any machine the bytes are the same.

    Args:
        module: A network whose kernels are scheduled.
        target: Target of kind `llvm`.
        parts: Most parts, each of which is an object file; 8 by default.
    """
    builder = relax.ExecBuilder()
    with target:
        module = relax.get_pipeline("default")(module)
    kernels = vm_build._filter_tir(vm_build._vmcodegen(builder, module))
    if kernels is None:
        return vm_build._vmlink(builder, target)
    names = sorted(variable.name_hint for variable in kernels.get_global_vars())
    dealt = [part for start in range(parts) if (part := names[start::parts])]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(usable_cores()) as threads:
        paths = [Path(folder) / f"{number}.o" for number in range(len(dealt))]
        first, *others = threads.map(
            lambda part, path: _compiled(kernels, part, target, path), dealt, paths
        )
    linked = relax._ffi_api.VMLink(builder, target, first, others, {})
    return vm_build.VMExecutable(linked)


def _compiled(
    kernels: tvm.IRModule, names: Sequence[str], target: tvm.target.Target, path: Path
) -> Any:
    """Some kernels as an object file, which is all that a library is linked of."""
    functions = {kernels.get_global_var(name): kernels[name] for name in names}
    built = tvm.tirx.build(tvm.IRModule(functions, attrs=kernels.attrs), target=target)
    built.write_to_file(str(path))
    return tvm.runtime.load_static_library(str(path), list(names))
