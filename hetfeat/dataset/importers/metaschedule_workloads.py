"""The workloads of a MetaSchedule database."""

import base64
import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from hetfeat.dataset.importers.metaschedule_legacy import describe_graph
from hetfeat.dataset.serialised import HEADER_BYTES
from hetfeat.errors import DataError
from hetfeat.parsing import Count, Schema, decode
from hetfeat.records import Task


@dataclass(frozen=True)
class Workload:
    """What the records of a workload share.

    Attributes:
        task: Task of the records.
        versions: Name and version of the TVM that wrote the module.
        module: Module as text; None where this TVM does not read it.
    """

    task: Task
    versions: str
    module: str | None


class _Occurrence(Schema):
    """A task of a network in `networks.json`."""

    workload_index: Count
    weight: Count


class Workloads:
    """The workloads of a database by their position, each looked into when it is first used.

    Args:
        lines: Lines of the file of workloads.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = list(lines)
        self._known: dict[int, Workload | str] = {}
        self._new: dict[str, str] = {}

    def task(self, index: int, arguments: list[Any]) -> Workload:
        """A workload.

        Args:
            index: Position of the workload in the database.
            arguments: Arguments of one of its records; they stand in for shapes that the module
                leaves open.

        Raises:
            ValueError: There is no such workload, or it is none; the message says which.
        """
        if index not in self._known:
            try:
                self._known[index] = workload = self._look_into(index, arguments)
                if workload.module is not None:
                    self._new[workload.task.hash] = workload.module
            except ValueError as error:
                self._known[index] = str(error)
        workload_or_fault = self._known[index]
        if isinstance(workload_or_fault, str):
            raise ValueError(workload_or_fault)
        return workload_or_fault

    def new_modules(self) -> dict[str, str]:
        """Modules by task hash, each given once."""
        modules, self._new = self._new, {}
        return modules

    def networks(self, file: Path) -> dict[str, dict[str, int]]:
        """Occurrences by network and task hash, from a file that lists workload indices.

        Raises:
            DataError: The file is another one.
        """
        if not file.is_file():
            return {}
        try:
            tasks_of = decode(
                file.read_bytes().removeprefix(codecs.BOM_UTF8),
                dict[str, list[_Occurrence]],
                what=f"'{file}'",
                action="correct it, or import without it",
            )
            return {
                name: {self._hash(task.workload_index): task.weight for task in tasks}
                for name, tasks in tasks_of.items()
            }
        except (OSError, ValueError) as error:
            raise DataError(
                f"'{file}'",
                "networks, each a list of tasks with workload_index and weight",
                "correct it, or import without it",
            ) from error

    def _hash(self, index: int) -> str:
        if not 0 <= index < len(self._lines):
            raise ValueError("workload that its file lacks")
        match _json(self._lines[index]):
            case [str(number), str()] if re.fullmatch(r"-?\d{1,20}", number):
                return f"{int(number) & (2**64 - 1):016x}"
        raise ValueError("workload without a hash")

    def _look_into(self, index: int, arguments: list[Any]) -> Workload:
        task_hash = self._hash(index)
        text = _json(self._lines[index])[1]
        try:
            packed = base64.b64decode(text)
        except ValueError:
            raise ValueError("workload that is not base64") from None
        graph = _json(packed[HEADER_BYTES:])
        if isinstance(graph, dict) and "root_index" in graph:
            task, module, said = _read_by_tvm(text), text, graph.get("metadata")
        else:
            task, module = describe_graph(graph, arguments), None
            said = graph.get("attrs")
        version = said.get("tvm_version") if isinstance(said, dict) else None
        named = isinstance(version, str) and re.fullmatch(r"[\w.+-]{1,40}", version, re.ASCII)
        versions = f"tvm {version}" if named else "tvm"
        return Workload(replace(task, hash=task_hash), versions, module)


def _json(text: bytes) -> Any:
    try:
        return decode(text, JsonValue, what="a workload", action="skip it", max_bytes=len(text))
    except DataError:
        raise ValueError("workload that is not JSON") from None


def _read_by_tvm(text: str) -> Task:
    from hetfeat.workloads.relax import describe, load_workload

    try:
        return describe(load_workload(text))
    except Exception:  # whatever TVM finds wrong with a foreign file
        raise ValueError("workload that this TVM does not read") from None
