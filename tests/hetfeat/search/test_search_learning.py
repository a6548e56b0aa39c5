"""What each learning search learns, and priors from other devices."""

import random

import numpy as np
import pytest
import spaces

from hetfeat.errors import RequestError
from hetfeat.search.base import Timed
from hetfeat.search.gaussian_process import Covariance, Process, StateFeatures
from hetfeat.search.gbfs import GreedyBestFirst
from hetfeat.search.na2c import ActorCritic, NeighbourhoodA2C, WalkStep
from hetfeat.search.rnn import Controller, RnnSearch
from hetfeat.search.runner import run_search
from hetfeat.search.space import Dimension, TileSpace, gemm_space
from hetfeat.search.strategies import STRATEGIES
from hetfeat.search.surrogate import SurrogateSearch
from hetfeat.search.warm_start import model_prior, recorded_prior, warmed_search
from hetfeat.search.xgb import Scores, XgbSearch

SPACE = gemm_space(64, 64, 64)
FAN_OUT, PLAN = 5, 64


def timed(states, seconds):
    return [Timed(state, s) for state, s in zip(states, seconds, strict=True)]


class TestGreedyBestFirst:
    def test_it_starts_untiled_and_goes_on_from_the_fastest(self):
        search = GreedyBestFirst(SPACE, 0)
        (start,) = search.ask(8)
        assert start == (64, 1, 1, 1, 64, 1, 64, 1, 1, 1)
        search.tell([Timed(start, 9.0)])
        first = search.ask(8)
        assert len(first) == FAN_OUT
        assert set(first) <= {s for _, s in SPACE.moves(start)}
        search.tell(timed(first, [5.0, 2.0, 7.0, None, 4.0]))
        assert set(search.ask(8)) <= {s for _, s in SPACE.moves(first[1])}

    def test_exchanges_lead_over_a_ridge_of_slower_states(self):
        """From an innermost factor of 12, single primes lead to 4, 6, 24 or further, all slower."""
        space = TileSpace([Dimension(192, 2)])
        seconds = {12: 2.0, 16: 1.0}

        def best(exchanges):
            search = GreedyBestFirst(space, 0, exchanges=exchanges)
            search.tell([Timed((16, 12), 2.0)])
            asked = search.ask(1) + search.ask(20)
            return min(seconds.get(state[1], 9.0) for state in asked if state[1] != 192)

        assert best(exchanges=False) == 9.0
        assert best(exchanges=True) == 1.0

    def test_parts_of_a_batch_are_neighbours_of_one_state(self):
        search = GreedyBestFirst(SPACE, 0)
        (start,) = search.ask(1)
        search.tell([Timed(start, 1.0)])
        one_by_one = [search.ask(1)[0] for _ in range(FAN_OUT)]
        assert set(one_by_one) <= {s for _, s in SPACE.moves(start)}

    def test_a_queue_emptied_by_failures_is_refilled_at_random(self):
        search = GreedyBestFirst(SPACE, 0)
        search.tell([Timed(state, None) for state in search.ask(1)])
        (fresh,) = search.ask(8)
        search.tell([Timed(fresh, 1.0)])
        assert set(search.ask(8)) <= {s for _, s in SPACE.moves(fresh)}


def steps(network_space, count=16):
    """The same step, again and again, and whether it led somewhere good."""
    state = network_space.start()
    moves = network_space.moves(state)
    actions = tuple(action for action, _ in moves)
    return [WalkStep(state, actions, *moves[i % len(moves)]) for i in range(count)], actions


