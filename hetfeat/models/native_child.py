"""Parses a booster's file and looks where its trees lead: the child of `native`, run by its path.

XGBoost and LightGBM follow the nodes of a tree wherever they lead: out of their arrays, or around
in a ring.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Tree = tuple[Numbers, Numbers, Numbers, int]
"""Left children, right children and columns of the nodes that split, and how many nodes."""


def check_file(path: Path) -> None:
    """Raises whatever there is to raise unless each tree is one, of columns that there are."""
    width, trees = _of_lightgbm(path) if path.suffix == ".txt" else _of_xgboost(path)
    for left, right, columns, nodes in trees:
        children = np.concatenate([left, right])
        if len(np.unique(children)) < len(children) or not _within(children, 1, nodes):
            raise ValueError("nodes that are no tree")
        if not _within(columns, 0, width):
            raise ValueError("a column that is not there")


def _within(values: Numbers, low: int, end: int) -> bool:
    return bool(np.all((values >= low) & (values < end)))


def _of_xgboost(path: Path) -> tuple[int, Iterator[Tree]]:
    import xgboost

    booster = xgboost.Booster(model_file=path)
    booster.save_raw("ubj")
    learner = json.loads(booster.save_raw("json"))["learner"]
    model, said = learner["gradient_booster"]["model"], learner["learner_model_param"]
    count = len(model["trees"])
    if (said["num_class"], said["num_target"]) != ("0", "1") or any(model["tree_info"]):
        raise ValueError("outputs beside a score")
    if model["iteration_indptr"] != [*range(count + 1)] or len(model["tree_info"]) != count:
        raise ValueError("rounds that are not of one tree each")
    return booster.num_features(), map(_tree_of_xgboost, model["trees"])


def _tree_of_xgboost(tree: dict[str, Any]) -> Tree:
    names = ("left_children", "right_children", "split_indices", "split_type")
    left, right, columns, kinds = (np.array(tree[name], np.int64) for name in names)
    splits = left != -1
    if kinds.any():
        raise ValueError("categories")
    return left[splits], right[splits], columns[splits], len(left)


def _of_lightgbm(path: Path) -> tuple[int, Iterator[Tree]]:
    import lightgbm

    booster = lightgbm.Booster(model_file=path)
    if booster.num_model_per_iteration() != 1:
        raise ValueError("outputs beside a score")
    _, *parts = booster.model_to_string().partition("end of trees")[0].split("\nTree=")
    return booster.num_feature(), map(_tree_of_lightgbm, parts)


def _tree_of_lightgbm(part: str) -> Tree:
    lines = dict(line.split("=", 1) for line in part.splitlines()[1:] if line)
    leaves = int(lines["num_leaves"])
    if leaves == 1:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), 1
    names = ("left_child", "right_child", "split_feature", "decision_type")
    left, right, columns, kinds = (np.array(lines[name].split(), np.int64) for name in names)
    if lines["is_linear"] != "0" or np.any(kinds & 1):  # 1: of categories
        raise ValueError("categories, or leaves that compute")
    # A leaf is told by its number, inverted; here it follows the nodes that split.
    left, right = (np.where(side < 0, leaves - 2 - side, side) for side in (left, right))
    return left, right, columns, 2 * leaves - 1


if __name__ == "__main__":
    check_file(Path(sys.argv[1]))
