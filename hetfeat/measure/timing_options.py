"""How measuring children time programs: settings that their parent hands over."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TimingOptions:
    """How a program is timed.

    Attributes:
        repeats: Number of repeats of a round, default 3; each is one latency.
        repeat_s: Least seconds of a repeat, default 0.01: shorter runs are made several times.
        slow_ratio: First run, as a multiple of the best so far, above which the first run is the
            latency, without repeats; default 3. It must be over `slow_s`, too.
        slow_s: Seconds below which a program is repeated however slow it is, default 0.02.
        cold_runs: Most runs with cold weights, default 20.
        cold_s: Seconds that runs with cold weights take together at most, default 4: less than
            `run_timeout_s`.
        steady_spread: Spread of repeats above which a round is taken again, default 0.1.
        rounds: Most rounds, default 3; the steadiest is kept.
    """

    repeats: int = 3
    repeat_s: float = 0.01
    slow_ratio: float = 3.0
    slow_s: float = 0.02
    cold_runs: int = 20
    cold_s: float = 4.0
    steady_spread: float = 0.1
    rounds: int = 3


@dataclass(frozen=True)
class RankingOptions:
    """When the first run of a state tells enough.

    Attributes:
        ranked_ratio: Multiple of the best time above which a state need only be ranked, default
            1.5: one repeat does it.
        slow_ranked_ratio: The same multiple for runs over `TimingOptions.slow_s`, default 1.2: they
            cost more, and one alone is near the median of steady repeats (docs/search.md).
        kill_ratio: Multiple of the best time at which a first run is killed, default 10.
        kill_floor_s: Seconds that every first run gets, default 0.3.
    """

    ranked_ratio: float = 1.5
    slow_ranked_ratio: float = 1.2
    kill_ratio: float = 10.0
    kill_floor_s: float = 0.3
