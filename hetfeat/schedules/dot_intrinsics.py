"""Products of narrow numbers by instructions of x86 and Arm, none of which saturates.

`vpmaddwd` adds two products of 16 bits in 32, `vpdpbusd`, `sdot` and `usdot` four of 8 bits.
`vpmaddubsw` adds those of 8 bits in 16, which uint8 times int8 overflows: it is used nowhere.
`vdpbf16ps` adds two products of bfloat16 in float32.
"""

from functools import partial
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T
from tvm.tirx import Cast

from hetfeat.schedules.intrinsics import INSTRUCTIONS, DotProducts
from hetfeat.workloads.brain_floats import wide
from hetfeat.workloads.half_types import BITS


def _described(instruction: DotProducts) -> Any:
    """What an instruction computes, in loops."""
    lanes, deep, sums = instruction.lanes, instruction.deep, instruction.sums
    of_data, of_weights = instruction.of_data, instruction.of_weights
    factor = wide if of_data == BITS else partial(Cast, sums)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def described(  # type: ignore[no-untyped-def]
        A: T.Buffer((deep,), of_data, offset_factor=1),  # type: ignore[valid-type]
        B: T.Buffer((lanes, deep), of_weights, offset_factor=1),  # type: ignore[valid-type]
        C: T.Buffer((lanes,), sums, offset_factor=1, scope="local"),  # type: ignore[valid-type]
    ):
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:deep], B[0:lanes, 0:deep])
            T.writes(C[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, deep):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + factor(A[vk]) * factor(B[vi, vk])

    return described


def _of_pairs(lanes: int, deep: int, of_data: str, name: str) -> Any:
    """By `vpmaddwd`: weights become 16 bits as they are loaded."""
    sums, data, wide = f"int32x{lanes}", f"{of_data}x{deep}", f"int16x{deep * lanes}"
    narrow = f"int8x{deep * lanes}"

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def computed(  # type: ignore[no-untyped-def]
        A: T.Buffer((deep,), of_data, offset_factor=1),  # type: ignore[valid-type]
        B: T.Buffer((lanes, deep), "int8", offset_factor=1),  # type: ignore[valid-type]
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),  # type: ignore[valid-type]
    ):
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:deep], B[0:lanes, 0:deep])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = C.vload([0], dtype=sums) + T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(name),
                T.reinterpret(
                    T.broadcast(T.reinterpret(A.vload([0], data), dtype="int32"), lanes),
                    dtype=wide,
                ),
                T.cast(B.vload([0, 0], dtype=narrow), wide),
                dtype=sums,
            )

    return computed


def _described_of_rows(lanes: int) -> Any:
    """What an instruction computes of two rows of a tensor."""

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def described(a: T.handle, b: T.handle, c: T.handle):  # type: ignore[no-untyped-def]
        stride = T.int32()
        A = T.match_buffer(a, (2,), "int16", offset_factor=1)
        B = T.match_buffer(b, (2, lanes), "int16", strides=[stride, 1], offset_factor=1)
        C = T.match_buffer(c, (lanes,), "int32", offset_factor=1, scope="local")
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:2], B[0:2, 0:lanes])
            T.writes(C[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, 2):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vk, vi], "int32")

    return described


def _of_rows(lanes: int, name: str) -> Any:
    """By `vpmaddwd`: two rows become pairs as they are loaded."""
    sums, wide, row = f"int32x{lanes}", f"int16x{2 * lanes}", f"int16x{lanes}"

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def computed(a: T.handle, b: T.handle, c: T.handle):  # type: ignore[no-untyped-def]
        stride = T.int32()
        A = T.match_buffer(a, (2,), "int16", offset_factor=1)
        B = T.match_buffer(b, (2, lanes), "int16", strides=[stride, 1], offset_factor=1)
        C = T.match_buffer(c, (lanes,), "int32", offset_factor=1, scope="local")
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:2], B[0:2, 0:lanes])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = C.vload([0], dtype=sums) + T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(name),
                T.reinterpret(
                    T.broadcast(T.reinterpret(A.vload([0], "int16x2"), dtype="int32"), lanes),
                    dtype=wide,
                ),
                T.reinterpret(
                    T.bitwise_or(
                        T.bitwise_and(
                            T.cast(B.vload([0, 0], row), sums), T.broadcast(T.int32(0xFFFF), lanes)
                        ),
                        T.shift_left(
                            T.cast(B.vload([1, 0], row), sums), T.broadcast(T.int32(16), lanes)
                        ),
                    ),
                    dtype=wide,
                ),
                dtype=sums,
            )

    return computed


