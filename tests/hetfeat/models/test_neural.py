"""Networks: what their losses compare, how they are batched, and the support set of `attention`."""

import dataclasses
from unittest import mock

import numpy as np
import pytest
import stores
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from hetfeat.dataset.splits import split_examples
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.features.columns import RELATIVE, STORE
from hetfeat.models.engines import together
from hetfeat.models.engines.attention import HEED, _memory, read
from hetfeat.models.engines.attention_net import LABELS, AttentionNet
from hetfeat.models.engines.inputs import Scaling
from hetfeat.models.engines.losses import Targets, loss_of
from hetfeat.models.engines.mlp import MlpNet
from hetfeat.models.engines.net import WEIGHTS, Best, NetOptions, steps_of, torch_threads
from hetfeat.models.evaluate import evaluate
from hetfeat.models.gbdt import XgbModel
from hetfeat.models.hyperparameters import build
from hetfeat.models.labels import group_codes
from hetfeat.models.metrics import pairwise_accuracy
from hetfeat.models.neural import AttentionParameters, MlpParameters
from hetfeat.models.relative import relative_features
from hetfeat.models.support import judge_beside, predict_beside

SMALL = {"rounds": 60, "width": 32, "batch": 8, "layers": 1}
RANK = MlpParameters(point_weight=0.0)


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> Examples:
    path = tmp_path_factory.mktemp("records") / "s"
    return assemble(stores.make_store(path, tasks=12, per_task=24)).examples


@pytest.fixture(scope="module")
def attention(examples):
    """Trained on device `a` and most tasks; also what it has not seen."""
    split = split_examples(examples, "by_target", 0, ("b",))
    made = build("attention", "quick", 0, SMALL)
    made.fit(examples.take(split.train), examples.take(split.valid))
    return made, examples.take(split.test)


def targets(latency_s: list[float]) -> Targets:
    slowness = torch.tensor(latency_s).log()
    return Targets(torch.exp(slowness.min() - slowness), slowness)


def test_the_loss_of_a_pair_by_hand():
    """One pair 1 s and 2 s with equal margins: log 2; a third program of another task adds none."""
    margins = torch.zeros(3)
    loss = loss_of(margins, targets([1.0, 2.0, 9.0]), torch.tensor([0, 0, 1]), RANK)
    assert loss.item() == pytest.approx(np.log(2))
    right = loss_of(torch.tensor([3.0, 0, 9]), targets([1, 2, 9]), torch.tensor([0, 0, 1]), RANK)
    assert right.item() == pytest.approx(np.log(1 + np.exp(-3)))


def test_networks_read_how_a_store_stands_to_its_task_and_device(examples):
    batch = examples.batch
    program = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))
    relation = relative_features(batch.stores, batch.task[program], batch.hardware[program])
    steps = Scaling.of(batch)(batch).steps.numpy()
    told = relation.std(0) > 0.01
    assert told.any()
    for column in np.flatnonzero(told):
        rank = np.corrcoef(relation[:, column], steps[:, len(STORE) + column])[0, 1]
        assert rank > 0.8, RELATIVE[column].name


def test_sequences_of_primitives_are_told_from_those_of_stores(examples):
    alone = Scaling.of(examples.batch.without_stores())
    assert alone.step_width not in (len(STORE), len(STORE) + len(RELATIVE))


def test_programs_of_different_tasks_are_never_compared():
    margins = torch.zeros(4, requires_grad=True)
    apart = loss_of(margins, targets([1.0, 2.0, 3.0, 4.0]), torch.arange(4), RANK)
    assert apart.item() == 0


