"""Ratios of latencies measured in turns, with intervals."""

import numpy as np

from hetfeat.deploy.bench import Latency

RESAMPLES = 2000


def ratio(one: Latency, other: Latency) -> tuple[float, float, float]:
    """Median over turns of one's latency / the other's, and its 95 % interval by bootstrap.

    Only the median is resampled: turns of a pair run side by side, so that slow changes of the
    machine meet both.
    """
    ratios = np.array(one.turns_ms) / np.array(other.turns_ms)
    rng = np.random.default_rng(0)
    drawn = rng.choice(ratios, (RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return float(np.median(ratios)), float(low), float(high)
