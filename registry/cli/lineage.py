"""Prints where a version comes from and what was made of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from registry.cli import app
from registry.cli.options import argument
from registry.cli.params import MODEL_VERSION


def _as_text(value: Mapping[str, Any]) -> str:
    from registry.models.lineage import Lineage, Node, as_tree

    nodes = {node["id"]: Node(**node) for node in value["nodes"]}
    edges = [(edge["from"], edge["to"]) for edge in value["edges"]]
    return as_tree(Lineage(value["asked"], nodes, edges))


@dataclass(frozen=True)
class LineageOptions:
    """Options of `hetfeat lineage`."""

    uri: str = argument(type=MODEL_VERSION)


@app.command(
    "lineage",
    LineageOptions,
    example="hetfeat lineage models:/costmodel.cpu-x86/3",
    render=_as_text,
    short_help="Print what a version comes from and led to.",
)
def command(options: LineageOptions) -> Mapping[str, Any]:
    """Prints the data sets and models a version comes from, and what was made of it.

    URI is models:/NAME/VERSION, NAME@alias, or dataset:DIGEST, of which the first 8 digits do.
    """
    from registry.models.lineage import as_tree, lineage

    graph = lineage(options.uri)
    return {
        "asked": graph.asked,
        "nodes": list(graph.nodes.values()),
        "edges": [{"from": parent, "to": child} for parent, child in graph.edges],
        "tree": as_tree(graph),
    }
