"""An RNN controller trained by REINFORCE, which emits a state position by position.

After the controllers of neural architecture search (Zoph and Le 2017), one of the two searches that
Zhang et al. 2019 compare theirs with.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetfeat.search.base import Space, State, Timed
from hetfeat.search.torch_threads import one_thread
from hetfeat.search.visited import Visits

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ControllerConfig:
    """Settings of `RnnSearch`; the paper's are not known, these are our own.

    Attributes:
        hidden: Width of the LSTM and of the embeddings; 64 by default.
        learning_rate: Step size of Adam; 0.005 by default.
        entropy_weight: Weight of the policy's entropy in what is maximised; 0.02 by default.
        baseline_decay: Weight of the old running mean of the reward in the new one; 0.9 by
            default.
        draws: Batches drawn for one asked for; 4 by default: a policy that has settled draws
            again what was visited.
    """

    hidden: int = 64
    learning_rate: float = 5e-3
    entropy_weight: float = 0.02
    baseline_decay: float = 0.9
    draws: int = 4


class Controller:
    """An LSTM over the positions of a state; only values that lead to a state can be drawn.

    Args:
        space: Space of the states.
        seed: Seed of the weights and of the draws.
        config: Settings; those of `ControllerConfig` by default.
    """

    def __init__(
        self, space: Space, seed: int, config: ControllerConfig = ControllerConfig()
    ) -> None:
        import torch

        self._space, self._config = space, config
        hidden = config.hidden
        self._generator = torch.Generator().manual_seed(seed)
        values = sorted({value for level in space.levels for value in level})
        self._symbol = {value: i for i, value in enumerate(values)}
        self._values = values
        self._embedding = torch.nn.Embedding(len(values) + 1, hidden)
        self._position = torch.nn.Embedding(len(space.levels), hidden)
        self._cell = torch.nn.LSTMCell(hidden, hidden)
        self._out = torch.nn.Linear(hidden, len(values))
        modules = (self._embedding, self._position, self._cell, self._out)
        weights = [weight for module in modules for weight in module.parameters()]
        for weight in weights:
            torch.nn.init.uniform_(weight, -0.1, 0.1, generator=self._generator)
        self._adam = torch.optim.Adam(weights, config.learning_rate)

    @one_thread()
    def draw(self, count: int) -> list[State]:
        """States by the policy, with repetitions."""
        import torch

        with torch.no_grad():
            states, _, _ = self._unroll(count, None)
        return states

    @one_thread()
    def learn(self, states: Sequence[State], advantages: Sequence[float]) -> None:
        """One ascent on the log-probability of states, weighted by their advantages."""
        import torch

        _, log_probability, entropy = self._unroll(len(states), states)
        gain = (log_probability * torch.tensor(advantages)).mean()
        self._adam.zero_grad()
        (-gain - self._config.entropy_weight * entropy.mean()).backward()
        self._adam.step()

    def log_probability(self, states: Sequence[State]) -> "np.ndarray":
        """Log-probabilities of states under the policy, float [states]."""
        import torch

        with torch.no_grad():
            return self._unroll(len(states), states)[1].numpy()

    def _unroll(
        self, count: int, followed: Sequence[State] | None
    ) -> tuple[list[State], "Tensor", "Tensor"]:
        """Emits `count` states, or follows `followed`: states, log-probabilities, entropies."""
        import torch

        states: list[State] = [()] * count
        symbols = torch.full((count,), len(self._values))
        hidden = carry = torch.zeros(count, self._config.hidden)
        log_probability, entropy = torch.zeros(count), torch.zeros(count)
        for position in range(len(self._space.levels)):
            read = self._embedding(symbols) + self._position.weight[position]
            hidden, carry = self._cell(read, (hidden, carry))
            log_policy = torch.log_softmax(self._out(hidden) + self._closed(states), 1)
            policy = log_policy.exp()
            if followed is None:
                symbols = torch.multinomial(policy, 1, generator=self._generator)[:, 0]
            else:
                symbols = torch.tensor([self._symbol[state[position]] for state in followed])
            log_probability = log_probability + log_policy[range(count), symbols]
            entropy = entropy - (policy * log_policy.clamp(min=-50)).sum(1)
            states = [
                (*state, self._values[symbol])
                for state, symbol in zip(states, symbols.tolist(), strict=True)
            ]
        return states, log_probability, entropy

    def _closed(self, prefixes: Sequence[State]) -> "Tensor":
        """0 where a value may follow, minus infinity elsewhere: [prefixes, values]."""
        import torch

        closed = np.full((len(prefixes), len(self._values)), -np.inf, np.float32)
        for row, prefix in zip(closed, prefixes, strict=True):
            row[[self._symbol[value] for value in self._space.options(prefix)]] = 0.0
        return torch.from_numpy(closed)


class RnnSearch:
    """A `StateSearch` by a `Controller`; the reward is the best time over a state's own.

    The advantage is the reward less its running mean. A failure has reward 0.

    Args:
        space: Space to search.
        seed: Seed of every draw, and of the controller.
        config: Settings; those of `ControllerConfig` by default.
    """

    def __init__(
        self, space: Space, seed: int, *, config: ControllerConfig = ControllerConfig()
    ) -> None:
        self._config = config
        self.controller = Controller(space, seed, config)
        self._visits = Visits(space, random.Random(seed))
        self._best_s = float("inf")
        self._baseline: float | None = None

    def ask(self, count: int) -> list[State]:
        """See `Search.ask`."""
        chosen: list[State] = []
        for _ in range(self._config.draws):
            if len(chosen) == count:
                break
            drawn = self.controller.draw(count - len(chosen))
            chosen += [state for state in drawn if self._visits.add(state)]
        return chosen + self._visits.fresh(count - len(chosen))

    def tell(self, measurements: Sequence[Timed]) -> None:
        """See `Search.tell`."""
        if not measurements:
            return
        for timed in measurements:
            self._visits.add(timed.state)
            if timed.seconds is not None:
                self._best_s = min(self._best_s, timed.seconds)
        rewards = [self._best_s / t.seconds if t.seconds else 0.0 for t in measurements]
        mean = sum(rewards) / len(rewards)
        if self._baseline is None:
            self._baseline = mean
        baseline = self._baseline
        self.controller.learn([t.state for t in measurements], [r - baseline for r in rewards])
        decay = self._config.baseline_decay
        self._baseline = decay * baseline + (1 - decay) * mean
