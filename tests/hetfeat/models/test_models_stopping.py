"""When a training ends, which of its rounds it keeps, and what its columns are worth to it."""

from types import SimpleNamespace

import numpy as np
import pytest
import stores

from hetfeat.dataset.splits import split_examples
from hetfeat.features import columns
from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.models import permutation
from hetfeat.models.hyperparameters import build
from hetfeat.models.permutation import permutation_importance
from hetfeat.models.training_set import side_of

PATIENCE = 5
ROUNDS = 400
SETTINGS = {
    "xgb": {"learning_rate": 0.3},
    "lgbm": {"learning_rate": 0.3},
    "mlp": {"width": 32, "batch": 4, "learning_rate": 3e-3},
}


@pytest.fixture(scope="module")
def sides(tmp_path_factory) -> tuple[Examples, Examples]:
    examples = assemble(
        stores.make_store(tmp_path_factory.mktemp("records") / "s", tasks=16)
    ).examples
    split = split_examples(examples, "by_task", 0)
    return examples.take(split.train), examples.take(split.valid)


@pytest.mark.parametrize("name", SETTINGS)
def test_training_ends_when_patience_does_and_keeps_the_best_round(name, sides):
    train, valid = sides
    losses: list[float] = []
    made = build(name, "quick", 0, {"rounds": ROUNDS, "patience": PATIENCE, **SETTINGS[name]})
    made.fit(train, valid, lambda _, figures: losses.append(figures["valid_loss"]))
    best = int(np.argmin(losses))
    assert len(losses) == best + PATIENCE + 1 < ROUNDS
    objective = side_of(valid, train, seed=0).objective(made.parameters["point_weight"])
    kept = objective.loss(np.log(made.predict(valid.batch)))
    assert kept == pytest.approx(losses[best], rel=1e-4)
    assert losses[-1] > losses[best] * 1.001


LEARNABLE = stores.LEARNABLE[0]


def by_one_column() -> SimpleNamespace:
    """Scores programs by the sum of one column over their stores."""

    def predict(batch, support=None):
        return np.add.reduceat(batch.stores[:, LEARNABLE], batch.offsets[:-1])

    return SimpleNamespace(predict=predict)


def test_only_the_column_that_a_model_reads_is_worth_anything(sides):
    before = sides[0].batch.stores.copy()
    worth = permutation_importance(by_one_column(), sides[0])
    assert set(worth) == {f"store.{columns.STORE[LEARNABLE].name}"}
    np.testing.assert_array_equal(sides[0].batch.stores, before)


def test_programs_are_few_and_of_whole_tasks(sides):
    drawn = []

    def predict(batch, support=None):
        drawn.append(batch)
        return np.ones(len(batch))

    permutation_importance(SimpleNamespace(predict=predict), sides[0], most_programs=16)
    assert {len(batch) for batch in drawn} == {16}
    of = np.nan_to_num(np.hstack([drawn[0].task, drawn[0].hardware]))
    assert len(np.unique(of, axis=0)) == 2


def test_a_network_that_reads_primitives_rests_on_what_they_say(tmp_path):
    examples = assemble(stores.make_traced_store(tmp_path / "s", tasks=6, per_task=24)).examples
    made = build("mlp", "quick", 0, {"rounds": 30, "width": 32, "batch": 4})
    made.fit(examples, examples)
    worth = permutation_importance(made, examples)
    assert worth[permutation.PRIMITIVES] > 0.05
    assert not any(name.startswith("store.") for name in worth)


def test_what_a_network_learnt_is_what_the_latency_follows_from(sides):
    made = build("mlp", "quick", 0, {"rounds": 60, "width": 32, "batch": 4})
    made.fit(*sides)
    worth = permutation_importance(made, sides[1])
    learnable = {f"store.{columns.STORE[i].name}" for i in stores.LEARNABLE}
    assert learnable >= set(sorted(worth, key=worth.__getitem__)[-3:])