class TestActorCritic:
    @pytest.mark.parametrize("rewarded", [0, 3])
    def test_a_rewarded_action_becomes_likelier(self, rewarded):
        network = ActorCritic(SPACE, seed=1)
        taken, actions = steps(SPACE, 28)
        rewards = [float(step.action == actions[rewarded]) for step in taken]
        before = network.probabilities(SPACE.start(), actions)
        for _ in range(12):
            network.learn(taken, rewards)
        after = network.probabilities(SPACE.start(), actions)
        assert before.sum() == pytest.approx(1)
        assert after[rewarded] > before[rewarded] + 0.1
        assert after.argmax() == rewarded

    def test_the_actors_loss_does_not_move_the_critic(self):
        network = ActorCritic(SPACE, seed=1)
        taken, _ = steps(SPACE)
        network.losses(taken, [1.0] * len(taken))[0].backward()
        assert all(weight.grad is None for weight in network._critic.parameters())
        assert all(weight.grad is not None for weight in network._actor.parameters())
        network.losses(taken, [1.0] * len(taken))[1].backward()
        assert all(weight.grad is not None for weight in network._critic.parameters())

    def test_the_critic_learns_what_follows(self):
        network = ActorCritic(SPACE, seed=1)
        taken, _ = steps(SPACE)
        before = network.losses(taken, [1.0] * len(taken))[1].item()
        for _ in range(20):
            network.learn(taken, [1.0] * len(taken))
        assert network.losses(taken, [1.0] * len(taken))[1].item() < before / 4

    def test_a_round_told_in_parts_is_learnt_from_whole(self):
        search = NeighbourhoodA2C(SPACE, 0)
        search.tell([Timed(search.ask(1)[0], 3.0)])
        asked = search.ask(8)
        search.tell([])
        search.tell([Timed(asked[0], None)])
        search.tell([Timed(state, 2.0) for state in asked[1:]])
        assert {step.reached for step in search._buffer} >= set(asked)

    def test_walks_begin_at_the_incumbent(self):
        search = NeighbourhoodA2C(SPACE, 0)
        search.tell([Timed(search.ask(1)[0], 3.0)])
        best = (4, 2, 2, 4, 32, 2, 4, 2, 2, 4)
        search.tell([Timed(best, 1.0), Timed(SPACE.state_at(9), 2.0)])
        near, edge = {best}, {best}
        for _ in range(3):
            edge = {s for state in edge for _, s in SPACE.moves(state)}
            near |= edge
        assert set(search.ask(8)) <= near


class TestController:
    def test_only_states_of_the_space_are_drawn(self, tmp_path):
        space = spaces.islands(tmp_path)
        drawn = set(Controller(space, 0).draw(64))
        assert drawn == set(space.states)

    def test_a_rewarded_state_becomes_likelier(self, tmp_path):
        space = spaces.recorded(tmp_path)
        controller = Controller(space, 0)
        good, bad = space.states[50], space.states[10]
        before = controller.log_probability([good, bad])
        for _ in range(10):
            controller.learn([good, bad], [1.0, -1.0])
        after = controller.log_probability([good, bad])
        assert after[0] > before[0] + 0.5
        assert after[1] < before[1]

    def test_probabilities_sum_to_one(self, tmp_path):
        space = spaces.recorded(tmp_path)
        total = np.exp(Controller(space, 0).log_probability(space.states)).sum()
        assert total == pytest.approx(1, abs=1e-4)

    def test_the_search_moves_its_controller_towards_fast_states(self, tmp_path):
        space = spaces.recorded(tmp_path)
        search = RnnSearch(space, 0)
        before = search.controller.log_probability(space.states)
        search.tell([Timed(s, 1.0 if s[0] == 32 else 5.0) for s in space.states])
        gained = search.controller.log_probability(space.states) - before
        fast = np.array([state[0] == 32 for state in space.states])
        assert gained[fast].mean() > gained[~fast].mean()


class TestXgb:
    def test_the_first_round_is_random_and_the_second_is_planned(self):
        space = gemm_space(256, 256, 256)
        search = XgbSearch(space, 0)
        first = search.ask(PLAN)
        assert len(first) == PLAN
        search.tell(timed(first, [0.001 * 4 ** (8 - state[3].bit_length()) for state in first]))
        second = search.ask(PLAN)
        assert len(second) == PLAN
        assert np.mean([s[3] for s in second]) > 2 * np.mean([s[3] for s in first])

    def test_failures_score_low(self):
        states = [SPACE.state_at(i) for i in random.Random(0).sample(range(SPACE.size), 200)]
        results = [Timed(s, None if s[0] > 4 else 1.0) for s in states]
        scores = Scores(SPACE, results, 0)(states)
        failing = np.array([result.seconds is None for result in results])
        assert np.mean(np.array(scores)[failing]) < 0.2 < 0.8 < np.mean(np.array(scores)[~failing])


class TestProcess:
    def test_the_covariance_by_hand(self):
        a, b = np.array([[0.0, 1.0, 0.0]]), np.array([[0.5, 1.0, 1.0]])
        of = Covariance(positions=2, pairs=0.5)
        linear = 4 * 0.25 / 2
        assert of(a, b)[0, 0] == pytest.approx(np.exp(-1.5) + linear + 0.5 * linear**2)
        assert of.diagonal(a)[0] == pytest.approx(of(a, a)[0, 0]) == pytest.approx(2.5)

    @pytest.mark.parametrize(("together", "pairs"), [(True, 0.5), (False, 0.0)])
    def test_the_evidence_tells_whether_positions_add_in_pairs(self, together, pairs):
        x = np.random.default_rng(0).random((60, 4))
        y = (x[:, 0] - 0.5) * (x[:, 1] - 0.5) if together else x[:, 0] + x[:, 1] - 1
        found = [Process.of(Covariance(4, weight), x, y / y.std()) for weight in (0.0, 0.5)]
        assert max(found, key=lambda process: process.evidence).covariance.pairs == pairs

    def test_a_pick_makes_what_is_like_it_less_curious(self):
        process = Process.of(Covariance(1, 0.0), np.array([[0.5]]), np.array([0.0]))
        there = np.array([[0.0], [0.01], [0.99]])
        assert process.lowest(there, np.zeros(3), 1.0, 2) == [0, 2]

    def test_how_often_two_divides_is_seen_where_the_order_does_not_tell(self, tmp_path):
        configurations = {f"{x},{y}": 1.0 + x for x in (16, 32, 48, 64) for y in (0, 1, 2, 4)}
        content = spaces.cache(configurations, tune_params_keys=["X", "Y"])
        seen = StateFeatures(spaces.recorded(tmp_path, content))
        assert seen.positions == 2
        x = seen([(16, 0), (32, 0), (48, 4), (64, 1)])
        assert x[:, :2] == pytest.approx(np.array([[0, 0], [1, 0], [2, 3], [3, 1]]) / 3)
        assert x[:, 2:] == pytest.approx(np.array([[4], [5], [4], [6]]) / 2)


