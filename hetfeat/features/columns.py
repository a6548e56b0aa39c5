"""Every feature column: its name, unit and version.

The per-store names follow the order in which `PerStoreFeature` of TVM 0.27 writes its values.
A column whose meaning changes gets a new version; a model is bound to the labels it was
trained on, `name@version`, and refuses any other.
"""

from dataclasses import dataclass

from hetfeat.errors import DataError

FEATURES_VERSION = 5
"""Version of the whole set, logged with each run; a model's own check is by column."""


@dataclass(frozen=True)
class Column:
    """One feature.

    Attributes:
        name: Name, unique within its kind (per store, task or hardware).
        unit: Unit of the stored value; `log2(1+x)` is signed and rounds nothing.
        version: Version of its meaning, raised when the same name gets another; 1 by default.
    """

    name: str
    unit: str
    version: int = 1

    @property
    def label(self) -> str:
        """What a model records: `name@version`."""
        return f"{self.name}@{self.version}"


_COUNT, _BYTES, _FLAG = "log2(1+count)", "log2(1+bytes)", "0 or 1"
_MATH = ("mad", "add_sub", "mul", "div_mod", "compare", "math_function", "other")
_POSITIONS = (
    "none",
    "inner_spatial",
    "middle_spatial",
    "outer_spatial",
    "inner_reduce",
    "middle_reduce",
    "outer_reduce",
    "mixed",
)
_THREADS = (
    "block_x",
    "block_y",
    "block_z",
    "thread_x",
    "thread_y",
    "thread_z",
    "vthread",
)
_ACCESS = (
    ("is_read", _FLAG),
    ("is_write", _FLAG),
    ("is_read_write", _FLAG),
    ("bytes", _BYTES),
    ("unique_bytes", _BYTES),
    ("lines", _COUNT),
    ("unique_lines", _COUNT),
    ("reuse_is_loop", _FLAG),
    ("reuse_is_serial", _FLAG),
    ("reuse_is_none", _FLAG),
    ("reuse_distance_iterations", _COUNT),
    ("reuse_distance_bytes", _BYTES),
    ("reuse_count", _COUNT),
    ("bytes_per_reuse", _BYTES),
    ("unique_bytes_per_reuse", _BYTES),
    ("lines_per_reuse", _COUNT),
    ("unique_lines_per_reuse", _COUNT),
    ("stride", "log2(1+elements)"),
)
BUFFERS = 5
"""Buffers a store describes, those with the most cache lines first."""


def _store_columns() -> tuple[Column, ...]:
    columns = [Column(f"{kind}_{op}", _COUNT) for kind in ("float", "int") for op in _MATH]
    columns += [Column("bool_op", _COUNT), Column("select", _COUNT)]
    for kind in ("vectorize", "unroll", "parallel"):
        columns += [Column(f"{kind}_{part}", _COUNT) for part in ("loops", "product", "length")]
        columns += [Column(f"{kind}_at_{position}", _FLAG) for position in _POSITIONS]
    columns.append(Column("is_gpu", _FLAG))
    columns += [Column(f"{thread}_length", _COUNT) for thread in _THREADS]
    for buffer in range(BUFFERS):
        columns += [Column(f"buffer{buffer}_{name}", unit) for name, unit in _ACCESS]
    columns += [Column(f"intensity_{i}", "log2(1+flop/byte)") for i in range(10)]
    columns += [Column("allocated", _BYTES)]
    columns += [Column(f"allocated_{part}", _COUNT) for part in ("product", "outer", "inner")]
    columns += [Column(name, _COUNT) for name in ("outer_product", "loops", "auto_unroll")]
    return tuple(columns)


STORE = _store_columns()
"""The 164 columns of a buffer store."""

OPERATORS = (
    "conv2d",
    "group_conv2d",
    "matmul",
    "max_pool2d",
    "avg_pool2d",
    "softmax",
    "reduction",
    "elementwise",
)
"""Operators with a column of their own; the rest share `operator_other`."""

TASK = (
    Column("flops", "log2(1+flop)"),
    Column("bytes", _BYTES),
    Column("intensity", "log2(flop/byte)"),
    Column("output_elements", _COUNT),
    Column("largest_input_elements", _COUNT),
    Column("second_input_elements", _COUNT),
    Column("output_last_extent", _COUNT),
    Column("arguments", "count"),
    Column("element_bytes", "bytes"),
    *(Column(f"operator_{name}", _FLAG) for name in (*OPERATORS, "other")),
)
"""Columns of a task, the same for all its programs."""

