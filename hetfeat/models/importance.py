"""Which features a cost model rests on, three ways that do not share a weakness.

- `gain`: the share of the loss that a boosted model's splits on the column took away. It is of the
  training side, and divides what two correlated columns say between them by chance.
- `permutation`: how much PCA falls on held-out records when the column is shuffled among them. Two
  columns that say the same can stand in for one another, and both look useless.
- `label_information` and `latency_information`: mutual information, in nats, with y = best latency
  of the task / latency, and with the logarithm of the latency itself. They need no model, and see
  no combination of columns. What is the same for all programs of a task cannot order them: its
  information on y is about none, that on the latency may be much.
"""

from dataclasses import asdict, dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from hetfeat.features.batch import Examples
from hetfeat.models.aggregate import flat_features, table_names
from hetfeat.models.engines.xgb import XgbTrees
from hetfeat.models.gbdt import XgbModel
from hetfeat.models.labels import best_latencies, group_codes, labels
from hetfeat.models.metrics import pairwise_accuracy
from hetfeat.models.permutation import falls


@dataclass(frozen=True)
class Importance:
    """A column of `flat_features`; see the module for what the figures are."""

    column: str
    gain: float
    permutation: float
    label_information: float
    latency_information: float

    def to_dict(self) -> dict[str, str | float]:
        """The figures by name."""
        return asdict(self)


def importances(
    model: XgbModel,
    train: Examples,
    test: Examples,
    seed: int = 0,
    most_records: int = 4000,
    permuted: int = 60,
    most_tested: int = 50_000,
) -> list[Importance]:
    """The importance of every column, the greatest gain first.

    Args:
        model: Model that was fitted on `train`.
        train: Examples that the mutual information is computed on.
        test: Held-out examples, for the permutations.
        seed: Seed of the shuffles and of the records drawn; 0 by default.
        most_records: Most records for mutual information, whose cost grows faster than the records;
            4000 by default.
        permuted: Columns of the greatest gain that are permuted; 60 by default. A column without a
            split cannot matter.
        most_tested: Held-out records, of whole tasks, from which on no more tasks are permuted;
            50,000 by default.
    """
    names, gains = table_names("flat"), model.importance()
    total = sum(gains.values()) or 1.0
    order = sorted(names, key=lambda name: -gains.get(name, 0.0))
    some = whole_tasks(test, most_tested, seed)
    lost = _falls(model, some, [name for name in order if name in gains][:permuted], seed)
    on_label, on_latency = _information(train, seed, most_records)
    position = {name: i for i, name in enumerate(names)}
    return [
        Importance(
            name,
            gains.get(name, 0.0) / total,
            lost.get(name, 0.0),
            float(on_label[position[name]]),
            float(on_latency[position[name]]),
        )
        for name in order
    ]


def whole_tasks(examples: Examples, most: int, seed: int) -> Examples:
    """Examples of tasks drawn at random, in their order, until they are as many; or all."""
    if len(examples) <= most:
        return examples
    names, task, sizes = np.unique(
        examples.task.astype(str), return_inverse=True, return_counts=True
    )
    order = np.random.default_rng(seed).permutation(len(names))
    before = np.cumsum(sizes[order]) - sizes[order]
    return examples.take(np.flatnonzero(np.isin(task, order[before < most])))


def _falls(model: XgbModel, test: Examples, names: list[str], seed: int) -> dict[str, float]:
    """By how much PCA falls when each of the columns is shuffled."""
    table, groups = flat_features(test.batch.loaded()), group_codes(test)[0]
    columns = table_names("flat")
    trees = cast(XgbTrees, model.fitted())

    def pca() -> float:
        margins = trees.booster.inplace_predict(table, predict_type="margin")
        return pairwise_accuracy(margins, test.latency_s, groups).value

    return falls({name: table[:, columns.index(name)] for name in names}, pca, seed)


def _information(
    train: Examples, seed: int, most_records: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    from sklearn.feature_selection import mutual_info_regression

    valid = np.flatnonzero(np.isfinite(train.latency_s))
    drawn = np.random.default_rng(seed).permutation(valid)[:most_records]
    some = train.take(np.sort(drawn))
    table = np.nan_to_num(flat_features(some.batch.loaded()), nan=-1.0)
    y = labels(some, best_latencies(train))
    # The estimate takes the neighbours of a constant for those of pure noise.
    varies = np.ptp(table, axis=0) > 0
    on_label, on_latency = np.zeros((2, table.shape[1]))
    for found, target in ((on_label, y), (on_latency, np.log(some.latency_s))):
        found[varies] = mutual_info_regression(table[:, varies], target, random_state=seed)
    return on_label, on_latency
