"""What the machine code of programs says of their latency beyond the features of their schedule.

    python benchmarks/machine_code.py --out DIR [--programs 24] [--processes 2] [--rounds 150]
    python benchmarks/machine_code.py --out DIR --table

A first stage is trained as `hetfeat train` does, on four fifths of the connected tasks of the
packaged records, without the final networks. Up to PROGRAMS of each other task on a device are
compiled for the target that they were measured on, which needs no such device. Their assembly is
counted: in all, and in the block that multiplies most among those that repeat themselves.

A second stage adds trees to the first stage's margins. It is cross-validated over five parts of the
connected tasks, and reads: the schedule's features, which says what more tasks alone are worth; the
counts; both. Intervals are of a bootstrap over connected tasks, paired with the schedule alone.

DIR keeps the first stage's margins and a line a program; what it holds is not made again.
"""

import argparse
import json
import math
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import xgboost
from bags import Sides, parts_of, sides_of
from final_figures import without_final
from paired import FIGURES, gain, mean, of_tasks, shown
from search import read_lines, table

from hetfeat.dataset.packaged import packaged_store
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.profile import Target
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.models.aggregate import flat_features
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import by_group
from hetfeat.models.training_set import side_of

PARTS, COMPILED = 5, (1, 2, 4, 8, 24)
BEHIND = 1e3
"""More than margins differ by."""
KINDS = {
    "products": r"vf?n?m(add|sub)\d+[ps][sd]|v?mul[ps][sd]|v?pmaddwd|vpdpbusd|v?pmull[wd]",
    "scalar products": r"vf?n?m(add|sub)\d+s[sd]|v?muls[sd]",
    "sums": r"v?p?(add|sub)(p[sd]|s[sd]|[bwd])",
    "extremes": r"v?p?(max|min)[us]?[psbwd][sd]?",
    "shuffles": r"v?p?(perm|shuf|unpck|insert|extract|align|blend|pack|insr|extr|hadd)\w*",
    "broadcasts": r"vp?broadcast\w*",
    "gathers": r"vp?gather\w*",
    "conversions": r"v?cvt\w*|v?pmov[sz]x\w*",
    "quotients": r"v?(div|sqrt|rcp\w*|rsqrt\w*)[ps][sd]",
    "moves of vectors": r"v?mov[aud]p?[sdq]\w*",
    "addresses": r"(lea|add|sub|imul|sh[lr]|sar|and|or|xor|inc|dec)[bwlq]?",
    "jumps": r"j\w+",
    "calls": r"call\w*",
    "prefetches": r"prefetch\w*",
}
"""Kinds of instructions, by the whole of their names."""
OPERANDS = {
    "zmm": r"%zmm",
    "ymm": r"%ymm",
    "xmm": r"%xmm",
    "by the stack": r"\(%r[sb]p",
    "loads": r"\([^)]*\).*,",
    "stores": r"\([^)]*\)$",
    "broadcast loads": r"\{1to",
}
"""Kinds of operands; the destination is the last."""
COUNTS = ("instructions", *KINDS, *OPERANDS)
PER_PRODUCT = tuple(name for name in COUNTS if name != "products")
NAMES = (
    *(f"in all: {name}" for name in COUNTS),
    *(f"hot: {name}" for name in COUNTS),
    *(f"hot, a product: {name}" for name in PER_PRODUCT),
    "hot: registers summed in",
    "hot: lanes a product",
    "hot: share of all products",
    "blocks",
    "blocks that repeat themselves",
)
_BLOCK = re.compile(r"\n(?=\S+:)")
_LANES = {"zmm": 16, "ymm": 8, "xmm": 4}
_IS = {name: re.compile(pattern) for name, pattern in KINDS.items()}
_HAS = {name: re.compile(pattern) for name, pattern in OPERANDS.items()}
_LAST_REGISTER = re.compile(r"%[xyz]mm\d+(?=\W*(?:\{[^}]*\})?\W*$)")


def instructions(block: str) -> list[tuple[str, str]]:
    """Name and operands of each instruction; labels and directives are left out."""
    lines = (line.strip().partition("\t") for line in block.splitlines() if line[:1] == "\t")
    return [(name, operands) for name, _, operands in lines if name[:1].isalpha()]


def counted(found: Iterable[tuple[str, str]]) -> Counter:
    """How many instructions there are, of each kind, with operands of each kind."""
    counts = Counter()
    for name, operands in found:
        counts["instructions"] += 1
        counts.update(kind for kind, pattern in _IS.items() if pattern.fullmatch(name))
        if not name.startswith("lea"):
            counts.update(kind for kind, pattern in _HAS.items() if pattern.search(operands))
    return counts


