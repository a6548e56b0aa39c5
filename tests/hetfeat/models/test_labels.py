"""What models are trained to say, and how what they say becomes a share of the best."""

import numpy as np
import pytest
import stores
from hypothesis import given, settings
from hypothesis import strategies as st

from hetfeat.features.assemble import assemble
from hetfeat.features.batch import Examples
from hetfeat.models.calibration import fit_calibration
from hetfeat.models.labels import best_latencies, labels


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> Examples:
    return assemble(stores.make_store(tmp_path_factory.mktemp("records") / "s", tasks=3)).examples


def test_labels_use_the_best_of_the_examples_named_only(examples):
    part = examples.take(np.flatnonzero(examples.task == stores.task(0).hash))
    y = labels(part, best_latencies(part))
    failed = np.isnan(part.latency_s)
    assert (y[failed] == 0).all()
    assert failed.sum() == 2
    for device in ("a", "b"):
        assert y[part.device == device].max() == 1
    slower = part.take(np.flatnonzero(part.latency_s > np.nanmin(part.latency_s) * 1.2))
    assert labels(slower, best_latencies(slower)).max() == 1


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(0, 1)), min_size=1))
def test_calibration_never_falls(points):
    scores, y = (np.array(column) for column in zip(*points, strict=True))
    estimates = fit_calibration(scores, y)(np.sort(scores))
    assert (np.diff(estimates) >= -1e-12).all()
    assert y.min() - 1e-9 <= estimates.min()
    assert estimates.max() <= y.max() + 1e-9
