"""Products of narrow numbers by AMX, whose registers are tiles of 16 rows of 64 bytes.

`tdpbusd` multiplies a tile of data, rows of uint8, by one of weights, int8 packed in fours, and
adds the products to a tile of 32-bit sums: 16 x 16 sums of 64 products each at most. `tdpbf16ps`
does so of bfloat16 in pairs, whose sums are float32 (`workloads.brain_floats`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T
from tvm.tirx import Cast

from hetfeat.workloads.brain_floats import wide
from hetfeat.workloads.tile_shapes import LANES, MOST_BYTES, MOST_ROWS, MOST_SUMS

DATA, WEIGHTS = 4, 6
"""Numbers of the first tile of data and of the first of weights; sums are in those before."""
_NAME = re.compile(r"hetfeat_tiles_([a-z0-9]+)_(\d)x(\d\d?)x(\d)x(\d\d?)s(\d\d?)_")


@dataclass(frozen=True)
class Factors:
    """Types that an instruction multiplies.

    Attributes:
        weights: Type of the weights.
        sums: Type of the sums.
        bytes: Bytes of a number.
        instruction: LLVM's name of the instruction.
        factor: Function that makes a factor of the sums' type of a number as it is stored.
    """

    weights: str
    sums: str
    bytes: int
    instruction: str
    factor: Callable[[Any], Any]

    @property
    def group(self) -> int:
        """Products of a sum that are neighbours in a tile of weights: those in 32 bits."""
        return 4 // self.bytes


FACTORS = {
    "uint8": Factors("int8", "int32", 1, "llvm.x86.tdpbusd", partial(Cast, "int32")),
    "uint16": Factors("uint16", "float32", 2, "llvm.x86.tdpbf16ps", wide),
}
"""By the type of the data; integers of 16 bits are those of bfloat16."""


@dataclass(frozen=True)
class TileBlock:
    """A block of sums in tiles, and what is multiplied at a time.

    Attributes:
        data: Type of the data, one of `FACTORS`.
        along: Tiles along the rows, 1 or 2.
        rows: Rows of a tile, at most 16.
        channels: Tiles along the channels of the output, of `LANES` each; `along * channels` is 4
            at most.
        deep: Products of a sum at a time, whole groups of at most 64 bytes.
        step: Rows of the data from one row of the sums to the next: the stride of a convolution.
    """

    data: str
    along: int
    rows: int
    channels: int
    deep: int
    step: int

    @property
    def of(self) -> Factors:
        """The types that are multiplied."""
        return FACTORS[self.data]

    @property
    def fits(self) -> bool:
        """Whether AMX has such tiles."""
        if self.data not in FACTORS or self.along not in (1, 2) or self.step < 1:
            return False
        bytes_, rest = self.deep * self.of.bytes, self.deep % self.of.group
        sums = 1 <= self.along * self.channels <= MOST_SUMS
        return sums and 1 <= self.rows <= MOST_ROWS and 0 < bytes_ <= MOST_BYTES and rest == 0

    def name(self, part: str) -> str:
        """The intrinsic's name of a part: `zero`, `multiply` or `store`."""
        sizes = f"{self.along}x{self.rows}x{self.channels}x{self.deep}s{self.step}"
        return f"hetfeat_tiles_{self.data}_{sizes}_{part}"

    def register(self) -> None:
        """Registers the intrinsics of all parts with TVM, once."""
        if TensorIntrin.get(self.name("zero"), allow_missing=True) is None:
            TensorIntrin.register(self.name("zero"), *_zero(self))
            TensorIntrin.register(self.name("multiply"), *_multiply(self))
            TensorIntrin.register(self.name("store"), *_store(self))


def register_named(trace: str) -> None:
    """Registers the intrinsics that a trace, as text, names."""
    for data, *sizes in set(_NAME.findall(trace)):
        block = TileBlock(data, *map(int, sizes))
        if block.fits:  # whoever wrote the trace may have written anything
            block.register()