def test_lambda_rank_weighs_the_top_by_hand():
    """Three programs ranked in the wrong order; pair weights |2^y - 2^y'| x |1/D - 1/D'|."""
    wanted = targets([1.0, 2.0, 4.0])  # y: 1, 1/2, 1/4
    margins = torch.tensor([0.0, 1.0, 2.0])  # ranks: 2, 1, 0
    gain = 2.0 ** np.array([1, 0.5, 0.25])
    discount = 1 / np.log2([4, 3, 2])
    pairs = [(0, 1), (0, 2), (1, 2)]
    weight = [abs(gain[i] - gain[j]) * abs(discount[i] - discount[j]) for i, j in pairs]
    each = [np.log1p(np.exp(j - i)) for i, j in pairs]
    parameters = dataclasses.replace(RANK, lambda_rank=True)
    loss = loss_of(margins, wanted, torch.zeros(3, dtype=torch.int64), parameters)
    assert loss.item() == pytest.approx(np.dot(weight, each) / np.sum(weight), rel=1e-5)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 3 * NetOptions.chunk), min_size=1, max_size=9),
    tasks=st.integers(1, 5),
)
def test_an_epoch_takes_every_program_once_and_mixes_no_tasks(sizes, tasks):
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    steps = list(steps_of(groups, tasks, np.random.default_rng(1)))
    taken = np.concatenate([positions.numpy() for positions, _ in steps])
    assert sorted(taken.tolist()) == list(range(len(groups)))
    for positions, chunk in steps:
        counts = np.bincount(chunk.numpy())
        assert len(counts) <= tasks
        assert counts.max() <= NetOptions.chunk
        for number in range(len(counts)):
            assert len(set(groups[positions[chunk == number].numpy()])) == 1