HARDWARE = (
    Column("threads", "log2(count)"),
    Column("num_cores", "log2(count)"),
    Column("vector_unit_bytes", "log2(bytes)"),
    Column("lanes", "log2(count)"),
    Column("cache_line_bytes", "log2(bytes)"),
    Column("max_shared_memory_per_block_bytes", "log2(bytes)"),
    Column("max_local_memory_per_block_bytes", "log2(bytes)"),
    Column("max_threads_per_block", "log2(count)"),
    Column("max_vthread_extent", "log2(count)"),
    Column("warp_size", "log2(count)"),
    Column("peak_gflops", "log2(GFLOP/s)"),
    Column("scalar_gflops", "log2(GFLOP/s)"),
    Column("bandwidth_gb_s", "log2(GB/s)"),
    Column("l1_gb_s", "log2(GB/s)"),
    Column("l2_gb_s", "log2(GB/s)"),
    Column("l3_gb_s", "log2(GB/s)"),
    Column("fork_join_us", "log2(microseconds)"),
    Column("multiprocessor_capability", "log2(compute capability)"),
    Column("multiprocessor_fp32_lanes", "log2(count)"),
    Column("multiprocessor_threads", "log2(count)"),
    Column("multiprocessor_shared_memory_bytes", "log2(bytes)"),
    Column("multiprocessor_registers", "log2(count)"),
)
"""Columns of a device, named after the fields of `DeviceProfile` and of `Multiprocessor`; NaN where
it has none, or where nobody has measured it. Data sheets are left out: of a few devices they tell
no more than which one it is (docs/models.md)."""

PRIMITIVES = (
    *("Split", "Fuse", "Reorder", "AddUnitLoop", "Parallel", "Vectorize", "Unroll", "Bind"),
    *("CacheRead", "CacheWrite", "ReIndex", "SetScope", "StorageAlign", "TransformLayout"),
    *("ComputeAt", "ReverseComputeAt", "SampleComputeLocation", "ComputeRoot"),
    *("ComputeInline", "ReverseComputeInline", "RFactor", "DecomposeReduction"),
    *("Annotate", "Unannotate", "Blockize", "Tensorize", "PadEinsum", "DecomposePadding"),
)
"""Schedule primitives with a number of their own, which is their place here and stays: new ones
come last. Those of MetaSchedule, and `ComputeRoot` of the auto-scheduler."""

THREADS = (
    *("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"),
    "vthread.x",
)
SCOPES = ("global", "shared", "local")
SPLITS, PARTS = 10, 5
"""Splits of a program that have columns, first come, and their factors, innermost first."""

TRACE = (
    *(Column(f"primitive_{name}", _COUNT) for name in (*PRIMITIVES, "other")),
    *(Column(f"split{i}_factor{j}", _COUNT) for i in range(SPLITS) for j in range(PARTS)),
    *(Column(f"factor{j}_product", _COUNT) for j in range(PARTS)),
    *(Column(f"bind_{name}_extent", _COUNT) for name in THREADS),
    *(Column(f"cache_{scope}", _COUNT) for scope in SCOPES),
    *(Column(f"{kind}_extent", _COUNT) for kind in ("parallel", "vectorize", "unroll")),
    Column("units_extent", _COUNT),
    Column("lanes_extent", _COUNT),
    Column("unroll_max_step", _COUNT),
    Column("parallel_jobs", _COUNT),
)
"""Columns of a schedule's trace; an extent is the largest there is, 0 if it is not known.

Two mean the same on every class of hardware: `units_extent` counts what runs on different cores or
multiprocessors (a parallel loop, a grid of blocks), `lanes_extent` what runs in step (a vector, the
threads of a block)."""


TOUCHED = ("unique_bytes", "bytes", "lines")
"""Columns of a store's buffers whose sums stand in relation to the task."""

RELATIVE = (
    Column("units_filled", "share"),
    Column("lanes_filled", "share"),
    Column("units_per_thread", "log2(ratio)"),
    Column("vectors_per_register", "log2(ratio)"),
    Column("operations_per_flop", "log2(ratio)"),
    *(
        Column(f"{touched}_per_{base}", "log2(ratio)")
        for touched in TOUCHED
        for base in ("task_byte", "flop", "operation")
    ),
    Column("largest_bytes_per_reuse", _BYTES),
    Column("bytes_per_reuse", _BYTES),
    Column("longest_reuse_distance", _BYTES),
)
"""Columns of a store that follow from its own, its task's and its device's (`models/relative.py`),
for models that read rows. A unit is a round of the parallel loop, a lane an element of the vector;
operations are the store's own, flops the task's."""


def labels(columns: tuple[Column, ...]) -> list[str]:
    """What a model records of its columns."""
    return [column.label for column in columns]


def refuse_other_columns(recorded: list[str], columns: tuple[Column, ...], where: str) -> None:
    """Raises unless `recorded` are the labels of `columns`, in order.

    Raises:
        DataError: Naming the columns that differ.
    """
    current = labels(columns)
    if recorded == current:
        return
    differing = sorted(set(recorded) ^ set(current)) or ["their order"]
    shown = ", ".join(differing[:4]) + (", ..." if len(differing) > 4 else "")
    raise DataError(
        f"{where} trained on other feature columns ({shown})",
        f"the {len(current)} columns of features version {FEATURES_VERSION}",
        "train it again with this version of hetfeat",
    )
