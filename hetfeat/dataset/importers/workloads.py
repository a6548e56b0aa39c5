"""The workloads of a MetaSchedule database."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hetfeat.dataset.importers import legacy
from hetfeat.records import Task

HEADER_BYTES = 8
"""Before a module's JSON comes its length."""


@dataclass(frozen=True)
class Workload:
    """What the records of a workload share.

    Attributes:
        task: Their task.
        versions: The TVM that wrote the module.
        module: The module as text where this TVM reads it.
    """

    task: Task
    versions: str
    module: str | None


class Workloads:
    """The workloads of a database by their position, each looked into when it is first used.

    Args:
        lines: Of the file of workloads.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = list(lines)
        self._known: dict[int, Workload | str] = {}
        self._new: dict[str, str] = {}

    def task(self, index: int, arguments: list[Any]) -> Workload:
        """A workload.

        Args:
            index: Its position.
            arguments: Of one of its records; stands in for shapes that the module leaves open.

        Raises:
            ValueError: There is no such workload, or it is none; the message says which.
        """
        if index not in self._known:
            try:
                self._known[index] = found = self._look_into(index, arguments)
                if found.module is not None:
                    self._new[found.task.hash] = found.module
            except ValueError as error:
                self._known[index] = str(error)
        known = self._known[index]
        if isinstance(known, str):
            raise ValueError(known)
        return known

    def new_modules(self) -> dict[str, str]:
        """Modules by task hash, each given once."""
        given, self._new = self._new, {}
        return given

    def networks(self, file: Path) -> dict[str, dict[str, int]]:
        """Occurrences by network and task hash, from a file that lists workload indices."""
        try:
            listed = json.loads(file.read_text())
            return {name: dict(self._weights(tasks)) for name, tasks in listed.items()}
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            return {}

    def _weights(self, tasks: list[dict[str, int]]) -> Iterator[tuple[str, int]]:
        for task in tasks:
            yield self._hash(task["workload_index"]), int(task["weight"])

    def _hash(self, index: int) -> str:
        if not 0 <= index < len(self._lines):
            raise ValueError("workload that its file lacks")
        match json.loads(self._lines[index]):
            case [str(number), str()] if re.fullmatch(r"-?\d{1,20}", number):
                return f"{int(number) & (2**64 - 1):016x}"
        raise ValueError("workload without a hash")

    def _look_into(self, index: int, arguments: list[Any]) -> Workload:
        task_hash = self._hash(index)
        text = json.loads(self._lines[index])[1]
        try:
            graph = json.loads(base64.b64decode(text)[HEADER_BYTES:])
        except (binascii.Error, ValueError, RecursionError):
            raise ValueError("workload that is not JSON in base64") from None
        if isinstance(graph, dict) and "root_index" in graph:
            task, module = _read_by_tvm(text), text
            said = graph.get("metadata", {})
        else:
            task, module = legacy.describe(graph, arguments), None
            said = graph["attrs"]
        versions = f"tvm {said['tvm_version']}" if "tvm_version" in said else "tvm"
        return Workload(replace(task, hash=task_hash), versions, module)


def _read_by_tvm(text: str) -> Task:
    from hetfeat.workloads.tvm import describe, load_workload

    try:
        return describe(load_workload(text))
    except (ValueError, TypeError, KeyError, RuntimeError, AttributeError, IndexError):
        raise ValueError("workload that this TVM does not read") from None
