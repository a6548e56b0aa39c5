"""What every cost model promises.

from hetfeat.testing.models import ModelConformance

class TestRidge(ModelConformance):
    name = "ridge"
    settings = {"rounds": 1}
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from hetfeat.dataset.splits import split_examples
from hetfeat.errors import DataError
from hetfeat.features.assemble import assemble, batch_of
from hetfeat.features.batch import Examples
from hetfeat.models.base import CostModel
from hetfeat.models.hyperparameters import build
from hetfeat.models.registry import load_model, model_class
from hetfeat.testing import stores

Sides = tuple[Examples, Examples, Examples]
Untrained = Callable[..., CostModel]


def latencies(value: float) -> Callable[[Examples], Examples]:
    """All records with one latency: NaN is a program that failed."""
    return lambda e: dataclasses.replace(e, latency_s=np.full(len(e), value))


NOTHING_TO_LEARN = [lambda e: e.take(np.arange(0)), latencies(1e-3), latencies(np.nan)]


class ModelConformance:
    """The tests. A subclass says the name of its model, one of the table or of a plug-in.

    Attributes:
        name: Name of the model.
        settings: Hyperparameters with which it learns in a second or two, default none.
        rounding: Largest relative difference that rounding explains; 1e-4 by default: sums of a
            network in float32 depend on how many programs are scored at once.
    """

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, Any]] = {}
    rounding: ClassVar[float] = 1e-4

    @pytest.fixture(scope="class")
    @classmethod
    def kind(cls) -> str:
        """The name; override it with parameters to test several."""
        return cls.name

    @pytest.fixture(scope="class")
    @classmethod
    def untrained(cls, kind: str) -> Untrained:
        """Makes one that has learnt nothing yet, of a seed."""
        return lambda seed=0: build(kind, "quick", seed, cls.settings)

    @pytest.fixture(scope="class")
    @classmethod
    def sides(cls, tmp_path_factory: pytest.TempPathFactory) -> Sides:
        """Records to train on, to stop by and to test on."""
        store = stores.make_store(tmp_path_factory.mktemp("records") / "s", tasks=24)
        examples = assemble(store).examples
        split = split_examples(examples, "by_task", 1)
        return examples.take(split.train), examples.take(split.valid), examples.take(split.test)

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, untrained: Untrained, sides: Sides) -> CostModel:
        """One that has learnt."""
        made = untrained()
        made.fit(sides[0], sides[1])
        return made

    def test_scores_are_positive_and_follow_order(self, model: CostModel, sides: Sides) -> None:
        """Float64, and the same whatever comes beside."""
        scores = model.predict(sides[2].batch)
        assert scores.dtype == np.float64
        assert (scores > 0).all()
        backwards = np.arange(len(scores))[::-1].copy()
        turned = model.predict(sides[2].batch.take(backwards))
        np.testing.assert_allclose(turned, scores[::-1], rtol=self.rounding)

    def test_no_programs_have_no_scores(self, model: CostModel) -> None:
        """An empty batch is one."""
        assert model.predict(batch_of([], stores.profile("a"))).shape == (0,)

    def test_calibrated_scores_are_shares(self, model: CostModel, sides: Sides) -> None:
        """Between 0 and 1."""
        estimates = model.calibrate(model.predict(sides[2].batch))
        assert estimates.min() >= 0
        assert estimates.max() <= 1

    def test_same_seed_same_model(
        self, untrained: Untrained, model: CostModel, sides: Sides
    ) -> None:
        """Trained again it gives the same scores, to the last bit."""
        again = untrained()
        again.fit(sides[0], sides[1])
        scores = model.predict(sides[2].batch)
        np.testing.assert_array_equal(again.predict(sides[2].batch), scores)

    def test_a_saved_model_loads_and_is_not_written_over(
        self, model: CostModel, sides: Sides, tmp_path: Path
    ) -> None:
        """The same predictions, hyperparameters and provenance come back."""
        model.save(tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        scores = model.predict(sides[2].batch, sides[1])
        np.testing.assert_array_equal(loaded.predict(sides[2].batch, sides[1]), scores)
        np.testing.assert_array_equal(loaded.calibrate(scores), model.calibrate(scores))
        assert loaded.parameters == model.parameters
        assert (loaded.seen, loaded.seen_anchors) == (model.seen, model.seen_anchors)
        with pytest.raises(DataError, match="an empty folder"):
            model.save(tmp_path / "model")

    def test_fine_tuning_adapts_a_copy(self, model: CostModel, sides: Sides) -> None:
        """Towards what it is shown; the model itself stays as it was."""
        part = sides[2].take(np.flatnonzero(sides[2].device == "a"))
        opposite = dataclasses.replace(part, latency_s=1e-8 / part.latency_s)
        before = model.predict(part.batch)
        adapted = model.fine_tune(opposite)
        np.testing.assert_array_equal(model.predict(part.batch), before)
        valid = np.isfinite(part.latency_s)
        speed = 1 / opposite.latency_s[valid]

        def agreement(scores: Any) -> float:
            return float(np.corrcoef(scores[valid], speed)[0, 1])

        assert agreement(adapted.predict(part.batch)) > agreement(before) + 0.1

    def test_fine_tuning_on_nothing_to_compare_changes_nothing(
        self, model: CostModel, sides: Sides
    ) -> None:
        """One record says nothing."""
        adapted = model.fine_tune(sides[2].take(np.arange(1)))
        assert adapted is not model
        scores = model.predict(sides[2].batch)
        np.testing.assert_array_equal(adapted.predict(sides[2].batch), scores)

    @pytest.mark.parametrize("spoil", NOTHING_TO_LEARN)
    def test_sides_with_nothing_to_learn_are_refused(
        self, untrained: Untrained, sides: Sides, spoil: Callable[[Examples], Examples]
    ) -> None:
        """Empty ones, and those of which no two programs differ."""
        with pytest.raises(DataError, match="a train side"):
            untrained().fit(spoil(sides[0]), sides[1])
        with pytest.raises(DataError, match="a valid side"):
            untrained().fit(sides[0], spoil(sides[1]))

    def test_one_task_is_enough_to_fit(self, untrained: Untrained, sides: Sides) -> None:
        """However little that teaches."""
        one = sides[0].take(np.flatnonzero(sides[0].task == sides[0].task[0]))
        made = untrained()
        made.fit(one, sides[1])
        assert np.isfinite(made.predict(sides[2].batch)).all()

    def test_an_unseen_device_is_scored(self, model: CostModel, sides: Sides) -> None:
        """With figures that no training device had and without others."""
        batch = sides[2].batch.loaded()
        unseen = np.where(np.isnan(batch.hardware), 10, np.nan).astype(np.float32)
        scores = model.predict(dataclasses.replace(batch, hardware=unseen))
        assert (np.isfinite(scores) & (scores > 0)).all()

    def test_programs_without_stores_are_scored(self, model: CostModel) -> None:
        """Other tools' records have none."""
        n = 3
        batch = batch_of(stores.programs(stores.task(1), n, seed=1), stores.profile("a"))
        offsets = np.zeros(n + 1, np.int64)
        none = dataclasses.replace(batch, stores=batch.stores[:0], offsets=offsets)
        assert np.isfinite(model.predict(none)).all()

    def test_an_untrained_model_says_so(self, kind: str, sides: Sides) -> None:
        """Instead of predicting."""
        with pytest.raises(DataError, match="untrained"):
            model_class(kind)().predict(sides[0].batch)
