"""Keeps TVM from parsing every tensor intrinsic of every target.

`TuneContext` imports `tvm.s_tir.tensor_intrin`, whose CUDA module alone takes 20 seconds to parse.
A CPU needs those of its own architecture, 0.2 s: this puts a package in the place of the full
one that finds the same modules but imports none by itself.
"""

import importlib
import importlib.util
import platform
import sys
from types import ModuleType

PACKAGE = "tvm.s_tir.tensor_intrin"
DOT_8X2_AVX2 = "hetfeat_dot_8x2_u8i8i32_avx2"
"""Name of an intrinsic of ours: eight sums, each of two products of uint8 with int8."""
MODULE_OF_MACHINE = {"x86_64": "x86", "aarch64": "arm_cpu"}


def load_for_cpu(triple: str | None = None) -> None:
    """Registers the tensor intrinsics of a triple's architecture, or of this CPU's; no others."""
    machine = triple.partition("-")[0] if triple else platform.machine()
    if PACKAGE not in sys.modules:
        found = importlib.util.find_spec(PACKAGE)
        if found is None or found.submodule_search_locations is None:
            return
        package = ModuleType(PACKAGE)
        package.__path__ = list(found.submodule_search_locations)
        sys.modules[PACKAGE] = package
    if module := MODULE_OF_MACHINE.get(machine):
        importlib.import_module(f"{PACKAGE}.{module}")
    if module == "x86":
        importlib.import_module("hetfeat.schedules.integer_intrinsics")
