"""XGBoost as an engine."""

import dataclasses
import json
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xgboost

from hetfeat.cluster import host_of
from hetfeat.features.batch import Batch, Examples, Floats
from hetfeat.features.out_of_core import room_bytes, scratch_folder
from hetfeat.models.aggregate import hardware_columns, table_names, table_of
from hetfeat.models.base import OnEpoch
from hetfeat.models.early_stopping import EarlyStopping
from hetfeat.models.engines.on_workers import are_on_cluster, train_on_workers
from hetfeat.models.engines.trees import Doubles, RowObjective, Rows, most_important, rows_of
from hetfeat.models.gbdt_parameters import GbdtParameters
from hetfeat.models.training_set import Side

if TYPE_CHECKING:
    from distributed import Client

BOOSTER = "booster.ubj"
DAMAGED: tuple[type[Exception], ...] = (xgboost.core.XGBoostError,)


@dataclass(frozen=True)
class XgbTrees:
    """Trees, and the table they read."""

    booster: Any
    stores: str

    def margins(self, batch: Batch, support: Examples | None) -> Doubles:
        """The margin of each program; a support set is not used."""
        table = table_of(batch, self.stores)
        if not len(table.rows):
            return np.zeros(len(batch))
        return table.sums(self.booster.inplace_predict(table.rows, predict_type="margin"))

    def write(self, folder: Path) -> None:
        """Writes XGBoost's binary JSON."""
        self.booster.save_model(folder / BOOSTER)

    def importance(self) -> dict[str, float]:
        """Total gain of each column that a tree splits on."""
        names = table_names(self.stores)
        gains = self.booster.get_score(importance_type="total_gain")
        return {names[int(key[1:])]: gain for key, gain in gains.items()}


def train(settings: GbdtParameters, train: Side, valid: Side, on_epoch: OnEpoch | None) -> XgbTrees:
    """Boosts until the valid side improves no more; beyond memory, from quantised files.

    Of features on a cluster, all of its workers do so together. Each member of a bag has draws of
    its own, and stops by itself.
    """
    boosters = []
    for number in range(settings.members):
        own = dataclasses.replace(settings, seed=settings.seed * settings.members + number)
        told = partial(_told_later, on_epoch, number * settings.rounds) if on_epoch else None
        boosters.append(_member(own, train, valid, told))
    booster = _between_devices(_mean_of(boosters), train, settings.stores)
    return XgbTrees(booster, settings.stores)


def _member(settings: GbdtParameters, train: Side, valid: Side, on_epoch: OnEpoch | None) -> Any:
    if not are_on_cluster(train):
        return _grow(settings, None, train, valid, on_epoch)
    raw = train_on_workers(train, valid, on_epoch, _meet, partial(_grow_together, settings))
    return xgboost.Booster(model_file=bytearray(raw))


def _told_later(on_epoch: OnEpoch, before: int, epoch: int, figures: dict[str, float]) -> None:
    """Tells of a round whose number counts those that the members before it may have had."""
    on_epoch(before + epoch, figures)


def _mean_of(boosters: Sequence[Any]) -> Any:
    """One booster of all trees, whose margin is the mean of the boosters'."""
    if len(boosters) == 1:
        return boosters[0]
    models = [json.loads(booster.save_raw("json")) for booster in boosters]
    parts = [model["learner"]["gradient_booster"]["model"] for model in models]
    trees = [tree for part in parts for tree in part["trees"]]
    for number, tree in enumerate(trees):
        tree["id"] = number
        tree["base_weights"] = [weight / len(boosters) for weight in tree["base_weights"]]
        tree["split_conditions"] = [
            value / len(boosters) if child < 0 else value  # of a leaf it is what it adds
            for value, child in zip(tree["split_conditions"], tree["left_children"], strict=True)
        ]
    parts[0]["trees"], parts[0]["tree_info"] = trees, [0] * len(trees)
    parts[0]["iteration_indptr"] = list(range(len(trees) + 1))
    parts[0]["gbtree_model_param"]["num_trees"] = str(len(trees))
    return xgboost.Booster(model_file=bytearray(json.dumps(models[0]).encode()))


