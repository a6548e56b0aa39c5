"""Writes figures of README.md and of three pages of docs/, and draws their charts.

    python benchmarks/figures.py [--check]

Figures come from the files below benchmarks/results/, and stand between two markers of a page. With
`--check` nothing is written, and pages that differ are named. Files of `everywhere/` and of
`quantised/` are what benchmarks/everywhere.py and benchmarks/quantised_everywhere.py wrote. The
others are copied from an experiment, which they name: its page has the machine, the day, the
versions where they were noted, and the command.
"""

import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import everywhere
import figure_charts
import quantised_everywhere as quantised

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PICTURES = ROOT / "docs" / "pictures"
PAGES = ("performance", "accuracy", "quantised")
BLOCK = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)

WAYS = {"one-shot": "no measurement", "quick": "quick", "standard": "standard"}
NOT_RUN = "-"
A_DAY_S = 86_400
NETWORKS = {
    "resnet50": "ResNet-50",
    "mobilenet_v3_large": "MobileNetV3-Large",
    "inception_v3": "InceptionV3",
    "bert_base": "BERT-base, 128 tokens",
    "vit_b_16": "ViT-B/16",
    "efficientnet_b0": "EfficientNet-B0",
    "densenet121": "DenseNet-121",
}
PACKAGES = {
    "apache-tvm": "TVM",
    "torch": "torch",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
}


@dataclass(frozen=True)
class Latency:
    """What tuned networks take of the fastest peer's time, one share a run."""

    network: str
    machine: str
    way: str
    shares: tuple[float, ...]
    note: str

    @property
    def shown(self) -> str:
        runs = f"{len(self.shares)} runs" if len(self.shares) > 1 else ""
        notes = ", ".join(filter(None, (runs, self.note)))
        return figure_charts.span(self.shares) + (f" ({notes})" if notes else "")


def copied(name: str) -> list[dict[str, Any]]:
    """The sets of a file of figures that were copied from experiments."""
    sets: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text())
    return sets


def spoken(profile: str) -> str:
    """A profile's name as people say it, with its instructions where they are not the widest."""
    found = re.search(r"(znver(\d)|sapphirerapids)-(\w+)-(\d)t$", profile)
    if found is None:
        return profile
    _, zen, has, threads = found.groups()
    widest = "avx2" if zen and int(zen) < 4 else "avx512"
    name = f"Zen {zen}" if zen else "Intel with AMX"
    instructions = "" if has == widest else f", {has.upper()}"
    return f"{name}{instructions}" + ("" if threads == "2" else f", {threads} thread")


def latencies() -> list[Latency]:
    """The newest figures of each network on each machine in each way."""
    rows = []
    for each in copied("latency"):
        for row in each["rows"]:
            shares = row.get("shares") or [row["tuned_ms"] / min(row["peers_ms"].values())]
            note = row.get("note", "")
            rows.append(Latency(row["network"], each["machine"], row["way"], (*shares,), note))
    of_cells = defaultdict(list)
    for line in everywhere.lines_of(RESULTS / "everywhere"):
        if everywhere.share_of_fastest(line) is not None:
            of_cells[line["machine"]["profile"], line["network"], line["way"]].append(line)
    for (profile, network, way), lines in of_cells.items():
        runs = newest_runs(lines)
        shares = tuple(everywhere.share_of_fastest(run) for run in runs)
        note = everywhere.leaked(runs[-1])
        rows.append(Latency(NETWORKS[network], spoken(profile), way, shares, note))
    return list({(row.machine, row.network, row.way): row for row in rows}.values())


