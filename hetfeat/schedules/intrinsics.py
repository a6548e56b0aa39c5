"""Keeps TVM from parsing every tensor intrinsic of every target.

`TuneContext` imports `tvm.s_tir.tensor_intrin`, whose CUDA module alone takes 3 seconds to parse,
and 20 where `inspect` searches all modules. A CPU needs those of its own architecture: this puts a
package in the place of the full one that finds the same modules but imports none by itself.
"""

import ast
import importlib
import importlib.util
import inspect
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType

from hetfeat.devices import host
from hetfeat.errors import WorkFailed

PACKAGE = "tvm.s_tir.tensor_intrin"
MODULE_OF_MACHINE = {"x86_64": "x86", "aarch64": "arm_cpu"}


@dataclass(frozen=True)
class DotProducts:
    """An instruction of ours that adds products to as many sums as a register has.

    Attributes:
        name: Name of the tensor intrinsic.
        llvm_name: Name of LLVM's intrinsic.
        features: Features of CPUs, each of which brings it.
        lanes: Number of sums.
        deep: Number of products of each.
        of_data: Type of what all sums have in common.
        of_weights: Type of the other factor; int8 by default, of weights that are packed for the
            instruction. int16 is that of a tensor, whose rows are read as they lie.
        sums: Type of the sums; int32 by default.
    """

    name: str
    llvm_name: str
    features: tuple[str, ...]
    lanes: int
    deep: int
    of_data: str
    of_weights: str = "int8"
    sums: str = "int32"

    @property
    def of_tensors(self) -> bool:
        """Whether both factors are tensors, and none are weights."""
        return self.of_weights == "int16"

    @property
    def is_alone(self) -> bool:
        """Whether TVM's sketches are left out beside ours: they multiply one after another."""
        return self.of_tensors or self.sums == "float32"


INSTRUCTIONS = (
    DotProducts(
        "hetfeat_dot_16x2_bf16",
        "llvm.x86.avx512bf16.dpbf16ps.512",
        ("avx512bf16",),
        *(16, 2, "uint16", "uint16", "float32"),
    ),
    DotProducts(
        "hetfeat_dot_16x4_vnni", "llvm.x86.avx512.vpdpbusd.512", ("avx512vnni",), 16, 4, "uint8"
    ),
    DotProducts(
        "hetfeat_dot_8x4_vnni",
        "llvm.x86.avx512.vpdpbusd.256",
        ("avxvnni", "avx512vnni"),
        *(8, 4, "uint8"),
    ),
    DotProducts(
        "hetfeat_dot_16x2_avx512", "llvm.x86.avx512.pmaddw.d.512", ("avx512bw",), 16, 2, "int16"
    ),
    DotProducts("hetfeat_dot_8x2_avx2", "llvm.x86.avx2.pmadd.wd", ("avx2",), 8, 2, "int16"),
    DotProducts(
        "hetfeat_dot_16x2_rows_avx512",
        "llvm.x86.avx512.pmaddw.d.512",
        ("avx512bw",),
        *(16, 2, "int16", "int16"),
    ),
    DotProducts(
        "hetfeat_dot_8x2_rows_avx2",
        "llvm.x86.avx2.pmadd.wd",
        ("avx2",),
        *(8, 2, "int16", "int16"),
    ),
    DotProducts(
        "hetfeat_dot_4x4_sdot", "llvm.aarch64.neon.sdot.v4i32.v16i8", ("dotprod",), 4, 4, "int8"
    ),
    DotProducts(
        "hetfeat_dot_4x4_usdot", "llvm.aarch64.neon.usdot.v4i32.v16i8", ("i8mm",), 4, 4, "uint8"
    ),
)
"""The best of each CPU first."""
WMMA = {
    "init": "wmma_fill_16x16x16_f32",
    "load_a": "wmma_load_16x16x16_f16_a_shared_dyn",
    "load_b": "wmma_load_16x16x16_f16_b_shared_dyn",
    "compute": "wmma_sync_16x16x16_f16f16f32",
    "store": "wmma_store_16x16x16_f32_shared",
}
"""Intrinsics that multiply float16 and add up float32.

Operands lie in dynamic shared memory, which may be large, and sums in static: TVM lowers no
program of which one memory has both types.
"""


def load_for_cpu(triple: str | None = None) -> None:
    """Registers the tensor intrinsics of a triple's architecture, or of this CPU's; no others.

    And has TVM round whole vectors, which it would take apart for one element after another, and
    Linux allow AMX's tiles to what is compiled in memory: a library asks for itself.
    """
    from tvm.ir import Op

    rounding = Op.get("tirx.nearbyint")
    if not rounding.get_attr("TVectorizable"):
        rounding.set_attr("TVectorizable", True)
    host.allow_tiles()
    _tell_inspect_of_frozen_modules()
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
    if module:
        importlib.import_module("hetfeat.schedules.dot_intrinsics")


def _tell_inspect_of_frozen_modules() -> None:
    """Spares `inspect` a search of all modules for each frame of Python's importer.

    TVM asks it of every frame, for every function that it parses: most of the time that took.
    """
    for name in ("importlib._bootstrap", "importlib._bootstrap_external", "runpy"):
        inspect.modulesbyfile.setdefault(f"<frozen {name}>", name)


class _OfTensorCores(SourceFileLoader):
    """Loads TVM's module of CUDA's intrinsics without the registrations of all others.

    It neither reads nor writes the bytecode that Python keeps of the whole module.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path))
        named = {
            of.targets[0].id: of.value.value
            for of in tree.body
            if isinstance(of, ast.Assign)
            and isinstance(of.targets[0], ast.Name)
            and isinstance(of.value, ast.Constant)
        }
        kept = (None, *WMMA.values())
        tree.body = [of for of in tree.body if _registers(of, named) in kept]
        return compile(tree, path, "exec")


def _registers(statement: ast.stmt, named: Mapping[str, object]) -> object:
    """The name of the intrinsic that a statement registers; None where it registers none."""
    match statement:
        case ast.Expr(ast.Call(ast.Attribute(attr="register"), [ast.Constant(value), *_])):
            return value
        case ast.Expr(ast.Call(ast.Attribute(attr="register"), [ast.Name(name), *_])):
            return named.get(name, name)
    return None


def load_for_tensor_cores() -> None:
    """Registers the tensor intrinsics of `WMMA`; all of CUDA's take 3 seconds to parse."""
    name = f"{PACKAGE}.cuda"
    load_for_cpu()
    if name in sys.modules:
        return
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise WorkFailed("a TVM without intrinsics of CUDA", "TVM 0.27", "install it anew")
    loader = _OfTensorCores(name, found.origin)
    spec = importlib.util.spec_from_file_location(name, found.origin, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
