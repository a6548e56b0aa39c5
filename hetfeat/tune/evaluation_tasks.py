"""Which tasks are measured densely, so that top-k can be judged on them."""

import itertools
import random
from collections.abc import Iterable, Iterator

from hetfeat.records import Task


def evaluation_order(tasks: Iterable[Task], seed: int) -> Iterator[Task]:
    """Tasks in the order in which they are tried, the operators taking turns.

    One task for each operator and shape of its first two arguments: two epilogues of one
    convolution are one problem (`dataset.splits.task_units`).
    """
    distinct: dict[tuple[str, tuple[tuple[int, ...], ...]], Task] = {}
    for task in sorted(tasks, key=lambda task: task.hash):
        distinct.setdefault((task.operator, task.shapes[:2]), task)
    by_operator: dict[str, list[Task]] = {}
    for task in distinct.values():
        by_operator.setdefault(task.operator, []).append(task)
    for operator, of_operator in sorted(by_operator.items()):
        random.Random(f"{seed} {operator}").shuffle(of_operator)
    turns = itertools.zip_longest(*(by_operator[operator] for operator in sorted(by_operator)))
    return (task for turn in turns for task in turn if task is not None)
