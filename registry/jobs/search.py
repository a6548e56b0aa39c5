"""Compares searches on a recorded space or live, and logs each as a nested run."""

import json
import logging
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hetfeat.dataset.importers.kernel_tuner import read_recording
from hetfeat.deploy.gemm_bench import compare_matmul, finalists
from hetfeat.devices.probe import find_profile
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError
from hetfeat.progress import progress
from hetfeat.search.base import Space, State, Timed
from hetfeat.search.prior import Prior
from hetfeat.search.recorded import RecordedSpace
from hetfeat.search.runner import Measure, Trial, evaluations_of, run_search
from hetfeat.search.space import GEMM_SLOTS, gemm_space
from hetfeat.search.strategies import check_strategies, make_search
from hetfeat.search.warm_start import recorded_prior, warmed_search
from hetfeat.tune.gemm_measurer import gemm_measurer
from registry.tracking import command_run
from registry.tracking.live import Curve

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchRequest:
    """What `hetfeat search` was asked for.

    Attributes:
        space: File of a recorded space, or None.
        gemm: `M,N,K` of a live search, or None.
        device: Name of the device of a live search.
        strategy: Names of strategies.
        budget: Evaluations of each run: a count, or a fraction of the space.
        repeats: Number of runs of each strategy.
        prior: File of the same space on another device, or None.
        seed: Seed of the first run; each further run has the next.
    """

    space: Path | None
    gemm: str | None
    device: str
    strategy: tuple[str, ...]
    budget: str
    repeats: int
    prior: Path | None
    seed: int


@dataclass(frozen=True)
class _Arena:
    """Where the searches compete."""

    name: str
    space: Space
    measure: Measure
    prior: Prior | None
    profile: DeviceProfile | None
    optimum_s: float | None


def search_and_log(
    request: SearchRequest, beside_libraries: bool = True, rounds: int = 8
) -> dict[str, Any]:
    """Does the whole of `hetfeat search`.

    Args:
        request: Request that the command was given.
        beside_libraries: Whether the best programs of a live search are timed beside libraries,
            default True.
        rounds: Number of turns of the fastest programs and of the libraries, default 8.

    Returns:
        The result, as `--json` prints it.

    Raises:
        RequestError: Neither or both of a space and a shape, an unknown strategy, a budget that is
            none, a file that is no recorded space.
    """
    check_strategies(request.strategy)
    with _arena(request) as arena:
        budget = evaluations_of(request.budget, arena.space.size)
        name = command_run.run_name(
            *("search", arena.name, ",".join(request.strategy)), budget=budget, seed=request.seed
        )
        with command_run.tracked_run(name, {"space": arena.name}):
            settings = {"space": arena.name, "space_size": arena.space.size, "budget": budget}
            command_run.log_resolved({**settings, "repeats": request.repeats, "seed": request.seed})
            total = budget * request.repeats * len(request.strategy)
            with progress(total, "evaluation") as at:
                shown = replace(arena, measure=_counted(arena.measure, at))
                trials = {
                    name: _strategy(name, shown, budget, request) for name in request.strategy
                }
            result: dict[str, Any] = {
                "strategies": {name: _summary(found) for name, found in trials.items()},
                "optimum_ms": _ms(arena.optimum_s),
                "space_size": arena.space.size,
                "budget": budget,
            }
            best = finalists([b for found in trials.values() for t in found for b in t.bests])
            result["best_state"] = _values(best[0], arena.space) if best else None
            names = _parameters(arena.space)
    if beside_libraries and best and arena.profile and request.gemm:
        state, timed = compare_matmul(_shape(request.gemm), best, arena.profile, rounds)
        result["best_state"] = list(state)
        result["libraries_ms"] = {
            name: latency.median_ms if latency else None for name, latency in timed.items()
        }
    values = result["best_state"]
    result["best_parameters"] = dict(zip(names, values, strict=True)) if values else None
    return result


