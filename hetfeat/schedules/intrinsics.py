"""Keeps TVM from parsing every tensor intrinsic of every target.

`TuneContext` imports `tvm.s_tir.tensor_intrin`, whose CUDA module alone takes 20 seconds to parse.
A CPU needs those of its own architecture, 0.2 s: this puts a package in the place of the full
one that finds the same modules but imports none by itself.
"""

import importlib
import importlib.util
import platform
import sys
from dataclasses import dataclass
from types import ModuleType

PACKAGE = "tvm.s_tir.tensor_intrin"
MODULE_OF_MACHINE = {"x86_64": "x86", "aarch64": "arm_cpu"}


@dataclass(frozen=True)
class DotProducts:
    """An instruction of ours that adds products of integers to as many sums as a register has.

    Attributes:
        name: Name of the tensor intrinsic.
        llvm_name: Name of LLVM's intrinsic.
        feature: Feature of a CPU that has it.
        lanes: Number of sums.
        deep: Number of products of each.
        of_data: Type of what all sums have in common; that of the weights is int8.
    """

    name: str
    llvm_name: str
    feature: str
    lanes: int
    deep: int
    of_data: str


INSTRUCTIONS = (
    DotProducts(
        "hetfeat_dot_16x4_vnni", "llvm.x86.avx512.vpdpbusd.512", "avx512vnni", 16, 4, "uint8"
    ),
    DotProducts("hetfeat_dot_8x4_vnni", "llvm.x86.avx512.vpdpbusd.256", "avxvnni", 8, 4, "uint8"),
    DotProducts(
        "hetfeat_dot_16x2_avx512", "llvm.x86.avx512.pmaddw.d.512", "avx512bw", 16, 2, "int16"
    ),
    DotProducts("hetfeat_dot_8x2_avx2", "llvm.x86.avx2.pmadd.wd", "avx2", 8, 2, "int16"),
)
"""The best first."""


def load_for_cpu(triple: str | None = None) -> None:
    """Registers the tensor intrinsics of a triple's architecture, or of this CPU's; no others.

    And has TVM round whole vectors, which it would take apart for one element after another.
    """
    from tvm.ir import Op

    rounding = Op.get("tirx.nearbyint")
    if not rounding.get_attr("TVectorizable"):
        rounding.set_attr("TVectorizable", True)
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
