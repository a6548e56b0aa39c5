"""LightGBM as an engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np

from hetfeat.cluster import free_port, host_of
from hetfeat.features.batch import Batch, Examples, Floats
from hetfeat.models.aggregate import table_names, table_of
from hetfeat.models.base import OnEpoch
from hetfeat.models.early_stopping import EarlyStopping
from hetfeat.models.engines.on_workers import are_on_cluster, train_on_workers
from hetfeat.models.engines.trees import Doubles, RowObjective, Rows, most_important, rows_of
from hetfeat.models.gbdt_parameters import LgbmParameters
from hetfeat.models.training_set import Side

if TYPE_CHECKING:
    from distributed import Client

BOOSTER = "booster.txt"
DAMAGED: tuple[type[Exception], ...] = (lightgbm.basic.LightGBMError,)


@dataclass(frozen=True)
class LgbmTrees:
    """Trees, and the table they read."""

    booster: Any
    stores: str

    def margins(self, batch: Batch, support: Examples | None) -> Doubles:
        """The margin of each program; a support set is not used."""
        table = table_of(batch, self.stores)
        if not len(table.rows):
            return np.zeros(len(batch))
        return table.sums(self.booster.predict(table.rows, raw_score=True))

    def write(self, folder: Path) -> None:
        """Writes LightGBM's text."""
        self.booster.save_model(folder / BOOSTER)

    def importance(self) -> dict[str, float]:
        """Total gain of each column that a tree splits on."""
        gains = self.booster.feature_importance("gain").tolist()
        named = zip(table_names(self.stores), gains, strict=True)
        return {name: gain for name, gain in named if gain > 0}


def train(
    settings: LgbmParameters,
    train: Side,
    valid: Side,
    on_epoch: OnEpoch | None,
    sample_rows: int = 50_000,
) -> LgbmTrees:
    """Boosts until the valid side improves no more; on a cluster, all workers do so together.

    Args:
        settings: Hyperparameters of the model.
        train: Examples that are learnt from.
        valid: Examples that end the training.
        on_epoch: Function called after each round; None for none.
        sample_rows: Rows to choose bins by, beyond memory; 50,000 by default: LightGBM holds them
            three times, as float64.
    """
    if are_on_cluster(train):
        grow = partial(_grow_together, settings, sample_rows)
        raw = train_on_workers(train, valid, on_epoch, _meet, grow)
        booster = lightgbm.Booster(model_str=raw.decode())
    else:
        booster = _grow(settings, sample_rows, {}, train, valid, on_epoch)
    return LgbmTrees(booster, settings.stores)


def _meet(client: "Client", workers: Sequence[str]) -> Sequence[Any]:
    """Each worker's addresses of all, and its own port."""
    if len(workers) == 1:
        return [{}]
    ports = client.run(free_port, workers=list(workers))
    machines = ",".join(f"{host_of(worker)}:{ports[worker]}" for worker in workers)
    network = {"machines": machines, "num_machines": len(workers), "tree_learner": "data"}
    return [network | {"local_listen_port": ports[worker]} for worker in workers]


def _grow_together(
    settings: LgbmParameters,
    sample_rows: int,
    met: dict[str, Any],
    threads: int,
    train: Side,
    valid: Side,
    on_epoch: OnEpoch | None,
) -> bytes:
    """A worker's part: the same as alone, but that the libraries talk to each other."""
    alone = settings.for_engine(len(train.examples))["num_threads"]
    own = met | {"num_threads": min(threads, alone)}
    booster = _grow(settings, sample_rows, own, train, valid, on_epoch)
    return str(booster.model_to_string()).encode()


def _grow(
    settings: LgbmParameters,
    sample_rows: int,
    own: dict[str, Any],
    train: Side,
    valid: Side,
    on_epoch: OnEpoch | None,
) -> Any:
    watch = EarlyStopping(valid, settings.point_weight, settings.patience, on_epoch)
    learn = rows_of(train.examples.batch, settings.stores)
    check = rows_of(valid.examples.batch, settings.stores)
    objective = RowObjective(train.objective(settings.point_weight), learn)
    sample = {} if learn.in_memory else {"bin_construct_sample_cnt": sample_rows}
    data = lightgbm.Dataset(_data(learn), free_raw_data=False)
    booster = lightgbm.train(
        settings.for_engine(len(learn.program)) | sample | own | _custom(objective),
        data,
        settings.rounds,
        valid_sets=[lightgbm.Dataset(_data(check), reference=data)],
        feval=_loss_of(watch, check),
        callbacks=[lightgbm.early_stopping(settings.patience, verbose=False)],
    )
    if "machines" in own:
        booster.free_network()
    return _cut(booster, watch.best_epoch + 1)


def fine_tune(settings: LgbmParameters, fitted: LgbmTrees, records: Side) -> LgbmTrees:
    """A few more rounds on other records, in memory."""
    rows = rows_of(records.examples.batch, fitted.stores)
    objective = RowObjective(records.objective(settings.point_weight), rows)
    chosen = most_important(fitted.importance(), fitted.stores, settings.fine_tune_columns)
    factors = {"feature_contri": chosen.tolist()}  # of a column's gain: 0 is never split on
    booster = lightgbm.train(
        settings.for_engine(len(rows.program)) | factors | _custom(objective),
        lightgbm.Dataset(rows.whole(), free_raw_data=False),
        settings.fine_tune_rounds,
        init_model=fitted.booster,
    )
    return LgbmTrees(_cut(booster, -1), fitted.stores)


def read(folder: Path, files: set[str], settings: LgbmParameters) -> LgbmTrees:
    """The trees of a folder."""
    if BOOSTER not in files:
        raise KeyError(BOOSTER)
    return LgbmTrees(lightgbm.Booster(model_file=folder / BOOSTER), settings.stores)


def _custom(objective: RowObjective) -> dict[str, Any]:
    return {"objective": lambda margins, _: objective.gradient(margins)}


def _data(rows: Rows) -> Any:
    """What LightGBM makes bins of: a table, or parts, of which it keeps the bins alone."""
    if rows.in_memory:
        return rows.whole()
    read = lru_cache(maxsize=1)(lambda i: rows.parts[i]())
    return [_Part(size, partial(read, i)) for i, size in enumerate(rows.sizes)]


class _Part(lightgbm.Sequence):
    """How LightGBM reads a part: single rows, ascending, to choose bins by, then all at once.

    It takes single rows as float64 only.
    """

    def __init__(self, size: int, read: Callable[[], Floats]) -> None:
        self._size, self._read = size, read
        self.batch_size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Doubles:
        rows: Doubles = self._read()[index].astype(np.float64)
        return rows


def _loss_of(watch: EarlyStopping, rows: Rows) -> Any:
    """Tells the watch of each round; LightGBM itself stops by what is returned."""
    epoch = -1

    def loss(margins: Doubles, data: Any) -> tuple[str, float, bool]:
        nonlocal epoch
        epoch += 1
        watch.is_over(epoch, rows.sums(margins))
        return "loss", watch.loss, False

    return loss


def _cut(booster: Any, rounds: int) -> Any:
    """The first rounds as a booster of its own, without the training data."""
    return lightgbm.Booster(model_str=booster.model_to_string(num_iteration=rounds))
