"""Tables 5 and 6: what training costs and reaches, on all records and on pruned ones."""

import statistics
from collections.abc import Sequence

from hetfeat.dataset.splits import TENSET
from hetfeat.report import paper
from hetfeat.report.cells import Row, Table, cell_of, compared, named_cell, paired, quotient
from hetfeat.report.run import Run
from hetfeat.report.scope import CLASSES, MEASURED_SPLITS, MODELS, SPLITS, Scope, say

DATA = ("baseline", "pruned")
KEPT, TIMES = "records kept", "s, pruned / baseline"
PCA, PCA_PRUNED = "PCA, baseline", "PCA, pruned"
AS_TENSET, AS_TENSET_PRUNED = "PCA as TenSet, baseline", "PCA as TenSet, pruned"


def training_table(runs: Sequence[Run], scope: Scope) -> Table:
    """The paper's Table 5: size and training time, baseline and pruned."""
    rows = tuple(
        _training_row(runs, scope, hardware, model, split)
        for hardware in CLASSES
        for model in MODELS
        for split in SPLITS
    )
    table = Table(
        "table5",
        "Table 5: size and training time",
        paper.of_table("table5")["source"],
        "Records of the training side, and seconds to train on them. The paper gives its sizes in "
        "GB, so only the share kept compares; its seconds are of other records and machines. "
        "Records: " + _devices(scope) + ".",
        ("records of", "model", "split"),
        ("records, baseline", "records, pruned", KEPT, "s, baseline", "s, pruned", TIMES),
        rows,
    )
    return table.with_verdict(
        compared(table, KEPT, "Pruning keeps {} of the records", "{} of its GB"),
        compared(table, TIMES, "Training on them takes {} of the time", "{}"),
    )


def _training_row(runs: Sequence[Run], scope: Scope, hardware: str, model: str, split: str) -> Row:
    trained = _trained(runs, scope, hardware, model, split, scope.tested_on(hardware, split))
    seconds = [
        cell_of(of, "train_s", paper.figure("table5", "seconds", hardware, data, model, split))
        for data, of in zip(DATA, trained, strict=True)
    ]
    records = [cell_of(of, _train_records) for of in trained]
    gb = paper.of_table("table5")["gb"][hardware]
    kept = quotient(records[1], records[0], gb["pruned"] / gb["baseline"])
    theirs = paper.device_for("table5", "", hardware)
    return Row(
        (say(hardware), model, split),
        (*records, kept, *seconds, quotient(seconds[1], seconds[0])),
        paper.shown("table5", theirs),
    )


def accuracy_table(runs: Sequence[Run], scope: Scope) -> Table:
    """The paper's Table 6: PCA, baseline and pruned, by split and device."""
    tested = [
        (hardware, device)
        for hardware in CLASSES
        for device in sorted(scope.measured.get(hardware, ())) or [""]
    ]
    rows = tuple(
        _accuracy_row(runs, scope, hardware, device, model, split)
        for hardware, device in tested
        for model in MODELS
        for split in MEASURED_SPLITS
    )
    table = Table(
        "table6",
        "Table 6: pairwise comparison accuracy",
        paper.of_table("table6")["source"],
        "The share of pairs of programs put in the right order, on records held out; chance is "
        "0.5. PCA leaves out failures and pairs within the noise, and each task counts alike. As "
        "TenSet: every pair counts, and a task as often as it has records. The paper's figures are "
        "TenSet's, so they stand beside these alone. by_target: the device itself was held out. "
        "tenset: TenSet's protocol, which is more lenient. Pairs of a task and a device are held "
        "out, the task may be known from another device, and training stops by the test side. "
        "The paper does not say of which model its figures are: they stand beside each.",
        ("device", "kind", "model", "split"),
        (PCA, PCA_PRUNED, AS_TENSET, AS_TENSET_PRUNED),
        rows,
    )
    pairs = [pair for name in (AS_TENSET, AS_TENSET_PRUNED) for pair in paired(table.column(name))]
    below = [theirs - ours for ours, theirs in pairs if ours < theirs]
    return table.with_verdict(
        f"Ours is below the paper's in {len(below)} of {len(pairs)} cells"
        + (f", by up to {max(below):.3f}." if below else ".")
        if pairs
        else "",
        _pruning_costs(rows),
    )


def _accuracy_row(
    runs: Sequence[Run], scope: Scope, hardware: str, device: str, model: str, split: str
) -> Row:
    theirs = paper.device_for("table6", device, hardware)
    holdout = device if split == "by_target" else ""
    trained = _trained(runs, scope, hardware, model, split, [holdout] if device else [])
    house = [named_cell(of, lambda run: _pca_on(run, device, holdout)) for of in trained]
    printed = "by_task" if split == TENSET else split
    tenset = [
        cell_of(of, f"pca_tenset_on.{device}", paper.figure("table6", "pca", theirs, data, printed))
        for data, of in zip(DATA, trained, strict=True)
    ]
    kind = scope.devices[device].kind if device else "-"
    keys = (device or f"no {say(hardware)}", kind, model, split)
    return Row(keys, (*house, *tenset), paper.shown("table6", theirs))


def _trained(
    runs: Sequence[Run], scope: Scope, hardware: str, model: str, split: str, tested: Sequence[str]
) -> list[list[Run]]:
    """The trainings of a row, for each of `DATA`; `tested` are values of holdout."""
    return [
        [
            run
            for holdout in tested
            for run in scope.trainings(
                runs, hardware, model=model, split=split, pruned=data == "pruned", holdout=holdout
            )
        ]
        for data in DATA
    ]


def _pca_on(run: Run, device: str, holdout: str) -> str:
    """Name of the PCA of the test side's records of a device; all where there is no other."""
    return "pca" if holdout == device or run.device == device else f"pca_on.{device}"


def _train_records(run: Run) -> float | None:
    text = run.setting("train_records")
    return float(text) if text else None


def _devices(scope: Scope) -> str:
    """The devices of the records, with what they are."""
    parts = []
    for hardware in CLASSES:
        names = scope.measured.get(hardware, ())
        kinds = sorted({scope.devices[name].kind for name in names})
        told = f" ({', '.join(kinds)})" if names else ""
        parts.append(f"{say(hardware)} {', '.join(names) or 'none'}{told}")
    return "; ".join(parts)


def _pruning_costs(rows: Sequence[Row]) -> str:
    """What pruning takes from TenSet's PCA in the mean, ours and the paper's in the same rows."""
    ours, theirs = [], []
    for base, pruned in (row.cells[2:] for row in rows):
        if base.value is not None and pruned.value is not None:
            ours.append(base.value - pruned.value)
            if base.paper is not None and pruned.paper is not None:
                theirs.append(base.paper - pruned.paper)
    if not ours or not theirs:
        return ""
    own, other = statistics.fmean(ours), statistics.fmean(theirs)
    short = ": ours loses more" if own > other else ""
    did = f"costs {own:.3f}" if own > 0 else f"gains {-own:.3f}"
    return f"Pruning {did} in the mean of {len(ours)}, in the paper it costs {other:.3f}{short}."
