"""An RNN controller trained by REINFORCE, which emits a state position by position.

After the controllers of neural architecture search (Zoph and Le 2017), one of the two rivals in
Zhang et al. 2019.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hetfeat.search.base import Space, State, Timed
from hetfeat.search.torch_threads import one_thread
from hetfeat.search.visited import Visits

if TYPE_CHECKING:
    from torch import Tensor

HIDDEN = 64
LEARNING_RATE = 5e-3
ENTROPY_WEIGHT = 0.02
BASELINE_DECAY = 0.9
DRAWS = 4
"""Batches drawn for one asked for: what was visited is drawn again by a policy that has settled."""


class Controller:
    """An LSTM over the positions of a state; only values that lead to a state can be drawn."""

    def __init__(self, space: Space, seed: int) -> None:
        import torch

        self._space = space
        self._generator = torch.Generator().manual_seed(seed)
        values = sorted({value for level in space.levels for value in level})
        self._symbol = {value: i for i, value in enumerate(values)}
        self._values = values
        self._embedding = torch.nn.Embedding(len(values) + 1, HIDDEN)
        self._position = torch.nn.Embedding(len(space.levels), HIDDEN)
        self._cell = torch.nn.LSTMCell(HIDDEN, HIDDEN)
        self._out = torch.nn.Linear(HIDDEN, len(values))
        modules = (self._embedding, self._position, self._cell, self._out)
        weights = [weight for module in modules for weight in module.parameters()]
        for weight in weights:
            torch.nn.init.uniform_(weight, -0.1, 0.1, generator=self._generator)
        self._adam = torch.optim.Adam(weights, LEARNING_RATE)

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
        (-gain - ENTROPY_WEIGHT * entropy.mean()).backward()
        self._adam.step()

    def log_probability(self, states: Sequence[State]) -> "np.ndarray":
        """Log-probabilities of states under the policy, float [states]."""
        import torch

        with torch.no_grad():
            return self._unroll(len(states), states)[1].numpy()

    def _unroll(
        self, count: int, given: Sequence[State] | None
    ) -> tuple[list[State], "Tensor", "Tensor"]:
        """Emits `count` states, or follows those given: states, log-probabilities, entropies."""
        import torch

        states: list[State] = [()] * count
        symbols = torch.full((count,), len(self._values))
        hidden = carry = torch.zeros(count, HIDDEN)
        log_probability, entropy = torch.zeros(count), torch.zeros(count)
        for position in range(len(self._space.levels)):
            read = self._embedding(symbols) + self._position.weight[position]
            hidden, carry = self._cell(read, (hidden, carry))
            log_policy = torch.log_softmax(self._out(hidden) + self._closed(states), 1)
            policy = log_policy.exp()
            if given is None:
                symbols = torch.multinomial(policy, 1, generator=self._generator)[:, 0]
            else:
                symbols = torch.tensor([self._symbol[state[position]] for state in given])
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
    """

    def __init__(self, space: Space, seed: int) -> None:
        self.controller = Controller(space, seed)
        self._visits = Visits(space, random.Random(seed))
        self._best_s = float("inf")
        self._baseline: float | None = None

    def ask(self, count: int) -> list[State]:
        """See `Search.ask`."""
        chosen: list[State] = []
        for _ in range(DRAWS):
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
        self._baseline = BASELINE_DECAY * baseline + (1 - BASELINE_DECAY) * mean
