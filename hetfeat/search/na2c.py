"""N-A2C: neighbourhood actor advantage critic (Zhang et al. 2019, arXiv 1909.10616).

The algorithm is described in US patent 11,842,178 B2. The paper's sizes of network and buffer are
not known; those here are our own.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hetfeat.search.base import Space, State, Timed
from hetfeat.search.torch_threads import one_thread
from hetfeat.search.visited import Visits

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ActorCriticConfig:
    """Settings of `NeighbourhoodA2C`; sizes of network and buffer are our own.

    Attributes:
        steps: Length of a walk from the incumbent, in moves; 3 by default, the paper's T.
        policy_share: Probability that a step follows the policy, others are random; 0.7 by
            default, the paper's epsilon.
        walks_per_state: Walks tried for each state asked for before fewer are returned; 4 by
            default.
        hidden: Width of the hidden layer; 128 by default.
        learning_rate: Step size of Adam; 0.001 by default.
        discount: Factor on the value of the state that a step leads to; 0.9 by default.
        buffer: Latest steps that are learnt from; 256 by default.
        batch: Steps of the buffer that a gradient is computed of; 64 by default.
        updates: Gradient steps with each batch of measurements; 4 by default.
    """

    steps: int = 3
    policy_share: float = 0.7
    walks_per_state: int = 4
    hidden: int = 128
    learning_rate: float = 1e-3
    discount: float = 0.9
    buffer: int = 256
    batch: int = 64
    updates: int = 4


class WalkStep(NamedTuple):
    """One step of a walk; what it led to has been measured or is about to be."""

    state: State
    open_actions: tuple[int, ...]
    action: int
    reached: State


class ActorCritic:
    """Policy and value of states by one network with a shared hidden layer.

    Args:
        space: Space whose vectors it reads and whose actions it weighs.
        seed: Seed of the weights and of what is replayed.
        config: Settings; those of `ActorCriticConfig` by default.
    """

    def __init__(
        self, space: Space, seed: int, config: ActorCriticConfig = ActorCriticConfig()
    ) -> None:
        import torch

        self._space, self._config = space, config
        self._rng = random.Random(seed)
        generator = torch.Generator().manual_seed(seed)
        self._body = torch.nn.Linear(len(space.levels), config.hidden)
        self._actor = torch.nn.Linear(config.hidden, space.actions)
        self._critic = torch.nn.Linear(config.hidden, 1)
        self._weights = [
            *self._body.parameters(), *self._actor.parameters(), *self._critic.parameters()
        ]  # fmt: skip
        for weight in self._weights:
            bound = weight.shape[-1] ** -0.5
            torch.nn.init.uniform_(weight, -bound, bound, generator=generator)
        self._adam = torch.optim.Adam(self._weights, config.learning_rate)

    @one_thread()
    def probabilities(self, state: State, actions: Sequence[int]) -> "np.ndarray":
        """The policy in a state: probabilities of its open actions, float [actions]."""
        import torch

        with torch.no_grad():
            logits, _ = self._forward([state])
            return torch.softmax(logits[0, list(actions)].double(), 0).numpy()

    def losses(
        self, steps: Sequence[WalkStep], rewards: Sequence[float]
    ) -> tuple["Tensor", "Tensor"]:
        """Loss of the actor, which must not move the critic, and of the critic."""
        import torch

        logits, values = self._forward([step.state for step in steps])
        with torch.no_grad():
            _, next_values = self._forward([step.reached for step in steps])
            returns = torch.tensor(rewards) + self._config.discount * next_values
        closed = torch.ones_like(logits, dtype=torch.bool)
        rows = [row for row, step in enumerate(steps) for _ in step.open_actions]
        closed[rows, [action for step in steps for action in step.open_actions]] = False
        log_policy = torch.log_softmax(logits.masked_fill(closed, -torch.inf), 1)
        taken = log_policy[range(len(steps)), [step.action for step in steps]]
        advantage = (returns - values).detach()
        return -(taken * advantage).mean(), (returns - values).square().mean()

    @one_thread()
    def learn(self, steps: Sequence[WalkStep], rewards: Sequence[float]) -> None:
        """Takes gradient steps on random parts of a buffer."""
        size = min(self._config.batch, len(steps))
        for _ in range(self._config.updates):
            chosen = self._rng.sample(range(len(steps)), size)
            actor, critic = self.losses([steps[i] for i in chosen], [rewards[i] for i in chosen])
            self._adam.zero_grad()
            (actor + critic).backward()
            self._adam.step()

    def _forward(self, states: Sequence[State]) -> tuple["Tensor", "Tensor"]:
        import torch

        hidden = torch.tanh(self._body(torch.from_numpy(self._space.vectors(states))))
        return self._actor(hidden), self._critic(hidden)[:, 0]


class NeighbourhoodA2C:
    """A `StateSearch`: short walks from the incumbent, guided by a policy that learns from them.

    The reward of a step is the incumbent's time over that of the state it reached, 0 for a failure.

    Args:
        space: Space to search.
        seed: Seed of every draw, and of the network.
        config: Settings; those of `ActorCriticConfig` by default.
    """

    def __init__(
        self, space: Space, seed: int, *, config: ActorCriticConfig = ActorCriticConfig()
    ) -> None:
        self._space, self._config = space, config
        self._rng = random.Random(seed)
        self._visits = Visits(space, self._rng)
        self.network = ActorCritic(space, seed, config)
        self._buffer: deque[WalkStep] = deque(maxlen=config.buffer)
        self._times_s: dict[State, float | None] = {}
        self._incumbent: State | None = None
        self._best_s = float("inf")
        self._walked: list[WalkStep] = []
        self._policies: dict[State, list[float]] = {}

    def ask(self, count: int) -> list[State]:
        """See `Search.ask`."""
        chosen: list[State] = []
        if self._incumbent is None and not self._times_s:
            start = self._space.start()
            if start and count and self._visits.add(start):
                return [start]
        if self._incumbent is not None:
            for _ in range(self._config.walks_per_state * count):
                self._walk(self._incumbent, chosen, count)
                if len(chosen) == count:
                    break
        return self._visits.fill(chosen, count)

    def tell(self, measurements: Sequence[Timed]) -> None:
        """See `Search.tell`."""
        if not measurements:
            return
        for timed in measurements:
            self._visits.add(timed.state)
            self._times_s[timed.state] = timed.seconds
            if timed.seconds is not None and timed.seconds < self._best_s:
                self._incumbent, self._best_s = timed.state, timed.seconds
        # What is never told of is no experience; the rest of a round may still come.
        self._buffer.extend(step for step in self._walked if step.reached in self._times_s)
        waiting = [step for step in self._walked if step.reached not in self._times_s]
        self._walked = waiting[-self._config.buffer :]
        if self._buffer and self._incumbent is not None:
            rewards = [self._reward(step.reached) for step in self._buffer]
            self.network.learn(list(self._buffer), rewards)
            self._policies.clear()

    def _reward(self, state: State) -> float:
        seconds = self._times_s[state]
        return 0.0 if seconds is None else self._best_s / seconds

    def _policy(self, state: State, open_actions: Sequence[int]) -> list[float]:
        """The policy's probabilities, computed once a lesson: walks share their start."""
        if state not in self._policies:
            self._policies[state] = self.network.probabilities(state, open_actions).tolist()
        return self._policies[state]

    def _walk(self, state: State, chosen: list[State], count: int) -> None:
        """Walks from a state and adds what it comes by for the first time to `chosen`."""
        for _ in range(self._config.steps):
            moves = self._space.moves(state)
            if not moves or len(chosen) == count:
                return
            open_actions = tuple(action for action, _ in moves)
            weights = None
            if self._rng.random() < self._config.policy_share:
                weights = self._policy(state, open_actions)
            action, reached = self._rng.choices(moves, weights)[0]
            self._walked.append(WalkStep(state, open_actions, action, reached))
            if self._visits.add(reached):
                chosen.append(reached)
            state = reached