def lanes(found: Iterable[tuple[str, str]]) -> int:
    """Numbers that all products of some instructions multiply."""
    return sum(
        1
        if _IS["scalar products"].fullmatch(name)
        else max((width for r, width in _LANES.items() if f"%{r}" in operands), default=1)
        for name, operands in found
        if _IS["products"].fullmatch(name)
    )


def repeats_itself(block: str) -> bool:
    """Whether a block jumps to its own label: the body of an innermost loop."""
    label = block.lstrip().partition(":")[0]
    return re.search(rf"\tj\w+\t{re.escape(label)}\b", block) is not None


def columns_of(assembly: str) -> list[float]:
    """What a second stage reads of a program, in the order of `NAMES`."""
    blocks = _BLOCK.split(assembly)
    bodies = [instructions(block) for block in blocks]
    loops = [i for i, block in enumerate(blocks) if repeats_itself(block)] or range(len(blocks))
    hot = max((bodies[i] for i in loops), key=lambda body: (lanes(body), len(body)))
    whole, own = counted(each for body in bodies for each in body), counted(hot)
    products = max(1, own["products"])
    summed_in = {
        register[0]
        for name, operands in hot
        if _IS["products"].fullmatch(name) and (register := _LAST_REGISTER.search(operands))
    }
    return [
        *(math.log1p(whole[name]) for name in COUNTS),
        *(math.log1p(own[name]) for name in COUNTS),
        *(own[name] / products for name in PER_PRODUCT),
        len(summed_in),
        lanes(hot) / products,
        own["products"] / max(1, whole["products"]),
        len(blocks),
        sum(map(repeats_itself, blocks)),
    ]


def compiled(job: tuple[str, Target, str]) -> tuple[list[float] | None, float, float]:
    """Columns of a program, None if it does not compile, seconds to build and to count."""
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from hetfeat.schedules.design_space import as_candidate, replay
    from hetfeat.workloads.relax import as_target, load_workload

    module, target, trace = job
    started = time.process_time()
    try:
        candidate = as_candidate(replay(load_workload(module), trace))
        scheduled = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(candidate.sch.mod)
        assembly = tvm.compile(scheduled, as_target(target)).mod.inspect_source("asm")
    except Exception as error:
        print(f"left out: {str(error)[-200:]}", file=sys.stderr)
        return None, time.process_time() - started, 0.0
    built = time.process_time()
    columns = columns_of(assembly)
    return columns, built - started, time.process_time() - built


def drawn(judged: Examples, most: int) -> Examples:
    """Up to `most` programs of each task on a device that ran, at random."""
    rng = np.random.default_rng(0)
    rows = [rng.permutation(group)[:most] for group in by_group(group_codes(judged)[0])]
    kept = np.sort(np.concatenate(rows))
    return judged.take(kept[np.isfinite(judged.latency_s[kept])])


def jobs_of(store: RecordStore, programs: Examples, known: set[tuple[str, str]]) -> Iterator:
    """Device, program, and what `compiled` is called with, of each that is not known."""
    rows = store.read(["device", "task", "program", "trace"])
    traces = dict(zip(rows["program"].to_pylist(), rows["trace"].to_pylist(), strict=True))
    modules, devices = store.workloads(), store.devices()
    for device, task, program in zip(programs.device, programs.task, programs.program, strict=True):
        if (device, program) not in known:
            yield device, program, (modules[task], devices[device].target, traces[program])


def first_stage(sides: Sides, path: Path) -> np.ndarray:
    """Margins of all judged programs, of a model as `hetfeat train` makes it."""
    if not path.exists():
        part = parts_of(sides.units, 10, 0)
        model = build("xgb", "standard", 0, {})
        learn, check = (sides.learnt.take(np.flatnonzero(at)) for at in (part != 0, part == 0))
        model.fit(learn, check)
        np.save(path, np.log(model.predict(sides.judged.batch)))
    return np.load(path)


def centred(margins: np.ndarray, programs: Examples) -> np.ndarray:
    """Margins less the mean of their task on a device."""
    codes = group_codes(programs)[0]
    return margins - (np.bincount(codes, margins) / np.bincount(codes))[codes]


def second_stage(
    margins: np.ndarray, columns: np.ndarray, programs: Examples, units: np.ndarray, rounds: int
) -> np.ndarray:
    """Margins of programs whose tasks a second stage has not seen, each part in turn."""
    part, told = parts_of(units, PARTS, 0), np.empty(len(programs))
    settings = {
        "eta": 0.05,
        "max_depth": 6,
        "subsample": 0.8,
        "colsample_bytree": 0.5,
        "nthread": 1,
    }
    rows = np.column_stack([margins, columns]).astype(np.float32)
    for number in range(PARTS):
        seen, asked = np.flatnonzero(part != number), np.flatnonzero(part == number)
        objective = side_of(programs.take(seen), seed=0).objective(0.0)
        learnt = xgboost.DMatrix(rows[seen], base_margin=margins[seen])
        booster = xgboost.train(
            settings,
            learnt,
            rounds,
            obj=lambda found, _, objective=objective: objective.gradient(found.astype(np.float64)),
        )
        matrix = xgboost.DMatrix(rows[asked], base_margin=margins[asked])
        told[asked] = booster.predict(matrix, output_margin=True)
    return told


