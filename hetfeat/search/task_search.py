"""Searches of the network tuner, by the name of their strategy."""

from hetfeat.records import Task
from hetfeat.schedules.registers import MANY_REGISTERS, VectorUnit
from hetfeat.search.base import Guidance, Proposer, TaskSearch, WarmStarts, no_warm_starts
from hetfeat.search.evolution import Evolution, EvolutionConfig
from hetfeat.search.strategies import EVOLUTION
from hetfeat.search.tile_search import TileSearch


def make_task_search(
    strategy: str,
    task: Task,
    proposer: Proposer,
    seed: int,
    *,
    guidance: Guidance,
    warm_starts: WarmStarts = no_warm_starts,
    unit: VectorUnit = MANY_REGISTERS,
    evolution: EvolutionConfig | None = None,
) -> TaskSearch:
    """A search over the programs of a task.

    Args:
        strategy: Name among `strategies.STRATEGIES`; all but evolution search the tile factors.
        task: Task whose programs are searched.
        proposer: Source of candidates.
        seed: Seed of every draw.
        guidance: Scores and ranks of candidates, for a strategy that asks for them.
        warm_starts: Function that gives the warm-start candidates; by default there are none.
        unit: Vector registers of the device, see `Evolution`.
        evolution: Settings of evolution; those of `EvolutionConfig` by default.
    """
    if strategy == EVOLUTION:
        return Evolution(
            task,
            proposer,
            seed,
            guidance=guidance,
            warm_starts=warm_starts,
            unit=unit,
            config=evolution or EvolutionConfig(),
        )
    return TileSearch(strategy, task, proposer, seed, warm_starts=warm_starts)