def _words(block: TileBlock) -> tuple[int, int, int, int]:
    """What configures the tiles, the words of 64 bits that are not zero.

    They are the first, which tells the palette, two of bytes of rows, and the one of rows.
    """
    of_sums = [(block.rows, 4 * LANES)] * DATA
    of_data = [(block.rows, block.deep * block.of.bytes)] * (WEIGHTS - DATA)
    of_weights = [(block.deep // block.of.group, 4 * LANES)] * 2
    tiles = of_sums + of_data + of_weights
    rows = bytes(rows for rows, _ in tiles)
    of_rows = b"".join(bytes_.to_bytes(2, "little") for _, bytes_ in tiles)
    first, last, tall = (
        int.from_bytes(part, "little") for part in (of_rows[:8], of_rows[8:], rows)
    )
    return 1, first, last, tall


def _zero(block: TileBlock) -> tuple[Any, Any]:
    """Tiles configured and without sums.

    To configure takes the time of twelve products, and empties all tiles. To ask how they are
    configured takes next to none, and the last block of a core left them as the next wants them.
    """
    rows, columns, sums = block.along * block.rows, block.channels * LANES, block.of.sums
    palette, first, last, tall = _words(block)
    tiles_of_sums = block.along * block.channels

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def described(c: T.handle):  # type: ignore[no-untyped-def]
        stride = T.int32()
        C = T.match_buffer(
            c, (rows, columns), sums, strides=[stride, 1], offset_factor=1, scope="local"
        )
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:rows, 0:columns])
            for i, j in T.grid(rows, columns):
                with T.sblock("zero"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = T.cast(0, sums)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def computed(c: T.handle):  # type: ignore[no-untyped-def]
        stride = T.int32()
        C = T.match_buffer(
            c, (rows, columns), sums, strides=[stride, 1], offset_factor=1, scope="local"
        )
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:rows, 0:columns])
            now = T.alloc_buffer((8,), "int64", scope="local")
            wanted = T.alloc_buffer((8,), "int64", scope="local")
            T.evaluate(
                T.call_llvm_intrin(
                    T.llvm_lookup_intrinsic_id("llvm.x86.sttilecfg"),
                    now.access_ptr("w"),
                    dtype="void",
                )
            )
            if (
                now[0] == T.int64(palette)
                and now[2] == T.int64(first)
                and now[3] == T.int64(last)
                and now[6] == T.int64(tall)
            ):
                for i in T.unroll(tiles_of_sums):
                    T.evaluate(
                        T.call_llvm_intrin(
                            T.llvm_lookup_intrinsic_id("llvm.x86.tilezero"),
                            T.cast(i, "int8"),
                            dtype="void",
                        )
                    )
            else:
                wanted[T.ramp(0, 1, 8)] = T.broadcast(T.int64(0), 8)
                wanted[0] = T.int64(palette)
                wanted[2] = T.int64(first)
                wanted[3] = T.int64(last)
                wanted[6] = T.int64(tall)
                T.evaluate(
                    T.call_llvm_intrin(
                        T.llvm_lookup_intrinsic_id("llvm.x86.ldtilecfg"),
                        wanted.access_ptr("r"),
                        dtype="void",
                    )
                )

    return described, computed


