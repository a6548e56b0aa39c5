"""Draws the table of an experiment on transfer: `python tools/transfer_figure.py`."""

import re
from pathlib import Path

from hetfeat.report.drawings import drawn
from hetfeat.report.figures import new_figure

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/experiments/2026-11-20-transfer-between-profiles.md"
PICTURE = ROOT / "docs/pictures/transfer-figures.svg"
ROW = re.compile(r"^\| (\S+) \| (\d+) \| \d+ \| (.+) \| (.+) \| (.+) \| .+ \|$", re.MULTILINE)
"""A target, its measurements of a task, and PCA of three models, the seeds between slashes."""
LINES = {"source": "#009e73", "transfer": "#0072b2", "scratch": "#d55e00"}


def main() -> None:
    rows = ROW.findall(PAGE.read_text())
    targets = list(dict.fromkeys(row[0] for row in rows))
    figure, axes = new_figure(len(targets), width=2.6, height=2.6)
    for axis, target in zip(axes, targets, strict=True):
        own = [row for row in rows if row[0] == target]
        budgets = [int(row[1]) for row in own]
        for place, (name, colour) in enumerate(LINES.items(), 2):
            seeds = [[float(v) for v in row[place].split(" / ") if v != "-"] for row in own]
            means = [sum(values) / len(values) for values in seeds]
            axis.plot(budgets, means, color=colour, label=name)
            dots = [
                (n, value) for n, values in zip(budgets, seeds, strict=True) for value in values
            ]
            axis.plot(*zip(*dots, strict=True), ".", color=colour)
        axis.set(title=target, xlabel="measured of each task", ylim=(0.65, 0.95), xticks=budgets)
        axis.label_outer()
    axes[0].set_ylabel("PCA on the rest")
    axes[0].legend(fontsize=8, frameon=False, loc="lower right")
    PICTURE.write_bytes(drawn(figure, "svg"))


if __name__ == "__main__":
    main()