def _meet(client: "Client", workers: Sequence[str]) -> Sequence[Any]:
    """XGBoost's tracker, in this process, by which the workers find each other."""
    from distributed.utils import get_ip
    from xgboost.tracker import RabitTracker

    address: str = client.scheduler_info(n_workers=0)["address"]
    host_ip = get_ip(host_of(address))
    tracker = RabitTracker(n_workers=len(workers), host_ip=host_ip, sortby="task")
    tracker.start()
    threading.Thread(target=tracker.wait_for, daemon=True).start()
    return [tracker.worker_args()] * len(workers)


def _grow_together(
    settings: GbdtParameters,
    met: Any,
    threads: int,
    train: Side,
    valid: Side,
    on_epoch: OnEpoch | None,
) -> bytes:
    """A worker's part: the same as alone, but that the libraries talk to each other."""
    from xgboost.dask import CommunicatorContext

    with xgboost.config_context(verbosity=0), CommunicatorContext(**met):
        return bytes(_grow(settings, threads, train, valid, on_epoch).save_raw("ubj"))


def _grow(
    settings: GbdtParameters,
    most_threads: int | None,
    train: Side,
    valid: Side,
    on_epoch: OnEpoch | None,
) -> Any:
    watch = EarlyStopping(valid, settings.point_weight, settings.patience, on_epoch)
    learn = rows_of(train.examples.batch, settings.stores)
    check = rows_of(valid.examples.batch, settings.stores)
    objective = RowObjective(train.objective(settings.point_weight), learn)

    def boosted(matrix: Any, judged: Any) -> Any:
        callback = _Callback(watch, check, judged)
        booster = _boost(
            settings, objective, matrix, settings.rounds, [callback], None, most_threads
        )
        return booster[: watch.best_epoch + 1]

    if learn.in_memory:
        return boosted(xgboost.DMatrix(learn.whole()), xgboost.DMatrix(check.whole()))
    if _bins_fit(learn, check):
        matrix = xgboost.QuantileDMatrix(_Parts(learn, learn.empty))
        return boosted(matrix, xgboost.QuantileDMatrix(_Parts(check, learn.empty), ref=matrix))
    with tempfile.TemporaryDirectory(dir=scratch_folder(), prefix="hetfeat-") as folder:
        return _from_files(learn, check, Path(folder), boosted)


def _bins_fit(learn: Rows, check: Rows, share: float = 1 / 8) -> bool:
    """Whether bins take at most this share of the free memory; making them took four times that.

    A value's bin is a byte, and four where some values are missing.
    """
    values = sum(map(sum, (learn.sizes, check.sizes))) * len(learn.empty)
    return values * (4 if learn.has_gaps or check.has_gaps else 1) <= room_bytes(share)


def _from_files(learn: Rows, check: Rows, folder: Path, boosted: Callable[[Any, Any], Any]) -> Any:
    """A function of its own: the matrices, which remove their files, must go before the folder."""
    empty = learn.empty
    matrix = xgboost.ExtMemQuantileDMatrix(_Parts(learn, empty, folder / "train"))
    judged = xgboost.ExtMemQuantileDMatrix(_Parts(check, empty, folder / "valid"), ref=matrix)
    return boosted(matrix, judged)


def fine_tune(settings: GbdtParameters, fitted: XgbTrees, records: Side) -> XgbTrees:
    """A few more rounds on other records, in memory."""
    rows = rows_of(records.examples.batch, fitted.stores)
    objective = RowObjective(records.objective(settings.point_weight), rows)
    chosen = most_important(fitted.importance(), fitted.stores, settings.fine_tune_columns)
    matrix = xgboost.DMatrix(rows.whole(), feature_weights=chosen)
    # A tree draws columns by their weights: as many as this, none of weight 0 is among them.
    share = settings.columns_per_tree * float(chosen.mean())
    settings = dataclasses.replace(settings, columns_per_tree=share)
    booster = _boost(settings, objective, matrix, settings.fine_tune_rounds, [], fitted.booster)
    return XgbTrees(booster, fitted.stores)


