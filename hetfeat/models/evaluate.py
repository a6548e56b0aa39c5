"""Every figure of a model on held-out records, beside what no model at all would reach."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.dataset.splits import mask_unseen, task_units
from hetfeat.features.batch import Examples
from hetfeat.models.base import CostModel
from hetfeat.models.calibration import fit_calibration
from hetfeat.models.labels import best_latencies, group_codes, labels
from hetfeat.models.metrics import (
    GroupPairs,
    pairs_of_groups,
    pairs_of_groups_tenset,
    pairwise_accuracy,
    r2,
    rmse,
)
from hetfeat.models.metrics_topk import top_k, top_k_of_networks
from hetfeat.models.spread import bootstrap, paired_bootstrap
from hetfeat.models.support import judge_beside

Floats = npt.NDArray[np.float64]
Networks = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Evaluation:
    """A model judged.

    Attributes:
        metrics: `pca`, `rmse`, `r2`, `top1`, `top5` and the figures that explain them. `NAME.low`
            and `NAME.high` are the ends of the interval of `NAME` over tasks.
        baselines: Main figures of random scores and of one score for all, each by name.
        y: Labels, float64 [n].
        estimate: Calibrated predictions of y, float64 [n].
        operator_rmse: Root mean square error of y, by operator.
    """

    metrics: dict[str, float]
    baselines: dict[str, dict[str, float]]
    y: Floats
    estimate: Floats
    operator_rmse: dict[str, float]


@dataclass(frozen=True)
class _Side:
    """Held-out examples with what the figures need of them."""

    examples: Examples
    y: Floats
    groups: npt.NDArray[np.int64]
    units: npt.NDArray[np.int64]
    keys: list[tuple[str, str]]
    networks: Networks
    new: npt.NDArray[np.bool_]
    pairs_to_judge: int


def evaluate(
    model: CostModel,
    train: Examples,
    valid: Examples,
    test: Examples,
    networks: Networks | None = None,
    seed: int = 0,
    pairs_to_judge: int = 500,
) -> Evaluation:
    """Judges a fitted model on `test`.

    Args:
        model: Model that was fitted on `train` and `valid`.
        train: Examples that give best latencies of tasks that `test` shares with them.
        valid: Examples that give the baselines their calibration, as they gave the model's.
        test: Examples that the figures are of.
        networks: Occurrences by network and task hash, for top-k of networks; None, the default,
            for none.
        seed: Seed of the random baseline and of ties; 0 by default.
        pairs_to_judge: Pairs from which on an operator or a device has a figure of its own; 500 by
            default: fewer say more of chance than of the model (1 % is 5 of them).
    """
    groups, keys = group_codes(test)
    y = labels(test, best_latencies(train, valid, test))
    new = mask_unseen(test, train, valid)
    side = _Side(test, y, groups, task_units(test), keys, networks or {}, new, pairs_to_judge)
    scores = model.predict(test.batch)
    estimate = model.calibrate(scores)
    return Evaluation(
        _metrics(side, scores, estimate, seed) | _beside_measured(model, side, scores, seed),
        _baselines(side, labels(valid, best_latencies(train, valid)), seed),
        y,
        estimate,
        {
            str(operator): rmse(estimate[rows], y[rows])
            for operator in sorted(set(test.operator.tolist()))
            if len(rows := np.flatnonzero(test.operator == operator))
        },
    )


def _metrics(side: _Side, scores: Floats, estimate: Floats, seed: int) -> dict[str, float]:
    latency_s = side.examples.latency_s
    pairs = pairwise_accuracy(scores, latency_s, side.groups)
    first, fifth = (top_k(scores, side.y, side.groups, k, seed) for k in (1, 5))
    metrics = {
        "pca": pairs.value,
        "rmse": rmse(estimate, side.y),
        "r2": r2(estimate, side.y),
        "top1": first.value,
        "top5": fifth.value,
        "top1_above_random": first.above_random,
        "top5_above_random": fifth.above_random,
        "topk_tasks": first.tasks,
        "topk_smallest_task": first.smallest,
        "topk_by_definition": float(first.by_definition),
        "pca_tasks": pairs.groups,
        "pca_pairs": pairs.pairs,
        "pca_pairs_within_noise": pairs.within_noise,
    }
    if side.new.any() and not side.new.all():
        rows = np.flatnonzero(side.new)
        new = pairwise_accuracy(scores[rows], latency_s[rows], side.groups[rows])
        metrics |= {"pca_new_tasks": new.value, "new_tasks": new.groups}
    of_device = _pca_of_each(side, scores, side.examples.device)
    of_operator = _pca_of_each(side, scores, side.examples.operator)
    metrics |= {f"pca_on.{device}": pca for device, pca in of_device.items()}
    metrics |= _intervals(side, scores)
    for kind, each in (("operator", of_operator), ("device", of_device)):
        if each:
            metrics[f"worst_{kind}_pca"] = min(each.values())
    for k in (1, 5):
        found = top_k_of_networks(scores, latency_s, side.groups, side.keys, side.networks, k, seed)
        if found.networks:
            metrics[f"top{k}_networks_mean_of_ratios"] = found.mean_of_ratios
            metrics[f"top{k}_networks_ratio_of_sums"] = found.ratio_of_sums
    return metrics


def _pca_of_each(side: _Side, scores: Floats, kind: npt.NDArray[np.object_]) -> dict[str, float]:
    """PCA of each value of `kind` with pairs enough to tell."""
    found = {}
    for value in sorted(set(kind.tolist())):
        rows = np.flatnonzero(kind == value)
        pairs = pairwise_accuracy(scores[rows], side.examples.latency_s[rows], side.groups[rows])
        if pairs.pairs >= side.pairs_to_judge:
            found[str(value)] = pairs.value
    return found


def _intervals(side: _Side, scores: Floats) -> dict[str, float]:
    """Both accuracies with their intervals over tasks, of all devices together and of each.

    The house figure is only bounded here: `pca_on` has a value where there are pairs enough.
    """
    house = [
        group
        for group in pairs_of_groups(scores, side.examples.latency_s, side.groups)
        if group.pairs
    ]
    tenset = pairs_of_groups_tenset(scores, side.y, side.groups)
    found: dict[str, float] = {}
    for device in ("", *sorted(set(side.examples.device.tolist()))):
        on = f"_on.{device}" if device else ""

        def here(groups: list[GroupPairs], device: str = device) -> list[GroupPairs]:
            return [g for g in groups if device in ("", side.examples.device[g.row])]

        found |= _bounded(f"pca{on}", side, here(house))
        found |= _bounded(f"pca_tenset{on}", side, here(tenset), weighted=True)
    return found


def _beside_measured(model: CostModel, side: _Side, scores: Floats, seed: int) -> dict[str, float]:
    """PCA with some measured programs of each task as the support set, and without.

    A model that reads none has the same figure both ways: any two models compare.
    """
    metrics: dict[str, float] = {}
    for count, found in judge_beside(model, side.examples, scores, seed).items():
        name, units = f"pca_support{count}", side.units[found.rows]
        beside, alone = (np.array([g.share for g in e]) for e in (found.beside, found.alone))
        told, gain = bootstrap(beside, units), paired_bootstrap(beside, alone, units)
        metrics |= {name: told.mean, f"{name}_without": float(alone.mean())}
        metrics[f"{name}_tasks"] = len(beside)
        if told.units > 1:
            metrics |= {f"{name}.low": told.low, f"{name}.high": told.high}
            metrics |= {f"{name}_gain.low": gain.low, f"{name}_gain.high": gain.high}
    return metrics


def _bounded(
    name: str, side: _Side, groups: list[GroupPairs], *, weighted: bool = False
) -> dict[str, float]:
    """The mean share of right pairs under a name, and the ends of its interval."""
    weights = np.array([g.programs if weighted else 1.0 for g in groups], np.float64)
    units = side.units[np.array([g.row for g in groups], np.int64)]
    told = bootstrap(np.array([g.share for g in groups], np.float64), units, weights)
    found = {f"{name}.low": told.low, f"{name}.high": told.high} if told.units > 1 else {}
    return {**found, name: told.mean} if weighted else found


def _baselines(side: _Side, valid_y: Floats, seed: int) -> dict[str, dict[str, float]]:
    """Scores that know nothing; their top-k is the exact expectation, not one lucky draw."""
    rng = np.random.default_rng(seed)
    chance, same = rng.random(len(side.y)), np.ones(len(side.y))
    curve = fit_calibration(rng.random(len(valid_y)), valid_y)
    expected = {f"top{k}": top_k(same, side.y, side.groups, k, seed).random for k in (1, 5)}
    rows = {
        "random": (chance, curve(chance)),
        "constant": (same, same * valid_y.mean()),
    }
    return {
        name: {
            "pca": pairwise_accuracy(scores, side.examples.latency_s, side.groups).value,
            "rmse": rmse(estimate, side.y),
            "r2": r2(estimate, side.y),
            **expected,
        }
        for name, (scores, estimate) in rows.items()
    }
