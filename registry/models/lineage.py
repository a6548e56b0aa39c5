"""Where a version comes from and what was made of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hetfeat.errors import RequestError
from hetfeat.parsing import printable
from registry.models.gates import kind_of
from registry.models.mlflow_client import condition, connect, translated
from registry.models.version import CALIBRATION_TAG, DATASET_TAG, PARENT_TAG, Version
from registry.models.versions import resolve, search_versions

if TYPE_CHECKING:
    from mlflow import MlflowClient

DATASET = "dataset:"
CALIBRATION = "calibration:"
MIN_DIGITS = 8
"""Fewest digits of a digest that stand for the whole, as commands print it."""
_HEXADECIMAL = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Node:
    """A data set or a version.

    Attributes:
        id: `models:/NAME/VERSION`, `dataset:DIGEST` or `calibration:DIGEST`.
        kind: `data set`, `calibration data`, `source model`, `transfer-tuned model`, `bundle`, or
            `gone` for a version that was deleted.
        stage: Stage of a version, default empty.
    """

    id: str
    kind: str
    stage: str = ""


@dataclass
class Lineage:
    """A version or data set with all that it comes from and all that came of it.

    Attributes:
        asked: Id of the node asked for.
        nodes: Nodes by id, default none.
        edges: Pairs of ids: what was used, and what was made of it; default none.
        most_nodes: Number of nodes from which no more are looked for, default 1,000: tags of others
            can make chains and circles without end.
    """

    asked: str
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    most_nodes: int = 1000

    def roots(self) -> list[str]:
        """Ids of what comes from nothing else here; of a circle, of the one asked for."""
        made = {child for parent, child in self.edges if parent in self.nodes}
        return [node for node in self.nodes if node not in made] or [self.asked]

    @property
    def is_full(self) -> bool:
        """Whether no more nodes are looked for."""
        return len(self.nodes) >= self.most_nodes


def lineage(
    name_or_uri: str, *, most_nodes: int = 1000, client: "MlflowClient | None" = None
) -> Lineage:
    """The lineage of a version, or of a data set given as `dataset:DIGEST` or its first digits.

    Args:
        name_or_uri: Name or URI of the version, or the data set.
        most_nodes: Number of nodes from which no more are looked for, as in `Lineage`; default
            1,000.
        client: Client of the registry; default None for the one that MLflow's variables name.

    Raises:
        RequestError: There is no such version or data set.
    """
    client = client or connect()
    with translated(f"trace {name_or_uri}"):
        if name_or_uri.startswith(DATASET):
            digest = _whole(client, name_or_uri.removeprefix(DATASET))
            graph = Lineage(DATASET + digest, most_nodes=most_nodes)
            _add_dataset(graph, digest)
            _descend(client, graph, graph.asked)
            return graph
        version = resolve(name_or_uri, client=client)
        graph = Lineage(version.uri, most_nodes=most_nodes)
        _add(graph, version)
        _ascend(client, graph, version)
        _descend(client, graph, version.uri)
        return graph


def children_of(client: "MlflowClient", node: str) -> Iterator[Version]:
    """Versions made directly of a version or data set."""
    tag, value = PARENT_TAG, node
    if node.startswith(DATASET):
        tag, value = DATASET_TAG, node.removeprefix(DATASET)
    yield from map(Version.of, search_versions(client, condition(f"tags.{tag}", value)))


def as_tree(graph: Lineage) -> str:
    """The lineage as lines for a terminal; the node asked for is marked."""
    lines: list[str] = []
    seen: set[str] = set()
    children: dict[str, list[str]] = {}
    for parent, child in graph.edges:
        children.setdefault(parent, []).append(child)
    left = [(root, "", "") for root in reversed(graph.roots())]
    while left:
        node, head, tail = left.pop()
        lines.append(head + _label(graph, node) + (" (see above)" if node in seen else ""))
        if node in seen:
            continue
        seen.add(node)
        branch, below = "└─ ", "   "
        for child in reversed(children.get(node, [])):
            left.append((child, tail + branch, tail + below))
            branch, below = "├─ ", "│  "
    return "\n".join(lines)


def _whole(client: "MlflowClient", digits: str) -> str:
    """The digest of a data set that begins with these digits."""
    if len(digits) < MIN_DIGITS or not _HEXADECIMAL.issuperset(digits):
        raise RequestError(
            f"data set {digits!r}",
            f"a digest or its first {MIN_DIGITS} digits or more",
            "correct it",
        )
    versions = search_versions(client, condition(f"tags.{DATASET_TAG}", f"{digits}%", "LIKE"))
    digests = {version.tags[DATASET_TAG] for version in versions}
    if len(digests) != 1:
        raise RequestError(
            f"'{DATASET}{digits}', with which {len(digests)} data sets begin",
            "the digest of one that a version was made of",
            "`hetfeat lineage models:/NAME/VERSION` prints those of a version",
        )
    return str(digests.pop())


def _ascend(client: "MlflowClient", graph: Lineage, version: Version) -> None:
    while True:
        if digest := version.tags.get(DATASET_TAG):
            _add_dataset(graph, digest)
            graph.edges.append((DATASET + digest, version.uri))
        if digest := version.tags.get(CALIBRATION_TAG):
            node = CALIBRATION + digest
            graph.nodes[node] = Node(node, "calibration data")
            graph.edges.append((node, version.uri))
        if not (parent_uri := version.tags.get(PARENT_TAG)):
            return
        graph.edges.append((parent_uri, version.uri))
        if parent_uri in graph.nodes or graph.is_full:
            return
        try:
            version = resolve(parent_uri, client=client)
        except RequestError:
            graph.nodes[parent_uri] = Node(parent_uri, "gone")
            return
        _add(graph, version)


def _descend(client: "MlflowClient", graph: Lineage, node: str) -> None:
    edges = set(graph.edges)
    left = [node]
    while left:
        node = left.pop()
        for child in children_of(client, node):
            if (node, child.uri) not in edges:
                edges.add((node, child.uri))
                graph.edges.append((node, child.uri))
            if child.uri not in graph.nodes and not graph.is_full:
                _add(graph, child)
                left.append(child.uri)


def _add(graph: Lineage, version: Version) -> None:
    kind = "bundle"
    if kind_of(version) != "bundle":
        kind = "transfer-tuned model" if PARENT_TAG in version.tags else "source model"
    graph.nodes[version.uri] = Node(version.uri, kind, version.stage)


def _add_dataset(graph: Lineage, digest: str) -> None:
    graph.nodes[DATASET + digest] = Node(DATASET + digest, "data set")


def _label(graph: Lineage, node: str) -> str:
    shown = graph.nodes.get(node, Node(node, "not shown"))
    stage = f", {shown.stage}" if shown.stage not in ("", "none") else ""
    name = shown.id.removeprefix("models:/")
    if shown.kind in ("data set", "calibration data"):
        name = shown.id.partition(":")[2][:16]
    mark = "  <-" if node == graph.asked else ""
    return f"{printable(name, None)} ({shown.kind}{stage}){mark}"