def read(folder: Path, files: set[str], settings: GbdtParameters) -> XgbTrees:
    """The trees of a folder."""
    if BOOSTER not in files:
        raise KeyError(BOOSTER)
    return trees_of(folder / BOOSTER, settings)


def trees_of(path: Path, settings: GbdtParameters) -> XgbTrees:
    """The trees of a file in XGBoost's binary JSON."""
    return XgbTrees(xgboost.Booster(model_file=path), settings.stores)


def _boost(
    settings: GbdtParameters,
    objective: RowObjective,
    matrix: Any,
    rounds: int,
    callbacks: list[Any],
    start: Any,
    most_threads: int | None = None,
) -> Any:
    # Trees that go on from others do not seed XGBoost's one generator, unless each round does.
    seeding = {"seed_per_iteration": start is not None}
    parameters = settings.for_engine(len(objective.rows.program)) | seeding
    parameters["nthread"] = min(parameters["nthread"], most_threads or parameters["nthread"])
    return xgboost.train(
        parameters,
        matrix,
        rounds,
        obj=lambda margins, _: objective.gradient(margins),
        xgb_model=start,
        callbacks=callbacks,
        verbose_eval=False,
    )


def _between_devices(booster: Any, side: Side, stores: str) -> Any:
    """The same trees, their thresholds of hardware columns midway between devices that they divide.

    XGBoost puts a threshold at the value of the greater one, LightGBM in between: a new device is
    then taken for the lesser one, whichever it is nearer to.
    """
    hardware = np.concatenate(side.examples.batch.each(_devices))
    values = {
        column: np.unique(hardware[:, i][np.isfinite(hardware[:, i])])
        for i, column in enumerate(hardware_columns(stores))
    }
    model = json.loads(booster.save_raw("json"))
    for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
        thresholds = tree["split_conditions"]
        for node, (column, child) in enumerate(
            zip(tree["split_indices"], tree["left_children"], strict=True)
        ):
            if child < 0 or column not in values:
                continue
            above = np.searchsorted(values[column], np.float32(thresholds[node]))
            if 0 < above < len(values[column]):
                thresholds[node] = float(values[column][above - 1 : above + 1].mean())
    return xgboost.Booster(model_file=bytearray(json.dumps(model).encode()))


def _devices(batch: Batch) -> Floats:
    return np.unique(batch.hardware, axis=0)


class _Parts(xgboost.DataIter):
    """How XGBoost reads rows a part at a time; what it makes of them goes to `cache`, or stays.

    Columns `empty`, which no split can read, are zeros: a row that lacks nothing takes less.
    """

    def __init__(self, rows: Rows, empty: npt.NDArray[np.bool_], cache: Path | None = None) -> None:
        super().__init__(cache_prefix=str(cache) if cache else None)
        self._rows, self._empty, self._next = rows, empty, 0

    def next(self, input_data: Callable[..., Any]) -> bool:
        """Gives the next part; False after the last."""
        if self._next == len(self._rows.parts):
            return False
        rows = self._rows.parts[self._next]()
        rows[:, self._empty] = 0
        input_data(data=rows)
        self._next += 1
        return True

    def reset(self) -> None:
        """Begins again."""
        self._next = 0


class _Callback(xgboost.callback.TrainingCallback):
    """The base class of XGBoost is its only way to be told of rounds."""

    def __init__(self, watch: EarlyStopping, rows: Rows, matrix: Any) -> None:
        self.watch, self.rows, self.matrix = watch, rows, matrix

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Whether to stop."""
        margins = self.rows.sums(model.predict(self.matrix, output_margin=True))
        return self.watch.is_over(epoch, margins)
