"""What measuring only the best-scored programs of a task would cost in speed."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.models.metrics import Floats, Ints, by_group

SMALLEST_TASK = 256
"""Distinct programs a task must have: among 32, a random choice already reaches 0.4 to 0.5."""


@dataclass(frozen=True)
class TopK:
    """Top-k over several tasks.

    Attributes:
        value: Mean over tasks of the best true y among the k best-scored programs.
        random: Mean that k programs drawn at random reach, exactly.
        tasks: Number of tasks that took part (a task on a device).
        smallest: Number of programs of the smallest of these tasks.
        by_definition: Whether all of these tasks have at least `SMALLEST_TASK` programs.
    """

    value: float
    random: float
    tasks: int
    smallest: int
    by_definition: bool

    @property
    def above_random(self) -> float:
        """(value - random) / (1 - random): 0 is chance, 1 the best known program of each task.

        That one may lie on the training side (`within_task`): perfect scores then reach less.
        """
        return 1.0 if self.random >= 1 else (self.value - self.random) / (1 - self.random)


@dataclass(frozen=True)
class NetworkTopK:
    """Top-k of networks: sum(w x best latency) / sum(w x best latency among the k best-scored).

    Attributes:
        mean_of_ratios: Mean of one ratio a network and device (TenSet).
        ratio_of_sums: Ratio of the pooled numerators and denominators (TLP).
        networks: Number of networks on devices with at least one task that took part.
        tasks: Number of tasks on devices that took part.
    """

    mean_of_ratios: float
    ratio_of_sums: float
    networks: int
    tasks: int


def eligible_groups(groups: Ints, ran: npt.NDArray[np.bool_]) -> tuple[list[Ints], bool]:
    """The groups that top-k is computed on, and whether the definition's size is met.

    Of those of which a program `ran`, groups of at least `SMALLEST_TASK` programs; where there are
    none, those at least half as large as the largest, so that the figure exists and says that it is
    not the defined one.
    """
    rows = [r for r in by_group(groups) if ran[r].any()]
    large = [r for r in rows if len(r) >= SMALLEST_TASK]
    if large or not rows:
        return large, bool(large)
    most = max(len(r) for r in rows)
    return [r for r in rows if len(r) >= max(2, most / 2)], False


def top_k(scores: Floats, y: Floats, groups: Ints, k: int, seed: int = 0) -> TopK:
    """Top-k of a task, averaged over tasks; ties of the score are broken at random.

    Args:
        scores: Scores of the programs, higher is faster, float64 [n].
        y: Labels of the programs, float64 [n], 0 for failed ones.
        groups: Code of each program's task and device, int64 [n]; programs of a group are distinct.
        k: Number of programs that would be measured.
        seed: Seed that ties are broken with; 0 by default.
    """
    chosen, by_definition = eligible_groups(groups, y > 0)
    ranks = _tie_breaker(len(scores), seed)
    values = [y[_best_scored(rows, scores, ranks, k)].max() for rows in chosen]
    chance = [expected_best(y[rows], k) for rows in chosen]
    if not chosen:
        return TopK(float("nan"), float("nan"), 0, 0, False)
    smallest = min(len(rows) for rows in chosen)
    return TopK(
        float(np.mean(values)), float(np.mean(chance)), len(chosen), smallest, by_definition
    )


def top_k_of_networks(
    scores: Floats,
    latency_s: Floats,
    groups: Ints,
    keys: list[tuple[str, str]],
    networks: dict[str, dict[str, int]],
    k: int,
    seed: int = 0,
) -> NetworkTopK:
    """Top-k of networks over the tasks that `top_k` uses; failed programs take no part.

    Args:
        scores: Scores of the programs, higher is faster, float64 [n].
        latency_s: Latency of each program in seconds, float64 [n], NaN for failed ones.
        groups: Position in `keys` of each program's group, int64 [n].
        keys: Device and task hash of each group.
        networks: Occurrences by network and task hash.
        k: Number of programs that would be measured.
        seed: Seed that ties are broken with; 0 by default.
    """
    valid = np.isfinite(latency_s)
    ranks = _tie_breaker(len(scores), seed)
    reached: dict[tuple[str, str], tuple[float, float]] = {}
    for rows in eligible_groups(groups, valid)[0]:
        rows = rows[valid[rows]]
        among = latency_s[_best_scored(rows, scores, ranks, k)].min()
        reached[keys[groups[rows[0]]]] = (float(latency_s[rows].min()), float(among))
    sums = []
    for weights in networks.values():
        for device in sorted({device for device, _ in reached}):
            parts = [
                (weight * reached[device, task][0], weight * reached[device, task][1])
                for task, weight in weights.items()
                if weight and (device, task) in reached
            ]
            if parts:
                sums.append(np.sum(parts, axis=0))
    if not sums:
        return NetworkTopK(float("nan"), float("nan"), 0, len(reached))
    best, found = np.array(sums).T
    return NetworkTopK(
        float(np.mean(best / found)), float(best.sum() / found.sum()), len(sums), len(reached)
    )


def expected_best(values: npt.NDArray[np.float64], k: int) -> float:
    """Mean of the greatest of k values drawn without replacement, exactly.

    The i-th greatest (from 0) is the greatest drawn with probability C(n-1-i, k-1) / C(n, k).
    """
    n = len(values)
    k = min(k, n)
    descending = np.sort(values)[::-1]
    share, total = k / n, 0.0
    for i in range(n - k + 1):
        total += share * float(descending[i])
        if i < n - k:
            share *= (n - k - i) / (n - 1 - i)
    return total


def _best_scored(rows: Ints, scores: Floats, ranks: Floats, k: int) -> Ints:
    order = np.lexsort((ranks[rows], -scores[rows]))
    return rows[order[:k]]


def _tie_breaker(n: int, seed: int) -> Floats:
    return np.random.default_rng(seed).random(n)