def _multiply(block: TileBlock) -> tuple[Any, Any]:
    """Products of `deep` values of each row and each channel, added to the sums."""
    along, channels, deep, step = block.along, block.channels, block.deep, block.step
    group, groups = block.of.group, block.deep // block.of.group
    rows, columns = along * block.rows, channels * LANES
    read, next_rows, tile = (rows - 1) * step + 1, block.rows * step, groups * LANES * group
    data, weights, sums, bytes_ = block.data, block.of.weights, block.of.sums, block.of.bytes
    instruction, factor = block.of.instruction, block.of.factor

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def described(a: T.handle, b: T.handle, c: T.handle):  # type: ignore[no-untyped-def]
        of_data, of_sums = T.int32(), T.int32()
        A = T.match_buffer(a, (read, deep), data, strides=[of_data, 1], offset_factor=1)
        B = T.match_buffer(b, (channels, groups, LANES, group), weights, offset_factor=1)
        C = T.match_buffer(
            c, (rows, columns), sums, strides=[of_sums, 1], offset_factor=1, scope="local"
        )
        with T.sblock("root"):
            T.reads(
                C[0:rows, 0:columns],
                A[0:read, 0:deep],
                B[0:channels, 0:groups, 0:LANES, 0:group],
            )
            T.writes(C[0:rows, 0:columns])
            for i, j, k in T.grid(rows, columns, deep):
                with T.sblock("update"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    C[vi, vj] = C[vi, vj] + factor(A[vi * step, vk]) * factor(
                        B[vj // LANES, vk // group, vj % LANES, vk % group]
                    )

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def computed(a: T.handle, b: T.handle, c: T.handle):  # type: ignore[no-untyped-def]
        of_data, of_sums = T.int32(), T.int32()
        A = T.match_buffer(a, (read, deep), data, strides=[of_data, 1], offset_factor=1)
        B = T.match_buffer(b, (channels, groups, LANES, group), weights, offset_factor=1)
        C = T.match_buffer(
            c, (rows, columns), sums, strides=[of_sums, 1], offset_factor=1, scope="local"
        )
        with T.sblock("root"):
            T.reads(
                C[0:rows, 0:columns],
                A[0:read, 0:deep],
                B[0:channels, 0:groups, 0:LANES, 0:group],
            )
            T.writes(C[0:rows, 0:columns])
            for i in T.unroll(along):
                T.evaluate(
                    T.call_llvm_intrin(
                        T.llvm_lookup_intrinsic_id("llvm.x86.tileloadd64"),
                        T.cast(DATA + i, "int8"),
                        A.access_ptr("r", offset=i * next_rows * of_data),
                        T.cast(bytes_ * step * of_data, "int64"),
                        dtype="void",
                    )
                )
            for j in T.unroll(channels):
                T.evaluate(
                    T.call_llvm_intrin(
                        T.llvm_lookup_intrinsic_id("llvm.x86.tileloadd64"),
                        T.cast(WEIGHTS + j % 2, "int8"),
                        B.access_ptr("r", offset=j * tile),
                        T.int64(64),
                        dtype="void",
                    )
                )
                for i in T.unroll(along):
                    T.evaluate(
                        T.call_llvm_intrin(
                            T.llvm_lookup_intrinsic_id(instruction),
                            T.cast(i * channels + j, "int8"),
                            T.cast(DATA + i, "int8"),
                            T.cast(WEIGHTS + j % 2, "int8"),
                            dtype="void",
                        )
                    )

    return described, computed


def _store(block: TileBlock) -> tuple[Any, Any]:
    """Sums brought to memory."""
    along, channels, sums = block.along, block.channels, block.of.sums
    tall, rows, columns = block.rows, along * block.rows, channels * LANES

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def described(c: T.handle, d: T.handle):  # type: ignore[no-untyped-def]
        of_sums, of_memory = T.int32(), T.int32()
        C = T.match_buffer(
            c, (rows, columns), sums, strides=[of_sums, 1], offset_factor=1, scope="local"
        )
        D = T.match_buffer(
            d, (rows, columns), sums, strides=[of_memory, 1], offset_factor=1, scope="local"
        )
        with T.sblock("root"):
            T.reads(C[0:rows, 0:columns])
            T.writes(D[0:rows, 0:columns])
            for i, j in T.grid(rows, columns):
                with T.sblock("store"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    D[vi, vj] = C[vi, vj]

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def computed(c: T.handle, d: T.handle):  # type: ignore[no-untyped-def]
        of_sums, of_memory = T.int32(), T.int32()
        C = T.match_buffer(
            c, (rows, columns), sums, strides=[of_sums, 1], offset_factor=1, scope="local"
        )
        D = T.match_buffer(
            d, (rows, columns), sums, strides=[of_memory, 1], offset_factor=1, scope="local"
        )
        with T.sblock("root"):
            T.reads(C[0:rows, 0:columns])
            T.writes(D[0:rows, 0:columns])
            for i in T.unroll(along):
                for j in T.unroll(channels):
                    T.evaluate(
                        T.call_llvm_intrin(
                            T.llvm_lookup_intrinsic_id("llvm.x86.tilestored64"),
                            T.cast(i * channels + j, "int8"),
                            D.access_ptr("w", offset=i * tall * of_memory + j * LANES),
                            T.cast(4 * of_memory, "int64"),
                            dtype="void",
                        )
                    )

    return described, computed
