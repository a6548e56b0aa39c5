"""Hyperparameters: the paper's as defaults, what `--set` takes, and what hpo searches."""

import pytest

from hetfeat.errors import RequestError
from hetfeat.models.hyperparameters import SPACES, Choice, build, space_of
from hetfeat.models.registry import MODELS, model_class
from hetfeat.models.settings import as_text, changed, parsed

TABLE_4 = {"learning_rate": 1e-3, "layers": 3, "heads": 2, "unrolling": 2}
"""What the paper's Table 4 gives one value each."""
BATCHES, EPOCHS = (1, 4, 16, 64, 256), (100, 200, 400)
every_model = pytest.mark.parametrize("name", MODELS)


def test_the_defaults_of_attention_are_the_papers():
    made = model_class("attention").for_effort("standard", 0).parameters
    assert made.items() >= (TABLE_4 | {"batch": 16, "rounds": 200}).items()


def test_hpo_searches_the_papers_table_4():
    space = space_of("attention", "standard")
    assert set(BATCHES) <= set(space["batch"].values)
    assert set(EPOCHS) <= set(space["rounds"].values)
    for name, value in TABLE_4.items():
        at = space[name]
        assert value in at.values if isinstance(at, Choice) else at.low <= value <= at.high, name


@every_model
def test_a_quick_search_keeps_the_rounds_of_its_effort(name):
    assert set(space_of(name, "quick")) == set(SPACES[name]) - {"rounds"}


@every_model
def test_every_hyperparameter_but_the_seed_can_be_set(name):
    defaults = model_class(name).for_effort("quick", 0).parameters
    wanted = {key: value for key, value in defaults.items() if key != "seed"}
    given = [f"{key}={str(value).lower()}" for key, value in wanted.items()]
    found = parsed(name, given)
    assert found == wanted
    assert [type(value) for value in found.values()] == [type(v) for v in wanted.values()]
    assert changed(name, "quick", build(name, "quick", 7, found)) == {}


def test_what_differs_from_the_defaults_is_said():
    values = parsed("mlp", ["lambda_rank=true", "batch=16", "learning_rate=1e-2"])
    assert values == {"lambda_rank": True, "batch": 16, "learning_rate": 0.01}
    made = build("mlp", "standard", 0, values)
    said = as_text(changed("mlp", "standard", made))
    assert said == "learning_rate=0.01,lambda_rank=true"
    assert parsed("mlp", said.split(",")).items() <= values.items()


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("mlp", ["bacth=4"], "hyperparameter of mlp 'bacth'; expected one of rounds, .*'batch'?"),
        ("xgb", ["heads=2"], "hyperparameter of xgb 'heads'; expected one of rounds, patience"),
        ("xgb", ["seed=2"], "choose one of them; --seed has its own"),
        ("xgb", ["max_depth"], "--set 'max_depth'; expected NAME=VALUE"),
        ("xgb", ["max_depth=4", "max_depth=5"], "max_depth twice"),
        ("xgb", ["max_depth=4.5"], "max_depth=4.5; expected a whole number from 1 to 24"),
        ("xgb", ["members=0"], "members=0; expected a whole number from 1 to 100"),
        ("xgb", ["subsample=0"], "subsample=0; expected a number from 0.01 to 1"),
        ("xgb", ["min_child_weight=-1"], r"a number from 0 to 1e\+09"),
        ("xgb", ["stores=flatt"], "--set stores 'flatt'; expected one of flat, sum; did you mean"),
        ("lgbm", ["leaves=1"], "leaves=1; expected a whole number from 2"),
        ("mlp", ["lambda_rank=yes"], "--set lambda_rank 'yes'; expected one of true, false"),
        ("mlp", ["learning_rate=nan"], "learning_rate=nan; expected a number"),
        ("mlp", ["learning_rate=inf"], "learning_rate=inf; expected a number"),
        ("mlp", ["batch="], "batch=; expected a whole number from 1 to"),
        ("mlp", ["batch=1" + 400 * "0"], "expected a whole number from 1 to"),
        ("oracle", ["batch=1"], "model 'oracle'"),
    ],
)
def test_what_cannot_be_set_is_refused(name, given, said):
    with pytest.raises(RequestError, match=said):
        parsed(name, given)


@pytest.mark.parametrize("wrong", [{"width": 9}, {"width": 64, "heads": 3}])
def test_a_width_that_cannot_be_shared_is_refused(wrong):
    with pytest.raises(RequestError, match="an even width that the heads divide"):
        build("attention", "quick", 0, wrong)
