"""Deployments that do no more than there is to test.

Engines take one turn each in comparisons, where users' take twenty, and one child builds. As a
program it is `hetfeat` of that kind: python small_deploys.py [--few] COMMAND ... With `--few` it
also chooses of a few candidates for what nothing was measured of.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

import mlproject
from hetfeat.deploy.check_on_device import CheckOptions
from hetfeat.measure.factory import measurer_of
from hetfeat.search.evolution import EvolutionConfig
from hetfeat.tune.tuner import TuningOptions

FEW = EvolutionConfig(
    sketch_samples=2, unmeasured_candidates=8, unmeasured_applied=8, unmeasured_generations=1
)


def deploy_small(
    patch: pytest.MonkeyPatch, *modules: str, peers: Sequence[str] | None = (), **more: Any
) -> None:
    """Makes deployments small where these modules ask for them.

    Args:
        patch: Patch that ends with the tests it is for.
        modules: Names of modules that call `deploy` or `compile_found` of the pipeline.
        peers: Engines to compare with, by default none; None for all.
        more: More of `CheckOptions`.
    """
    check = CheckOptions(rounds={"quick": 1}, few_rounds=1, peers=peers, **more)
    patch.setattr("hetfeat.deploy.tuned.measurer_of", partial(measurer_of, builders=1))
    for module in map(importlib.import_module, modules):
        for name in {"deploy", "compile_found"} & set(vars(module)):
            patch.setattr(module, name, _checked_so(getattr(module, name), check))


def _checked_so(function: Callable[..., Any], check: CheckOptions) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        others = [value for value in given if not isinstance(value, CheckOptions)]
        return function(*others, **named | {"check": check})

    return call


if __name__ == "__main__":
    alone = pytest.MonkeyPatch()
    deploy_small(alone, "registry.jobs.deploy", peers=None)
    if sys.argv[1:2] == ["--few"]:
        del sys.argv[1]
        alone.setattr("hetfeat.deploy.tuned.TuningOptions", partial(TuningOptions, evolution=FEW))
    mlproject.main()