def newest_runs(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest line of each seed that is within a day of the newest of all."""
    since = max(line["unix_s"] for line in lines) - A_DAY_S
    recent = [line for line in lines if line["unix_s"] >= since]
    return list({line.get("seed", 0): line for line in recent}.values())


def latency_block() -> str:
    """A row a network, a column a machine, in each cell the ways in their order."""
    rows = latencies()
    cells = {(row.network, row.machine, row.way): row.shown for row in rows}
    machines = [*dict.fromkeys(row.machine for row in rows)]
    table = []
    for network in dict.fromkeys(row.network for row in rows):
        of = [[cells.get((network, machine, way), NOT_RUN) for way in WAYS] for machine in machines]
        table.append([network, *(", ".join(ways) if {*ways} != {NOT_RUN} else "" for ways in of)])
    return markdown(["network", *machines], table)


def conditions_block() -> str:
    """Where, when and beside what the latencies were measured."""
    rows = [
        [
            f"[{each['machine']}](experiments/{each['page']})",
            each["described"],
            each["date"],
            versions(each["versions"]),
        ]
        for each in copied("latency")
    ]
    lines = everywhere.lines_of(RESULTS / "everywhere")
    for profile in dict.fromkeys(line["machine"]["profile"] for line in lines):
        own = [line for line in lines if line["machine"]["profile"] == profile]
        machine = own[0]["machine"]
        described = (
            f"{machine['cpu']}, {machine['cores']} cores ({machine['peak_gflops']:.0f} GFLOP/s, "
            f"{machine['bandwidth_gb_s']:.1f} GB/s)"
        )
        days = sorted({datetime.fromtimestamp(line["unix_s"], UTC).date() for line in own})
        of = dict.fromkeys(versions(line["versions"]) for line in own)
        dates = " to ".join(dict.fromkeys((str(days[0]), str(days[-1]))))
        rows.append([spoken(profile), described, dates, "; ".join(of)])
    return markdown(["machine", "what it is", "day", "versions"], rows)


def quantised_block() -> str:
    """The newest figures of int8 of each network on each machine in each way."""
    newest = {}
    for line in everywhere.lines_of(RESULTS / "quantised"):
        network, machine = NETWORKS[line["network"]], spoken(line["machine"]["profile"])
        newest[machine, network, WAYS[line["way"]]] = [
            f"{quantised.ours_ms(line):.1f}",
            quantised.ratio(line, f"{quantised.OURS}, {quantised.FLOAT}"),
            *(quantised.peer_ratio(line, peer) for peer in quantised.PEERS),
        ]
    rows = [[network, machine, way, *cells] for (machine, network, way), cells in newest.items()]
    peers = [f"of {PACKAGES[peer]}'s int8" for peer in quantised.PEERS]
    head = ["network", "machine", "tuning", "int8, ms", "of our float32", *peers]
    return markdown(head, rows)


def versions(of: dict[str, str] | None) -> str:
    if of is None:
        return "not noted"
    return ", ".join(f"{name} {of[package]}" for package, name in PACKAGES.items() if package in of)


def tvm_block() -> str:
    """The first time after which each run was at least as fast as after TVM's whole budget."""
    rows = []
    for each in copied("time-to-tvm"):
        whole = each["tvm"][-1]
        if (level := levelled(each["ours"])) is not None:
            seconds, trials = level
            shares = [f"1/{whole['seconds'] / seconds:.1f}", f"1/{whole['trials'] / trials:.1f}"]
        else:
            behind = statistics.median(run[-1]["share"] for run in each["ours"]) - 1
            last_s = max(run[-1]["seconds"] for run in each["ours"])
            shares = [f"{behind:.1%} slower after {last_s} s", ""]
        network = f"[{each['network']}](experiments/{each['page']})"
        of = [network, each["machine"], each["date"], each["measurer"], str(whole["seconds"])]
        rows.append([*of, *shares, str(each["seeds"])])
    head = ["network", "machine", "day", "builder and runner", "its time, s"]
    noted = dict.fromkeys(versions(each["versions"]) for each in copied("time-to-tvm"))
    return (
        markdown([*head, "share of its time", "of its trials", "seeds"], rows)
        + f"\n\nVersions: {'; '.join(noted)}."
    )


def levelled(runs: Sequence[Sequence[dict[str, float]]]) -> tuple[float, float] | None:
    """Seconds after which every run is level, and the most trials that one had by then."""
    firsts = [[at for at in run if at["share"] <= 1] for run in runs]
    if not all(firsts) or any(run[-1]["share"] > 1 for run in runs):
        return None
    seconds = max(first[0]["seconds"] for first in firsts)
    by_then = [at["trials"] for run in runs for at in run if at["seconds"] <= seconds]
    return seconds, max(by_then)


def few_block() -> str:
    """PCA by measurements of each task of the first device."""
    first = copied("few-measurements")[0]
    rows = []
    for line in first["lines"]:
        pairs = zip(line["pca"], line["spread"], strict=True)
        cells = ["" if pca is None else f"{pca:.3f} ± {spread:.3f}" for pca, spread in pairs]
        rows.append([line["model"], line["way"], *cells])
    return markdown(["model", "way", *map(str, first["measured"])], rows)


def accuracy_blocks() -> dict[str, str]:
    """Tables of the accuracy of models, by the name of their marker; each leads to its page."""
    made = {}
    for each in copied("accuracy"):
        first, *others = each["head"]
        head = [f"[{first}, {each['date']}](experiments/{each['page']})", *others]
        made[each["table"]] = markdown(head, each["rows"])
    return made


def final_block() -> str:
    """Every look at the networks that nothing is chosen on."""
    lines = (RESULTS / "final-figures.jsonl").read_text().splitlines()
    rows = []
    for look in map(json.loads, lines):
        of = dict.fromkeys(spoken(name).split(",")[0] for name in look["devices"])
        figures = look["figures"]
        cells = (_with_interval(figures, name) for name in ("pca", "pca_tenset"))
        rows.append(
            [look["date"], look["model"], *cells, f"{figures['records']:,.0f}", ", ".join(of)]
        )
    head = ["day", "model", "PCA (95 %)", "`pca_tenset` (95 %)", "records", "machines"]
    return markdown(head, rows)


def _with_interval(figures: dict[str, float], name: str) -> str:
    low, high = (figures[f"{name}.{end}"] for end in ("low", "high"))
    return f"{figures[name]:.3f} ({low:.3f} to {high:.3f})"


def quick_start_block() -> str:
    run, by_256 = copied("quick-start")
    width = max(map(len, run["shown"]))
    table = "\n".join(f"    {name:<{width}}  {value}" for name, value in run["shown"].items())
    said = "`top1` is of tasks with fewer than 256 programs, where chance comes far."
    linked = f"[{by_256['top1']}](docs/accuracy.md#by-split)"
    return f"{table}\n\n{said} On tasks\nof 256 it is {linked}."


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def image(page: str, name: str, alt: str) -> str:
    folder = "docs/pictures" if page == "README.md" else "pictures"
    return f"![{alt}]({folder}/{name}.svg)"


def charts() -> dict[str, tuple[str, bytes]]:
    """What a chart shows in words, and its bytes, by its name."""
    return {
        "tuned-over-fastest": figure_charts.over_fastest(
            [(row.network, row.machine, WAYS[row.way], row.shares, row.note) for row in latencies()]
        ),
        "time-to-tvm": figure_charts.time_to_tvm(copied("time-to-tvm")),
        "few-measurements": figure_charts.few_measurements(copied("few-measurements")),
    }


def blocks(page: str, alts: dict[str, str]) -> dict[str, str]:
    """What stands between the markers of a page, by the name of the marker."""
    shown = {name: image(page, name, alt) for name, alt in alts.items()}
    return {
        "chart": shown["tuned-over-fastest"],
        "quick-start": quick_start_block(),
        "latency": f"{shown['tuned-over-fastest']}\n\n{latency_block()}",
        "conditions": conditions_block(),
        "quantised": quantised_block(),
        "time-to-tvm": f"{shown['time-to-tvm']}\n\n{tvm_block()}",
        "few-measurements": f"{few_block()}\n\n{shown['few-measurements']}",
        "final": final_block(),
        **accuracy_blocks(),
    }


def filled(text: str, blocks: dict[str, str]) -> str:
    """A page with what belongs between its markers."""
    return BLOCK.sub(lambda at: f"{at[1]}{blocks[at[2]]}\n{at[3]}", text)


def remade() -> Iterator[tuple[Path, bytes]]:
    """Pages and pictures as they should be."""
    drawn = charts()
    alts = {name: alt for name, (alt, _) in drawn.items()}
    for page in ("README.md", *(f"docs/{name}.md" for name in PAGES)):
        yield ROOT / page, filled((ROOT / page).read_text(), blocks(page, alts)).encode()
    for name, (_, picture) in drawn.items():
        yield PICTURES / f"{name}.svg", picture


def main() -> int:
    differ = [
        (path, content)
        for path, content in remade()
        if not path.exists() or path.read_bytes() != content
    ]
    if "--check" in sys.argv:
        print(*(path.relative_to(ROOT) for path, _ in differ), sep="\n")
        return int(bool(differ))
    for path, content in differ:
        path.write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
