"""Products of unsigned and signed integers of 8 bits, by instructions that never saturate.

`vpmaddwd` adds two products of 16 bits in 32. `vpmaddubsw` adds those of 8 bits in 16, which uint8
times int8 overflows: it is used nowhere.
"""

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from hetfeat.schedules.intrinsics import DOT_8X2_AVX2


@T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
def _described(  # type: ignore[no-untyped-def]
    A: T.Buffer((2,), "uint8", offset_factor=1),  # type: ignore[valid-type]
    B: T.Buffer((8, 2), "int8", offset_factor=1),  # type: ignore[valid-type]
    C: T.Buffer((8,), "int32", offset_factor=1, scope="local"),  # type: ignore[valid-type]
):
    with T.sblock("root"):
        T.reads(C[0:8], A[0:2], B[0:8, 0:2])
        T.writes(C[0:8])
        for i in T.serial(0, 8):
            for k in T.serial(0, 2):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")


@T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
def _by_avx2(  # type: ignore[no-untyped-def]
    A: T.Buffer((2,), "uint8", offset_factor=1),  # type: ignore[valid-type]
    B: T.Buffer((8, 2), "int8", offset_factor=1),  # type: ignore[valid-type]
    C: T.Buffer((8,), "int32", offset_factor=1, scope="local"),  # type: ignore[valid-type]
):
    with T.sblock("root"):
        T.reads(C[0:8], A[0:2], B[0:8, 0:2])
        T.writes(C[0:8])
        C[T.ramp(T.int32(0), 1, 8)] = C.vload([0], dtype="int32x8") + T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.x86.avx2.pmadd.wd"),
            T.reinterpret(
                T.broadcast(
                    T.reinterpret(T.cast(A.vload([0], "uint8x2"), "int16x2"), dtype="int32"), 8
                ),
                dtype="int16x16",
            ),
            T.cast(B.vload([0, 0], dtype="int8x16"), "int16x16"),
            dtype="int32x8",
        )


TensorIntrin.register(DOT_8X2_AVX2, _described, _by_avx2, override=True)
