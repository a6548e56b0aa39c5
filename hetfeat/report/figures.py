"""Figures of one training. Each returns a matplotlib figure that no window ever shows."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]


def learning_curve(figures: Mapping[str, Mapping[int, float]]) -> "Figure":
    """Each figure of the valid side by round, one panel each."""
    figure, axes = new_figure(len(figures), width=4.0)
    for axis, (name, values) in zip(axes, figures.items(), strict=True):
        axis.plot(list(values), list(values.values()))
        axis.set(xlabel="round", ylabel=name)
    return figure


def predicted_against_measured(y: Floats, estimate: Floats) -> "Figure":
    """Estimates of y over measured y, float64 [n] each, as a density."""
    figure, (axis,) = new_figure(1, width=5.0)
    axis.hexbin(y, estimate, gridsize=40, extent=(0, 1, 0, 1), bins="log", cmap="viridis")
    axis.plot([0, 1], [0, 1], color="white", linewidth=1)
    axis.set(xlabel="measured: best latency / latency", ylabel="predicted")
    return figure


def error_by_operator(operator_rmse: dict[str, float]) -> "Figure":
    """RMSE of y of each operator, as bars."""
    figure, (axis,) = new_figure(1, width=6.0)
    names = sorted(operator_rmse, key=lambda name: operator_rmse[name])
    axis.barh(names, [operator_rmse[name] for name in names])
    axis.set(xlabel="RMSE of best latency / latency")
    return figure


def bars(panels: dict[str, dict[str, float]]) -> "Figure":
    """A panel of bars for each figure, the same names in each, the first name on top."""
    figure, axes = new_figure(len(panels), width=5.0)
    for axis, (name, values) in zip(axes, panels.items(), strict=True):
        axis.barh(list(values)[::-1], list(values.values())[::-1])
        axis.set(xlabel=name)
        axis.tick_params(axis="y", labelsize=6)
        axis.label_outer()
    return figure


def importance(worth: Mapping[str, float], what: str, most_columns: int = 20) -> "Figure":
    """What the most important feature columns are worth, as shares of all, as bars.

    Args:
        worth: Worth by column, positive.
        what: Name of what they are shares of.
        most_columns: Most columns that are drawn; 20 by default: more bars cannot be read.
    """
    figure, (axis,) = new_figure(1, width=7.0)
    names = sorted(worth, key=lambda name: worth[name])[-most_columns:]
    total = sum(worth.values())
    axis.barh(names, [worth[name] / total for name in names])
    axis.set(xlabel=f"share of the total {what}")
    return figure


def new_figure(count: int, width: float, height: float = 4.0) -> tuple["Figure", list["Axes"]]:
    """A figure of so many panels side by side, each `width` x `height` inches."""
    # A figure made without pyplot draws with Agg and is freed like any object.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, height), layout="constrained")
    return figure, [figure.add_subplot(1, count, i + 1) for i in range(count)]