def chosen_of(first: np.ndarray, second: np.ndarray, programs: Examples, count: int) -> np.ndarray:
    """Scores by the second stage, of those that the first stage puts first; others are behind."""
    scores = second - BEHIND
    for rows in by_group(group_codes(programs)[0]):
        ahead = rows[np.argsort(-first[rows], kind="stable")[:count]]
        scores[ahead] = second[ahead]
    return scores


def tables(given: argparse.Namespace, sides: Sides, margins: np.ndarray) -> str:
    """What each second stage reaches, in all and by operator."""
    lines = {
        (line["device"], line["program"]): line for line in read_lines(given.out / "code.jsonl")
    }
    found = [lines.get(key) for key in zip(sides.judged.device, sides.judged.program, strict=True)]
    kept = np.flatnonzero([line is not None and line["columns"] is not None for line in found])
    programs, units = sides.judged.take(kept), sides.judged_units[kept]
    code = np.array([found[i]["columns"] for i in kept], np.float32)
    first = centred(margins[kept], programs)
    schedule = flat_features(programs.batch.loaded())
    reads = {
        "the schedule": schedule,
        "the machine code": code,
        "both": np.column_stack([schedule, code]),
    }
    scores = {"no second stage": first} | {
        name: second_stage(first, columns, programs, units, given.rounds)
        for name, columns in reads.items()
    }
    figures = {name: of_tasks(told, programs) for name, told in scores.items()}
    rows_of_tasks = [rows[0] for rows in by_group(group_codes(programs)[0])]
    of_unit, operator = units[rows_of_tasks], programs.operator[rows_of_tasks]
    beside, rows = figures["the schedule"], []
    for name, own in figures.items():
        cells = [name]
        for figure in FIGURES:
            over = gain(getattr(own, figure), getattr(beside, figure), of_unit)
            cells += [shown(mean(getattr(own, figure), of_unit))]
            cells += ["" if own is beside else shown(over, signed=True)]
        rows.append(cells)
    choices = []
    for count in COMPILED:
        told = of_tasks(chosen_of(first, scores["the machine code"], programs, count), programs)
        over = gain(told.top1, figures["no second stage"].top1, of_unit)
        choices.append([str(count), shown(mean(told.top1, of_unit)), shown(over, signed=True)])
    first_pca = figures["no second stage"].pca
    head = ["second stage reads", "PCA", "over the schedule", "top-1", "over the schedule"]
    parts = [
        [
            kind,
            str(at.sum()),
            *(shown(mean(each.pca[at], of_unit[at])) for each in figures.values()),
        ]
        for kind in sorted(set(operator))
        if (at := (operator == kind) & np.isfinite(first_pca)).sum() >= 5
    ]
    seconds = np.array([[line["build_s"], line["count_s"]] for line in lines.values()])
    said = (
        f"{len(kept)} programs of {len(of_unit)} tasks, {len(set(of_unit))} units; seconds of the "
        f"processor a program: {seconds[:, 0].mean():.2f} to build, {seconds[:, 1].mean():.3f} to "
        "count"
    )
    by_operator = table(["operator", "tasks", *(f"PCA, {name}" for name in figures)], parts)
    of_choices = table(["compiled of each task", "top-1", "over the first stage's"], choices)
    return f"{said}\n\n{table(head, rows)}\n\n{of_choices}\n\n{by_operator}"


def run(given: argparse.Namespace, store: RecordStore, sides: Sides) -> None:
    """Compiles what has no line yet."""
    path = given.out / "code.jsonl"
    known = {(line["device"], line["program"]) for line in read_lines(path)}
    jobs = [*jobs_of(store, drawn(sides.judged, given.programs), known)]
    with (
        get_context("spawn").Pool(given.processes, maxtasksperchild=200) as pool,
        path.open("a") as file,
    ):
        found = pool.imap(compiled, [job[2] for job in jobs])
        for (device, program, _), (columns, build_s, count_s) in zip(jobs, found, strict=True):
            line = {"device": device, "program": program, "columns": columns}
            line |= {"build_s": build_s, "count_s": count_s}
            file.write(json.dumps(line) + "\n")
            file.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--programs", type=int, default=24)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--table", action="store_true", help="only print what DIR holds")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    store = RecordStore.open(packaged_store())
    sides = sides_of(without_final(assemble(store).examples, store.networks()), 0)
    margins = first_stage(sides, given.out / "first-stage.npy")
    if not given.table:
        run(given, store, sides)
    print(tables(given, sides, margins))


if __name__ == "__main__":
    main()
