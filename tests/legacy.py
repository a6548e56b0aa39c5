"""A MetaSchedule database as TVM 0.9 to 0.16 wrote it: one matrix product, node by node."""

import base64
import json
from pathlib import Path
from typing import Any

HASH = 11400714819323198485


class Graph:
    """Nodes of a JSON graph; each method adds one and returns its position."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = [{"type_key": ""}]

    def node(self, kind: str, **attributes: Any) -> int:
        self.nodes.append(
            {"type_key": kind, "attrs": {name: str(value) for name, value in attributes.items()}}
        )
        return len(self.nodes) - 1

    def array(self, *members: int, kind: str = "Array") -> int:
        self.nodes.append({"type_key": kind, **({"data": list(members)} if members else {})})
        return len(self.nodes) - 1

    def text(self, value: str) -> int:
        self.nodes.append({"type_key": "runtime.String", "repr_str": value})
        return len(self.nodes) - 1

    def integer(self, value: int) -> int:
        return self.node("IntImm", dtype="int64", value=value)

    def variable(self, name: str) -> int:
        return self.node("tir.Var", dtype="int64", name=self.text(name))

    def buffer(self, *shape: int) -> int:
        extents = self.array(*(self.integer(n) if n else self.variable("n") for n in shape))
        return self.node("tir.Buffer", dtype="float32", shape=extents)

    def block(self, name: str, axes: str, body: int) -> int:
        """A block whose axes are spatial (0) or reduced over (2)."""
        iterators = [self.node("tir.IterVar", iter_type=kind) for kind in axes]
        inner = self.node(
            "tir.Block", name_hint=self.text(name), iter_vars=self.array(*iterators), body=body
        )
        return self.node("tir.BlockRealize", block=inner)


def matmul_graph(m: int, k: int, n: int, version: str = "0.13.dev0") -> dict[str, Any]:
    """`relu(A @ B)`: 2mkn operations of the product and mn of the epilogue; n = 0 is unknown."""
    graph = Graph()
    buffers = [graph.buffer(m, k), graph.buffer(k, n), graph.buffer(m, n)]
    load = [graph.node("tir.BufferLoad", buffer=buffer) for buffer in buffers]

    def loops(extents: tuple[int, ...], body: int) -> int:
        for extent in extents:
            size = graph.integer(extent) if extent else graph.variable("n")
            body = graph.node("tir.For", extent=size, body=body)
        return body

    product = graph.node("tir.Mul", a=load[0], b=load[1])
    sum_ = graph.node("tir.Add", a=load[2], b=product)
    store = graph.node("tir.BufferStore", buffer=buffers[2], value=sum_)
    matmul = loops((m, n, k), graph.block("T_matmul_NN", "002", store))
    larger = graph.node("tir.Max", a=load[2], b=graph.node("FloatImm", value=0))
    relu = graph.node("tir.BufferStore", buffer=buffers[2], value=larger)
    body = graph.node(
        "tir.SeqStmt", seq=graph.array(matmul, loops((m, n), graph.block("relu", "00", relu)))
    )
    handles = [graph.variable(name) for name in "ABC"]
    pairs = [position for pair in zip(handles, buffers, strict=True) for position in pair]
    root = graph.block("root", "", body)
    function = graph.node(
        "tir.PrimFunc",
        body=root,
        buffer_map=graph.array(*pairs, kind="Map"),
        params=graph.array(*handles),
    )
    module = graph.node("IRModule", functions=graph.array(graph.text("main"), function, kind="Map"))
    return {"root": module, "nodes": graph.nodes, "attrs": {"tvm_version": version}}


def workload_line(graph: dict[str, Any], number: int = HASH) -> str:
    text = json.dumps(graph).encode()
    packed = base64.b64encode(len(text).to_bytes(8, "little") + text).decode()
    return json.dumps([str(number), packed])


def record_line(tile: list[int], seconds: list[float], index: int = 0) -> str:
    instructions = [
        ["GetBlock", [], ["T_matmul_NN", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
        ["SamplePerfectTile", ["l1"], [2, 16], ["v4", "v5"]],
        ["Split", ["l1", "v4", "v5"], [1], ["l6", "l7"]],
    ]
    arguments = [["TENSOR", "float32", shape] for shape in ([32, 64], [64, 16], [32, 16])]
    target = {"kind": "cuda", "arch": "sm_80", "keys": ["cuda", "gpu"], "tag": "",
              "max_threads_per_block": 1024, "thread_warp_size": 32}  # fmt: skip
    return json.dumps([index, [[instructions, [[2, tile]]], seconds, target, arguments]])


RECORDS = (
    record_line([2, 16], [1e-3, 3e-3, 2e-3]),
    record_line([4, 8], [5e-4]),
    record_line([8, 4], [1e10]),
    record_line([4, 8], [6e-4]),
)
"""Three programs, one of which failed and another is there twice."""


def write_database(folder: Path, records: tuple[str, ...] = RECORDS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "database_tuning_record.json").write_text("\n".join(records) + "\n")
    (folder / "database_workload.json").write_text(workload_line(matmul_graph(32, 64, 16)) + "\n")
    return folder