@pytest.mark.parametrize("others", [0, 3, 40])
def test_all_that_train_together_take_as_many_steps(monkeypatch, others):
    """Another process has so many chunks, of 8 that a step takes of both."""
    monkeypatch.setattr(together, "of_all", lambda count: [count, others])
    groups = np.repeat(np.arange(10), NetOptions.chunk)
    steps = list(steps_of(groups, 8, np.random.default_rng(1)))
    assert len(steps) == -(-(10 + others) // 8)
    taken = np.concatenate([positions.numpy() for positions, _ in steps])
    assert sorted(taken.tolist()) == list(range(len(groups)))


def test_parts_are_standardised_as_the_whole(examples, monkeypatch):
    whole = Scaling.of(examples.batch)
    parts = [examples.batch.take(rows) for rows in np.array_split(np.arange(len(examples)), 3)]
    alone = together.of_all
    values: list = []
    monkeypatch.setattr(together, "of_all", lambda value: values.append(value) or alone(value))
    for part in parts:
        Scaling.of(part)
    of_steps, of_context = values[::2], values[1::2]
    for name, moments in (("steps", of_steps), ("context", of_context)):
        monkeypatch.setattr(together, "of_all", lambda _, found=moments: found)
        for figure in ("mean", "scale"):
            key = f"{name}.{figure}"
            np.testing.assert_allclose(
                Scaling.of(parts[0]).tensors[key], whole.tensors[key], rtol=1e-4, atol=1e-5
            )


def test_inputs_are_standardised_and_hold_no_nan(examples):
    inputs = Scaling.of(examples.batch)(examples.batch)
    assert torch.isfinite(inputs.steps).all()
    assert torch.isfinite(inputs.context).all()
    learnable = inputs.steps[:, list(stores.LEARNABLE)]
    assert learnable.mean(0).abs().max() < 1e-3
    assert (learnable.std(0) - 1).abs().max() < 1e-2
    index = torch.tensor([5, 0, 5])
    part, again = inputs.take(index), Scaling.of(examples.batch)(examples.batch.take(index.numpy()))
    torch.testing.assert_close(part.steps, again.steps)
    torch.testing.assert_close(part.context, again.context)


def reversed_speed(examples: Examples) -> Examples:
    """The slowest is the fastest, by more: a device on which the trained head is wrong."""
    return dataclasses.replace(examples, latency_s=1e-16 / examples.latency_s**3)


def accuracy(scores, examples: Examples) -> float:
    return pairwise_accuracy(scores, examples.latency_s, group_codes(examples)[0]).value


def test_a_support_set_changes_only_its_own_tasks_on_its_own_device(attention):
    made, unseen = attention
    first = unseen.task[0]
    support = unseen.take(np.flatnonzero(unseen.task == first)[:8])
    before, after = made.predict(unseen.batch), made.predict(unseen.batch, support)
    assert (before[unseen.task == first] != after[unseen.task == first]).any()
    np.testing.assert_array_equal(before[unseen.task != first], after[unseen.task != first])
    elsewhere = dataclasses.replace(
        support, batch=dataclasses.replace(support.batch, hardware=support.batch.hardware + 1)
    )
    np.testing.assert_array_equal(made.predict(unseen.batch, elsewhere), before)


def test_tasks_of_equal_features_are_told_apart_by_their_hash(attention):
    """Of 1,841 pairs of features 82 are shared by tasks with other times."""
    made, unseen = attention
    own = unseen.take(np.flatnonzero(unseen.task == unseen.task[0]))
    other = dataclasses.replace(reversed_speed(own), task=np.full(len(own), "another", object))
    first, rest = np.arange(8), np.arange(8, len(own))
    both = joined(own.take(first), other.take(first))
    for task in (own, other):
        asked = task.take(rest)
        told = predict_beside(made, asked, both)
        alone = predict_beside(made, asked, task.take(first))
        np.testing.assert_array_equal(told, alone)
    of_own, of_other = (predict_beside(made, task.take(rest), both) for task in (own, other))
    assert (of_own != of_other).any()
    # By features alone nobody can tell whose they are: they are not read.
    queries = own.take(rest).batch
    np.testing.assert_array_equal(made.predict(queries, both), made.predict(queries))


def joined(first: Examples, second: Examples) -> Examples:
    """Two sets of programs with the same features, one after the other."""
    names = [field.name for field in dataclasses.fields(Examples) if field.name != "batch"]
    columns = {n: np.concatenate([getattr(first, n), getattr(second, n)]) for n in names}
    twice = np.tile(np.arange(len(first)), 2)
    return Examples(batch=first.batch.take(twice), **columns)


def test_a_model_is_judged_beside_measured_programs_and_without(attention):
    made, unseen = attention
    turned = reversed_speed(unseen)
    found = judge_beside(made, turned, made.predict(turned.batch), seed=0, counts=(8,))[8]
    beside, alone = (np.mean([g.share for g in each]) for each in (found.beside, found.alone))
    assert beside > alone + 0.1
    assert all(turned.task[row] for row in found.rows) and len(found.rows) == len(found.alone)
    figures = evaluate(made, unseen, unseen, turned).metrics
    assert figures["pca_support8"] == beside and figures["pca_support8_without"] == alone
    assert 0 < figures["pca_support8_gain.low"] <= beside - alone
    assert made.chosen["heed"] in HEED


def test_a_model_that_reads_no_support_set_says_the_same_beside_one(attention):
    unseen = attention[1]
    model = XgbModel.for_effort("quick", 0)
    model.fit(unseen, unseen)
    figures = evaluate(model, unseen, unseen, unseen).metrics
    assert figures["pca_support8"] == figures["pca_support8_without"] > 0.5


def test_a_support_set_moves_predictions_towards_what_was_measured(attention):
    """Without a gradient step: the same queries, told that the order is the other way round.

    Where the head is right, as here, the truth adds noise alone: over four seeds and both halves
    it changed the accuracy by -0.04 to 0.03.
    """
    made, unseen = attention
    rows = np.arange(len(unseen))
    support, rest = unseen.take(rows[rows % 2 == 0]), unseen.take(rows[rows % 2 == 1])
    plain, told = made.predict(rest.batch), made.predict(rest.batch, support)
    lied = made.predict(rest.batch, reversed_speed(support))
    assert min(accuracy(plain, rest), accuracy(told, rest)) > 0.85
    turned = reversed_speed(rest)
    assert accuracy(lied, turned) > accuracy(plain, turned) + 0.1


def test_what_the_head_missed_is_carried_over_to_programs_like_the_measured():
    rng = torch.Generator().manual_seed(0)
    vectors = torch.randn(40, 4, generator=rng)
    slowness, silent = vectors[:, 0] - vectors[:, 1], torch.zeros(40)
    answers = _memory(vectors[:30], silent[:30], slowness[:30]).answer(vectors[30:], silent[30:])
    assert torch.corrcoef(torch.stack([answers, -slowness[30:]]))[0, 1] > 0.8


def test_what_programs_do_not_tell_of_is_not_carried_over():
    rng = torch.Generator().manual_seed(0)
    vectors, slowness = torch.randn(40, 4, generator=rng), torch.randn(30, generator=rng)
    margins = torch.cat([-slowness + 0.01 * torch.randn(30, generator=rng), torch.randn(10)])
    known = _memory(vectors[:30], margins[:30], slowness)
    answers = known.answer(vectors[30:], margins[30:])
    torch.testing.assert_close(answers, known.trust * margins[30:])


def test_a_saved_memory_is_heeded_as_its_weight_says(attention, tmp_path):
    made, unseen = attention
    made.save(tmp_path / "model")
    weights = load_file(tmp_path / "model" / WEIGHTS)
    heeding, deaf = (heeded(weights, heed, made.settings, tmp_path) for heed in (1.0, 0.0))
    batch, support = unseen.batch, unseen.take(np.arange(8))
    assert float(heeding.net.heed) == 1
    assert float(deaf.net.heed) == 0
    assert (heeding.margins(batch, support) != deaf.margins(batch, support)).any()


def heeded(weights, heed, parameters, folder):
    weights["heed"].fill_(heed)
    save_file(weights, folder / WEIGHTS)
    return read(folder, {WEIGHTS}, parameters)


def test_a_support_set_beside_a_larger_one_is_read_as_it_is_alone():
    net = AttentionNet(AttentionParameters(width=8, layers=1), 4, torch.zeros(1, 3))
    queries, support, labels = (torch.randn(2, n, k) for n, k in ((3, 8), (5, 8), (5, LABELS)))
    labels[0, 2:] = torch.nan
    beside = net.recall(queries, support, labels)[0]
    alone = net.recall(queries[:1], support[:1, :2], labels[:1, :2])[0]
    torch.testing.assert_close(beside, alone)


def test_a_device_without_a_head_is_answered_by_the_shared_one(attention):
    """To the last bit; the device that was trained on has a correction of its own."""
    made, unseen = attention
    fitted = made.fitted()

    def shared(batch) -> np.ndarray:
        with torch_threads(), torch.no_grad():
            return fitted.net.head(fitted.net.encode(fitted.scaling(batch))).squeeze(1).numpy()

    np.testing.assert_array_equal(fitted.margins(unseen.batch, None), shared(unseen.batch))
    known = fitted.net.known[0].numpy()
    trained = dataclasses.replace(
        unseen.batch, hardware=np.tile(np.where(known == -1, np.nan, known), (len(unseen), 1))
    )
    assert (fitted.margins(trained, None) != shared(trained)).all()


def test_the_order_of_a_support_set_does_not_matter(attention):
    made, unseen = attention
    support = unseen.take(np.flatnonzero(unseen.task == unseen.task[0])[:9])
    turned = support.take(np.arange(len(support))[::-1].copy())
    np.testing.assert_allclose(
        made.predict(unseen.batch, support), made.predict(unseen.batch, turned), rtol=1e-4
    )


@pytest.mark.slow
def test_a_new_device_gets_a_head_by_fine_tuning(attention):
    made, unseen = attention
    assert len(made._fitted.net.known) == 1
    adapted = made.fine_tune(unseen)
    assert len(adapted._fitted.net.known) == 2
    assert len(made._fitted.net.known) == 1
    assert adapted._fitted.net.device_heads[1].abs().max() > 0


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "net"), [("mlp", MlpNet), ("attention", AttentionNet)])
def test_fine_tuning_reads_each_program_once_and_changes_the_last_block_alone(
    examples, monkeypatch, kind, net
):
    sides = split_examples(examples, "within_task", seed=0)
    source = build(kind, "quick", 0, {"rounds": 1, "width": 32, "batch": 8})
    source.fit(examples.take(sides.train), examples.take(sides.valid))
    before = {name: t.clone() for name, t in source.fitted().net.state_dict().items()}
    read, trunk = [], net.trunk

    def counted(self, inputs):
        read.append(len(inputs))
        return trunk(self, inputs)

    monkeypatch.setattr(net, "trunk", counted)
    measured = examples.take(sides.test)
    tuned = source.fine_tune(measured).fitted().net
    assert sum(read) == len(measured)
    last = {id(p) for p in tuned.last_block()}
    changed = {n for n, p in tuned.named_parameters() if not torch.equal(p, before[n])}
    assert changed == {n for n, p in tuned.named_parameters() if id(p) in last}


def test_an_average_of_the_weights_is_judged_and_kept_but_not_trained_on():
    net, judged = torch.nn.Linear(1, 1, bias=False), []
    watch = mock.Mock(best_epoch=0, is_over=lambda epoch, margins: judged.append(margins))
    best = Best(net, watch, lambda: net.weight.item(), average=0.5)
    for weight in (1.0, 2.0, 4.0):
        torch.nn.init.constant_(net.weight, weight)
        best.follow()
    best.is_over(0)
    assert net.weight.item() == 4
    after_two = 2 / 11 * 1 + 9 / 11 * 2  # the first steps leave the average sooner than by half
    assert judged == [pytest.approx(3 / 12 * after_two + 9 / 12 * 4)]
    best.restore()
    assert net.weight.item() == judged[0]
