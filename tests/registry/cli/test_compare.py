"""What `hetfeat compare` prints for people."""

import pytest

from registry.cli.compare import _as_text, _judged


@pytest.mark.parametrize(
    ("metric", "figures", "better", "best"),
    [
        ("pca", [0.83, 0.81], "higher", "first"),
        ("valid.top1", [0.6, 0.7], "higher", "second"),
        ("rmse", [0.2, 0.1], "lower", "second"),
        ("latency_ms", [3.0, None], "lower", None),
        ("train_s", [3.0, 3.0], "lower", None),
        ("pca_new_tasks", [0.7, 0.9], "higher", "second"),
        ("model.columns_per_tree", [1.0, 0.5], None, None),
    ],
)
def test_the_winner_and_the_direction_of_a_metric(metric, figures, better, best):
    assert _judged(metric, figures, ["first", "second"]) == {"better is": better, "best": best}


def test_the_table_says_both():
    value = {
        "columns": ["models:/m/1", "models:/m/2"],
        "metrics": {"pca": [0.83, 0.81]},
        "parameters": {"seed": ["0", "1"]},
    }
    head, row = _as_text(value).splitlines()[:2]
    assert head.endswith("better is  best")
    assert row.split() == ["pca", "0.83", "0.81", "higher", "models:/m/1"]