class TestSurrogate:
    def test_states_that_no_moves_lead_to_are_candidates(self, tmp_path):
        space = spaces.islands(tmp_path)
        search = SurrogateSearch(space, 0)
        search.tell(space.measure(space.states[:1]))
        assert {space.states[-1], space.states[-2]} & set(search._pool())

    def test_neighbours_that_the_model_expects_to_be_fast_come_first(self):
        """Only the innermost factor of m matters: all picks have a larger one than the best."""
        search = SurrogateSearch(SPACE, 0)
        states = random.Random(1).sample(range(SPACE.size), 60)
        told = [SPACE.state_at(i) for i in states]
        told = [state for state in told if state[3] <= 8]
        search.tell([Timed(s, 1.0 / s[3]) for s in told])
        best = max(state[3] for state in told)
        picks = search.ask(4)
        assert len(picks) == 4
        assert all(state[3] > best for state in picks)

    def test_picks_of_a_batch_differ_in_more_than_the_order(self, tmp_path):
        space = spaces.recorded(tmp_path)
        search = SurrogateSearch(space, 0)
        search.tell(space.measure(space.states[::9]))
        assert len(set(search.ask(8))) == 4


class TestPriors:
    @pytest.fixture
    def devices(self, tmp_path):
        """Two devices that agree, and one on which the other corner is fastest."""
        places = {"a": (32, 16, 2, 1), "b": (32, 32, 2, 1), "far": (8, 64, 4, 0)}
        made = {}
        for name, best in places.items():
            (tmp_path / name).mkdir()
            made[name] = spaces.recorded(tmp_path / name, spaces.whole(best))
        return made

    def test_a_ranking_begins_with_the_fastest_there(self, devices):
        prior = recorded_prior(devices["a"], devices["b"])
        assert prior.ranking[0] == (32, 16, 2, 1)
        assert (128, 64, 1, 0) not in prior.ranking
        known, unknown = prior([(32, 16, 2, 1), (128, 64, 1, 0)])
        assert known < unknown == prior.unknown

    def test_a_model_orders_what_it_has_not_seen(self, devices):
        prior = model_prior(devices["a"], devices["b"], measured=70, seed=0)
        ran = [s for s in devices["a"].states if devices["a"].time_s(s)]
        true = np.log([devices["a"].time_s(s) for s in ran])
        assert np.corrcoef(prior(ran), true)[0, 1] > 0.8

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_every_search_begins_with_it(self, name, devices):
        prior = recorded_prior(devices["a"], devices["b"])
        search = warmed_search(name, devices["b"], 0, prior)
        asked = []
        while len(asked) < 4:
            asked += search.ask(4 - len(asked))
        assert asked == prior.ranking[:4]

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_a_warmed_search_still_finds_everything(self, name, devices):
        space = devices["b"]
        search = warmed_search(name, space, 0, recorded_prior(devices["far"], space))
        trial = run_search(search, space.measure, 200)
        assert trial.evaluations == space.size
        assert trial.best_s == space.optimum_s

    def test_other_parameters_are_refused(self, devices, tmp_path):
        other = spaces.cache({"1,2": 1.0, "2,2": 2.0}, tune_params_keys=["X", "Y"])
        with pytest.raises(RequestError, match="BM"):
            recorded_prior(devices["a"], spaces.recorded(tmp_path, other))

    def test_nothing_in_common_is_refused(self, devices, tmp_path):
        keys = ["9,9,9,9,32", "10,10,10,10,32"]
        other = spaces.recorded(tmp_path, spaces.cache(dict.fromkeys(keys, 1.0)))
        with pytest.raises(RequestError, match="without a state"):
            recorded_prior(devices["a"], other)
