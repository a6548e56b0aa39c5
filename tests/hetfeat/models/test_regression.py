"""What a support set says of programs like the measured ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetfeat.models.engines.regression import correct_margins

MEASURED = 30


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(60, 4))


def answers(vectors, slowness, margins=None):
    """Margins of the programs that were not measured."""
    margins = np.zeros(len(vectors)) if margins is None else margins
    measured, asked = slice(None, MEASURED), slice(MEASURED, None)
    return correct_margins(
        margins[asked], vectors[asked], margins[measured], vectors[measured], slowness[measured]
    )


def agreement(a, b):
    return np.corrcoef(a, b)[0, 1]


def test_what_the_head_missed_is_carried_over_to_programs_like_the_measured(vectors):
    slowness = vectors[:, 0] - vectors[:, 1]
    assert agreement(answers(vectors, slowness), -slowness[MEASURED:]) > 0.8


def test_a_column_counts_for_the_same_in_whatever_unit_it_is(vectors):
    slowness = vectors[:, 0] - vectors[:, 1]
    scaled = vectors * [1, 1, 1000, 1e-3]
    np.testing.assert_allclose(answers(scaled, slowness), answers(vectors, slowness), rtol=1e-6)


def test_only_the_order_of_latencies_counts(vectors):
    slowness = vectors[:, 0] - vectors[:, 1]
    slowest = np.argmax(slowness[:MEASURED])
    failed = slowness.copy()
    failed[slowest] = np.inf
    np.testing.assert_array_equal(answers(vectors, failed), answers(vectors, slowness))
    np.testing.assert_array_equal(answers(vectors, slowness**3), answers(vectors, slowness))


def test_what_programs_do_not_tell_of_leaves_the_order_of_the_head(vectors):
    rng = np.random.default_rng(1)
    slowness = rng.normal(size=60)
    margins = -slowness + 0.001 * rng.normal(size=60)
    assert agreement(answers(vectors, slowness, margins), margins[MEASURED:]) > 0.99


def test_a_head_that_was_wrong_is_turned_round(vectors):
    slowness = vectors @ [1, 2, 0, 0]
    assert agreement(answers(vectors, slowness, slowness), -slowness[MEASURED:]) > 0.9


@given(st.integers(1, 3), st.booleans())
def test_few_and_equal_programs_change_no_order(count, equal):
    rng = np.random.default_rng(2)
    vectors, margins = rng.normal(size=(count, 4)), rng.normal(size=5)
    slowness = np.zeros(count) if equal or count == 1 else np.full(count, np.inf)
    found = correct_margins(margins, rng.normal(size=(5, 4)), np.zeros(count), vectors, slowness)
    np.testing.assert_array_equal(found, margins)
