"""Names of runs tell them apart in MLflow's lists."""

import pytest

from registry.tracking.command_run import MOST_CHARACTERS, run_name


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"seed": 0, "effort": "quick"}, "train xgb seed=0 effort=quick"),
        ({"holdout": ("a", "b"), "pruned": True}, "train xgb holdout=a,b pruned"),
        ({"holdout": (), "pruned": False, "trials": None, "network": ""}, "train xgb"),
        ({"trials": 0, "batch": (1, 8)}, "train xgb trials=0 batch=1,8"),
        ({"set": ("eta=0.1", "max_depth=6")}, "train xgb set=eta=0.1,max_depth=6"),
    ],
)
def test_a_name_tells_what_was_set(settings, told):
    assert run_name("train", "xgb", **settings) == told


def test_a_long_name_fits_into_the_database():
    name = run_name("collect", ",".join(["resnet18"] * 100))
    assert len(name) == MOST_CHARACTERS and name.startswith("collect ")


def test_a_run_of_training_is_told_from_another_by_seed_and_settings(monkeypatch):
    from registry.jobs import train

    names = []

    def tracked_run(name, tags):
        names.append(name)
        raise InterruptedError

    monkeypatch.setattr(train, "check_signing_key", lambda: None)
    monkeypatch.setattr(
        train, "load_data", lambda *_, **__: type("Data", (), {"family": "cpu-x86"})
    )
    monkeypatch.setattr(train.command_run, "tracked_run", tracked_run)
    for seed, settings in ((0, {}), (1, {}), (0, {"max_depth": 4})):
        request = train.TrainingRequest(
            None, None, "xgb", "by_task", (), "quick", seed, settings=settings
        )
        with pytest.raises(InterruptedError):
            train.train_and_register(request)
    assert len(set(names)) == 3
    assert names[0] == "train xgb by_task cpu-x86 effort=quick seed=0"