@contextmanager
def _arena(request: SearchRequest) -> Iterator[_Arena]:
    """The space and what measures its states."""
    if (request.space is None) == (request.gemm is None):
        raise RequestError(
            "both --space and --gemm" if request.gemm else "neither --space nor --gemm",
            "one of the two",
            "give --space FILE or --gemm M,N,K",
        )
    if request.space is not None:
        recording = read_recording(request.space)
        recorded = RecordedSpace(recording)
        prior = None
        if request.prior is not None:
            prior = recorded_prior(RecordedSpace(read_recording(request.prior)), recorded)
        name = f"{recording.kernel} on {recording.device}"
        yield _Arena(name, recorded, recorded.measure, prior, None, recorded.optimum_s)
        return
    if request.prior is not None:
        raise RequestError("--prior with --gemm", "--prior with --space", "leave --prior out")
    shape = _shape(request.gemm or "")
    space = gemm_space(*shape)
    evaluations_of(request.budget, space.size)  # a wrong budget shows before a child is started
    profile = find_profile(request.device)
    with gemm_measurer(profile, *shape) as measure:
        name = f"gemm {request.gemm} on {profile.name}"
        yield _Arena(name, space, measure, None, profile, None)


def _values(state: State, space: Space) -> list[Any]:
    """The state's values, as the file of a recorded space has them."""
    if isinstance(space, RecordedSpace):
        return [json.loads(value) for value in space.values(state)]
    return list(state)


def _parameters(space: Space) -> list[str]:
    """Names of a state's values: those of the recording, or `m1`, `m2` and so on of a product."""
    if isinstance(space, RecordedSpace):
        return list(space.parameters)
    slots = zip("mkn", GEMM_SLOTS, strict=True)
    return [f"{axis}{number + 1}" for axis, count in slots for number in range(count)]


def _shape(text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise RequestError(
            f"--gemm {text}", "three whole numbers M,N,K of at least 1", "for example 512,512,512"
        )
    m, n, k = map(int, parts)
    return m, n, k


def _strategy(name: str, arena: _Arena, budget: int, request: SearchRequest) -> list[Trial]:
    """The runs of one strategy, in an MLflow run of their own."""
    import mlflow

    with command_run.nested_run(name, {"strategy": name}) as run:
        mlflow.log_params({"strategy": name, "budget": budget, "repeats": request.repeats})
        trials = []
        for repeat in range(request.repeats):
            search = _search(name, arena, request.seed + repeat)
            trials.append(run_search(search, arena.measure, budget))
            log.info("%s, run %d: %s ms", name, repeat, _ms(trials[-1].best_s))
        _log_curve(run.info.run_id, trials, arena.optimum_s)
    return trials


def _counted(measure: Measure, at: Callable[[int], None]) -> Measure:
    done = 0

    def counted(states: Sequence[State]) -> Sequence[Timed]:
        nonlocal done
        timed = measure(states)
        done += len(timed)
        at(done)
        return timed

    return counted


def _search(name: str, arena: _Arena, seed: int) -> Any:
    if isinstance(arena.space, RecordedSpace):
        return warmed_search(name, arena.space, seed, arena.prior)
    return make_search(name, arena.space, seed)


def _log_curve(run_id: str, trials: Sequence[Trial], optimum_s: float | None) -> None:
    """The median over runs of the best so far, by evaluations."""
    import mlflow

    curve = Curve(run_id)
    # A run ends before its budget only where the space does, for all runs alike.
    for step, reached in enumerate(zip(*(trial.curve_s for trial in trials), strict=True)):
        median = _median(reached)
        if median is not None:
            figures = {"best_ms": median * 1e3}
            if optimum_s is not None:
                figures["excess"] = median / optimum_s - 1
            curve.add(step + 1, figures)
    curve.log()
    mlflow.log_metrics(_times(trials))


def _summary(trials: Sequence[Trial]) -> dict[str, Any]:
    return {
        "best_ms": _ms(_median([trial.best_s for trial in trials])),
        **_times(trials),
        "repeats": [
            {
                "best_ms": _ms(trial.best_s),
                "evaluations": trial.evaluations,
                "seconds": trial.search_s + trial.measuring_s,
            }
            for trial in trials
        ],
    }


def _times(trials: Sequence[Trial]) -> dict[str, float]:
    """Medians of what the searching and the measuring of a run took."""
    return {
        "search_s": statistics.median(trial.search_s for trial in trials),
        "measuring_s": statistics.median(trial.measuring_s for trial in trials),
    }


def _median(seconds: Sequence[float | None]) -> float | None:
    """Median with nothing found as the worst; None where that is the median."""
    median = statistics.median(math.inf if s is None else s for s in seconds)
    return median if math.isfinite(median) else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
