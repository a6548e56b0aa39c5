"""Charts that benchmarks/figures.py makes: narrow enough for a phone, on a ground of their own.

Browsers that prefer dark pages turn light and dark round, hues stay. Without that, paper is white.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hetfeat.report.drawings import drawn
from hetfeat.report.figures import new_figure

Shares = tuple[str, str, str, Sequence[float], str]
"""Network, machine, way, shares of the fastest peer's time, and what is to be said of them."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#6f5f00", "#56b4e9", "#e69f00", "#7f3c8d")
WIDTH = 4.2
DARK = (
    "<style>@media (prefers-color-scheme: dark) "
    "{ svg { filter: invert(0.88) hue-rotate(180deg) } }</style>"
)


def over_fastest(rows: Sequence[Shares]) -> tuple[str, bytes]:
    """A dot for each run, a row for each network and way, a colour for each machine.

    Dots of runs of which something is to be said are hollow.
    """
    machines = [*dict.fromkeys(machine for _, machine, *_ in rows)]
    networks = [*dict.fromkeys(network for network, *_ in rows)]
    kinds = sorted(
        {(network, way) for network, _, way, *_ in rows},
        key=lambda kind: (networks.index(kind[0]), kind[1]),
    )
    figure, (axis,) = new_figure(1, width=WIDTH, height=1.2 + 0.24 * len(kinds))
    colours = dict(zip(machines, COLOURS, strict=False))
    for machine, colour in colours.items():
        axis.plot([], [], "o", color=colour, markersize=6, label=machine)
    for network, machine, way, shares, note in rows:
        place, colour = kinds.index((network, way)), colours[machine]
        face = "none" if note else colour
        axis.plot([min(shares), max(shares)], [place] * 2, color=colour, linewidth=1)
        axis.plot(shares, [place] * len(shares), "o", color=colour, markersize=6, mfc=face)
    axis.axvline(1, color="black", linewidth=1)
    axis.set_yticks(range(len(kinds)), map(", ".join, kinds), fontsize=8.5)
    axis.invert_yaxis()
    axis.grid(axis="x", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    said = "time / fastest peer's time (left of 1: faster)\nhollow: interrupted, or records leaked"
    figure.supxlabel(said, fontsize=8.5)
    figure.legend(fontsize=8.5, frameon=False, loc="outside upper center", ncols=3)
    told = []
    for kind in kinds:
        of = [shares for network, _, way, shares, _ in rows if (network, way) == kind]
        on = f"{len(of)} machines" if len(of) > 1 else "one machine"
        told.append(f"{', '.join(kind)}: {span([share for one in of for share in one])} on {on}")
    alt = "Share of the fastest peer's time that tuned networks take. " + "; ".join(told)
    return alt, finished(figure)


def time_to_tvm(sets: Sequence[dict[str, Any]]) -> tuple[str, bytes]:
    """Latency by seconds of tuning, as a share of what TVM's whole budget reaches."""
    figure, (axis,) = new_figure(1, width=WIDTH, height=4.4)
    for place, each in enumerate(sets):
        colour = COLOURS[place]
        mark = "" if each["measurer"] == "its own" else "*"
        name = f"{each['network']}, {each['machine']}{mark}"
        for run in each["ours"]:
            label = name if run is each["ours"][0] else None
            axis.plot(*points(run), "-o", color=colour, markersize=4, linewidth=1.2, label=label)
        axis.plot(*points(each["tvm"]), "--s", color=colour, markersize=8, markerfacecolor="none")
    axis.axhline(1, color="black", linewidth=1)
    axis.set(xscale="log", ylim=(0.6, 1.32), xlim=(45, 4500))
    axis.set_xticks([60, 120, 300, 1000, 3000], ["60", "120", "300", "1000", "3000"])
    axis.tick_params(labelsize=8.5)
    axis.minorticks_off()
    axis.grid(color="#dddddd", linewidth=0.6)
    axis.set_xlabel("seconds of tuning (squares: TVM's; *: on our builder)", fontsize=8.5)
    axis.set_ylabel("latency / TVM's after its whole budget", fontsize=8.5)
    figure.legend(fontsize=8.5, frameon=False, loc="outside upper center", ncols=2)
    told = (
        f"{each['network']} on {each['machine']}: "
        f"{min(at['share'] for run in each['ours'] for at in run):.2f} at best, where TVM's search "
        f"takes {each['tvm'][-1]['seconds']} s"
        for each in sets
    )
    alt = "Latency by seconds of tuning, over what TVM's whole budget reaches. " + "; ".join(told)
    return alt, finished(figure)


def few_measurements(sets: Sequence[dict[str, Any]]) -> tuple[str, bytes]:
    """PCA by the measurements of each task, one panel for each new device."""
    figure, axes = new_figure(len(sets), width=WIDTH / 2, height=3.4)
    models = [*dict.fromkeys(line["model"] for each in sets for line in each["lines"])]
    for axis, each in zip(axes, sets, strict=True):
        for line in each["lines"]:
            known = zip(each["measured"], line["pca"], line["spread"], strict=True)
            measured, pca, spread = zip(*(at for at in known if at[1] is not None), strict=True)
            axis.errorbar(
                measured,
                pca,
                spread,
                color=COLOURS[models.index(line["model"])],
                linestyle=":" if line["way"] == "from scratch" else "-",
                marker="o",
                markersize=4,
                linewidth=1.3,
                label=f"{line['model']}, {line['way']}",
            )
        axis.set(ylim=(0.68, 0.95), xlim=(-1, 200))
        axis.set_xscale("symlog", linthresh=8)
        axis.set_xticks(each["measured"], map(str, each["measured"]))
        axis.minorticks_off()
        axis.set_title(each["device"], fontsize=9)
        axis.tick_params(labelsize=8.5)
        axis.grid(color="#dddddd", linewidth=0.6)
        axis.label_outer()
    axes[0].set_ylabel("PCA of a new device", fontsize=8.5)
    figure.supxlabel("measurements of each task", fontsize=8.5)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, frameon=False, loc="outside upper center", ncols=2)
    told = (
        f"{each['device']}, {line['model']} {line['way']}: {line['pca'][-1]:.3f}"
        for each in sets
        for line in each["lines"]
    )
    alt = "PCA by measurements of each task of a new device. After the most: " + "; ".join(told)
    return alt, finished(figure)


def span(shares: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys((f"{min(shares):.2f}", f"{max(shares):.2f}")))


def points(run: Iterable[dict[str, float]]) -> tuple[list[float], list[float]]:
    run = [*run]
    return [at["seconds"] for at in run], [at["share"] for at in run]


def finished(figure: Any) -> bytes:
    """The picture as SVG, with its second dress for dark pages."""
    picture = drawn(figure, "svg").decode()
    return picture.replace("<defs>", f"{DARK}\n <defs>", 1).encode()
