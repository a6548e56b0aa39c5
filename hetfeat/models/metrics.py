"""How well scores order programs, and how well they estimate y. One definition of each figure.

A group is one task on one device; scores are higher for faster programs. `groups` are integer
codes, latencies are seconds with NaN for a failed program, y is `labels.labels`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NOISE = 0.05
"""Programs whose latencies differ by less than this share are not told apart by a measurement:
repeats on the development machine spread by 3 % (one thread) to 17 % (two) at the 90th centile."""
PAIRS_AT_ONCE = 2**18
"""Default of `pairs_at_once`: a task of 30,000 programs has 450 million."""


@dataclass(frozen=True)
class Pairwise:
    """Pairwise comparison accuracy.

    Attributes:
        value: Mean over groups of the share of pairs in the right order; NaN without a group.
        groups: Number of groups with at least one pair that counts.
        pairs: Number of pairs that counted.
        within_noise: Number of pairs left out because their latencies differ by less than the
            noise.
    """

    value: float
    groups: int
    pairs: int
    within_noise: int


@dataclass(frozen=True)
class GroupPairs:
    """Pairs of one group.

    Attributes:
        row: Position of one of its programs.
        programs: Number of its programs.
        pairs: Number of pairs that count.
        right: Number of them in the right order; a tie between scores is a half.
        within_noise: Number of pairs left out.
    """

    row: int
    programs: int
    pairs: int
    right: float
    within_noise: int

    @property
    def share(self) -> float:
        """Share of the pairs in the right order; there must be some."""
        return self.right / self.pairs


def pairwise_accuracy(
    scores: Floats,
    latency_s: Floats,
    groups: Ints,
    noise: float = NOISE,
    pairs_at_once: int = PAIRS_AT_ONCE,
) -> Pairwise:
    """PCA: the share of pairs of a group whose scores order them as their latencies do.

    Failed programs take no part; a tie between scores counts half.

    Args:
        scores: Scores of the programs, higher is faster, float64 [n].
        latency_s: Latency of each program in seconds, float64 [n].
        groups: Code of the group of each program, int64 [n].
        noise: Least relative difference of latencies for a pair to count, as a share; `NOISE` by
            default.
        pairs_at_once: Pairs that are compared at once; `PAIRS_AT_ONCE` by default.
    """
    found = pairs_of_groups(scores, latency_s, groups, noise, pairs_at_once)
    shares = [group.share for group in found if group.pairs]
    return Pairwise(
        float(np.mean(shares)) if shares else np.nan,
        len(shares),
        sum(group.pairs for group in found),
        sum(group.within_noise for group in found),
    )


def pairs_of_groups(
    scores: Floats,
    latency_s: Floats,
    groups: Ints,
    noise: float = NOISE,
    pairs_at_once: int = PAIRS_AT_ONCE,
) -> list[GroupPairs]:
    """Pairs of each group, as `pairwise_accuracy` counts them."""
    found = []
    valid = np.isfinite(latency_s)
    for every in by_group(groups):
        rows = every[valid[every]]
        apart, right = _compared(scores[rows], latency_s[rows], np.log1p(noise), pairs_at_once)
        within = len(rows) * (len(rows) - 1) // 2 - apart
        found.append(GroupPairs(int(every[0]), len(every), apart, right, within))
    return found


def pairwise_accuracy_tenset(
    scores: Floats, y: Floats, groups: Ints, pairs_at_once: int = PAIRS_AT_ONCE
) -> float:
    """TenSet's variant, for comparison with published figures only.

    Every pair i < j counts, failed programs too; it is right when "score i > score j" and
    "y i > y j" are both true or both false; a group of one program counts 0.5. The mean over groups
    is weighted by their programs. So many `pairs_at_once` are compared.
    """
    found = pairs_of_groups_tenset(scores, y, groups, pairs_at_once)
    programs = [group.programs for group in found]
    return float(np.average([g.share for g in found], weights=programs)) if found else np.nan


def pairs_of_groups_tenset(
    scores: Floats, y: Floats, groups: Ints, pairs_at_once: int = PAIRS_AT_ONCE
) -> list[GroupPairs]:
    """Pairs of each group, as TenSet counts them; a lone program is a pair that is half right."""
    found = []
    for rows in by_group(groups):
        said, true, n = scores[rows], y[rows], len(rows)
        same: float = sum(
            int(np.count_nonzero(((said[i] > said[j]) == (true[i] > true[j])) & once))
            for i, j, once in _pairs(n, pairs_at_once)
        )
        pairs, same = (n * (n - 1) // 2, same) if n > 1 else (1, 0.5)
        found.append(GroupPairs(int(rows[0]), n, pairs, same, 0))
    return found


def _compared(
    scores: Floats, latency_s: Floats, least: float, pairs_at_once: int
) -> tuple[int, float]:
    """Pairs whose latencies' logarithms differ by `least`, and how many of them scores order."""
    apart, right = 0, 0.0
    for i, j, once in _pairs(len(scores), pairs_at_once):
        faster = np.log(latency_s[j] / latency_s[i])
        told_apart = (np.abs(faster) >= least) & once
        higher = scores[i] - scores[j]
        ordered = ((higher > 0) & (faster > 0)) | ((higher < 0) & (faster < 0))
        apart += int(np.count_nonzero(told_apart))
        right += int(np.count_nonzero(ordered & told_apart))
        right += int(np.count_nonzero((higher == 0) & told_apart)) / 2
    return apart, right


def _pairs(n: int, at_once: int) -> Iterator[tuple[Ints, Ints, Bools]]:
    """Every pair i < j of n positions, some rows of pairs at a time.

    Yields:
        Positions i, int64 [rows, 1]; positions j, int64 [1, columns]; i < j, bool [rows, columns].
    """
    start = 0
    while start < n - 1:
        rows = min(max(1, at_once // (n - start)), n - 1 - start)
        i = np.arange(start, start + rows)[:, None]
        j = np.arange(start + 1, n)[None, :]
        yield i, j, i < j
        start += rows


def rmse(estimate: Floats, y: Floats) -> float:
    """Root of the mean squared error of y over all records, in units of y.

    The record-weighted mean of per-task squared errors is the mean over all records.
    """
    return float(np.sqrt(np.mean((estimate - y) ** 2)))


def r2(estimate: Floats, y: Floats) -> float:
    """Share of the variance of y over all records that the estimate explains; NaN without any."""
    total = float(np.sum((y - y.mean()) ** 2))
    return 1 - float(np.sum((estimate - y) ** 2)) / total if total > 0 else np.nan


def by_group(groups: Ints) -> Iterator[Ints]:
    """Row positions of each group."""
    order = np.argsort(groups, stable=True)
    starts = np.flatnonzero(np.diff(groups[order])) + 1
    return iter(np.split(order, starts)) if len(order) else iter(())