def _of_fours(lanes: int, deep: int, of_data: str, name: str) -> Any:
    """By `vpdpbusd` or its like, which adds to the sums, too."""
    sums, data, bytes_ = f"int32x{lanes}", f"{of_data}x{deep}", f"int8x{deep * lanes}"

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def computed(  # type: ignore[no-untyped-def]
        A: T.Buffer((deep,), of_data, offset_factor=1),  # type: ignore[valid-type]
        B: T.Buffer((lanes, deep), "int8", offset_factor=1),  # type: ignore[valid-type]
        C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local"),  # type: ignore[valid-type]
    ):
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:deep], B[0:lanes, 0:deep])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(name),
                C.vload([0], dtype=sums),
                T.reinterpret(
                    T.broadcast(T.reinterpret(A.vload([0], data), dtype="int32"), lanes),
                    dtype=bytes_,
                ),
                B.vload([0, 0], dtype=bytes_),
                dtype=sums,
            )

    return computed


def _of_brain_floats(lanes: int, deep: int, name: str) -> Any:
    """By `vdpbf16ps`, whose LLVM intrinsic takes a type that TVM has replaced by then."""
    row, bits = f"float32x{lanes}", f"{BITS}x{deep * lanes}"
    code = f"""
        declare <16 x float> @{name}(<16 x float>, <32 x bfloat>, <32 x bfloat>)
        define internal <16 x float> @hetfeat_dpbf16ps(
            <16 x float> %c, <16 x i32> %a, <16 x i32> %b) alwaysinline nounwind readnone {{
          %x = bitcast <16 x i32> %a to <32 x bfloat>
          %y = bitcast <16 x i32> %b to <32 x bfloat>
          %r = call <16 x float> @{name}(<16 x float> %c, <32 x bfloat> %x, <32 x bfloat> %y)
          ret <16 x float> %r
        }}
    """

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def computed(  # type: ignore[no-untyped-def]
        A: T.Buffer((deep,), BITS, offset_factor=1),  # type: ignore[valid-type]
        B: T.Buffer((lanes, deep), BITS, offset_factor=1),  # type: ignore[valid-type]
        C: T.Buffer((lanes,), "float32", offset_factor=1, scope="local"),  # type: ignore[valid-type]
    ):
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:deep], B[0:lanes, 0:deep])
            T.writes(C[0:lanes])
            with T.attr(T.int32(0), "pragma_import_llvm", code):
                C[T.ramp(T.int32(0), 1, lanes)] = T.call_pure_extern(
                    row,
                    "hetfeat_dpbf16ps",
                    C.vload([0], dtype=row),
                    T.broadcast(T.reinterpret(A.vload([0], f"{BITS}x2"), dtype="int32"), lanes),
                    T.reinterpret(B.vload([0, 0], dtype=bits), dtype=f"int32x{lanes}"),
                )

    return computed


def _implemented(instruction: DotProducts) -> tuple[Any, Any]:
    """What an instruction computes, in loops and by the instruction."""
    lanes, deep, name = instruction.lanes, instruction.deep, instruction.llvm_name
    if instruction.of_tensors:
        return _described_of_rows(lanes), _of_rows(lanes, name)
    if instruction.of_data == BITS:
        return _described(instruction), _of_brain_floats(lanes, deep, name)
    make = _of_pairs if instruction.of_data == "int16" else _of_fours
    return _described(instruction), make(lanes, deep, instruction.of_data, name)


for instruction in INSTRUCTIONS:
    TensorIntrin.register(instruction.name, *_implemented(instruction), override=True)
