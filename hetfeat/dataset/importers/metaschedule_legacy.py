"""Workloads of TVM 0.9 to 0.16, which this TVM refuses to read: their JSON graph, interpreted.

A node is `{"type_key": ..., "attrs": {field: value}}`; fields that hold objects name the position
of another node, as text. Arrays and maps have `data`, texts `repr_str`.
"""

import math
import re
from typing import Any

from hetfeat.records import Task
from hetfeat.workloads.operators import anchor_operator

COUNTED = {
    *("Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max"),
    *("EQ", "NE", "LT", "LE", "GT", "GE", "And", "Or", "Not"),
}
"""Expressions that TVM's estimator of FLOPs counts as one operation."""
REDUCTION = "2"
"""`iter_type` of an axis that is reduced over."""


def describe_graph(graph: Any, arguments: list[Any]) -> Task:
    """The task of a graph, without a hash.

    Args:
        graph: Value decoded from the JSON of the graph.
        arguments: One `["TENSOR", dtype, shape]` an argument, for shapes that the graph leaves
            open.

    Raises:
        ValueError: It is no graph of a workload.
    """
    try:
        return _Graph(graph["nodes"]).task(arguments)
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        RecursionError,
        OverflowError,
    ):
        raise ValueError("workload that is no module") from None


class _Graph:
    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self._nodes = nodes
        self._counts: dict[int, float] = {}

    def task(self, arguments: list[Any]) -> Task:
        (function,) = (i for i, n in enumerate(self._nodes) if n["type_key"] == "tir.PrimFunc")
        tensors = self._tensors(function) or [(str(t), shape) for _, t, shape in arguments]
        shapes = tuple(tuple(map(int, shape)) for _, shape in tensors)
        dtype = tensors[-1][0]
        if not re.fullmatch(r"[a-z0-9_]{1,32}", dtype):
            raise ValueError(dtype)
        flops = self._count(self._at(function, "body"))
        # An extent that only a call knows: how much there is to do is not known.
        return Task("", self._operator(), shapes, dtype, 0.0 if math.isnan(flops) else flops)

    def _tensors(self, function: int) -> list[tuple[str, list[int]]]:
        """Type and shape of each argument; none if only a call knows an extent."""
        pairs = self._nodes[self._at(function, "buffer_map")]["data"]
        buffers = dict(zip(pairs[::2], pairs[1::2], strict=True))
        found = []
        for parameter in self._nodes[self._at(function, "params")]["data"]:
            buffer = buffers[parameter]
            members = self._nodes[self._at(buffer, "shape")].get("data", [])
            extents = [extent for extent in map(self._integer, members) if extent is not None]
            if len(extents) < len(members):
                return []
            found.append((str(self._nodes[buffer]["attrs"]["dtype"]), extents))
        return found

    def _operator(self) -> str:
        names = []
        for i, node in enumerate(self._nodes):
            if node["type_key"] == "tir.Block":
                axes = self._nodes[self._at(i, "iter_vars")].get("data", [])
                if any(self._nodes[axis]["attrs"]["iter_type"] == REDUCTION for axis in axes):
                    names.append(str(self._nodes[self._at(i, "name_hint")]["repr_str"]))
        return anchor_operator(names)

    def _count(self, node: int) -> float:
        """Operations of a statement or expression, as TVM's `estimate_tir_flops` counts them."""
        if node not in self._counts:
            self._counts[node] = self._count_anew(node)
        return self._counts[node]

    def _count_anew(self, node: int) -> float:
        kind = self._nodes[node]["type_key"].removeprefix("tir.")
        if kind == "For":
            extent = self._integer(self._at(node, "extent"))
            return math.nan if extent is None else extent * self._of(node, "body")
        if kind in ("BlockRealize", "Block", "AttrStmt", "Allocate", "LetStmt"):
            return self._of(node, "block" if kind == "BlockRealize" else "body")
        if kind == "SeqStmt":
            return self._sum(self._at(node, "seq"))
        if kind in ("BufferStore", "Cast"):
            return self._of(node, "value")
        if kind in ("Select", "IfThenElse"):
            names = (
                ("true_value", "false_value") if kind == "Select" else ("then_case", "else_case")
            )
            return self._of(node, "condition") + max(self._of(node, name) for name in names)
        if kind == "Call":
            return self._sum(self._at(node, "args"))
        if kind == "Not":
            return 1 + self._of(node, "a")
        if kind in COUNTED:
            return 1 + self._of(node, "a") + self._of(node, "b")
        return 0.0

    def _sum(self, array: int) -> float:
        return sum(map(self._count, self._nodes[array].get("data", [])))

    def _of(self, node: int, field: str) -> float:
        return self._count(self._at(node, field))

    def _at(self, node: int, field: str) -> int:
        return int(self._nodes[node]["attrs"][field])

    def _integer(self, node: int) -> int | None:
        found = self._nodes[node]
        return int(found["attrs"]["value"]) if found["type_key"] == "IntImm" else None
