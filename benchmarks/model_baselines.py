"""What others have, and what a second measurement would say, judged like our own models.

TVM's models take tuning candidates; here they get the per-store features of the records, through
the same private methods that their own `update` and `predict` call.
"""

import logging
import random
from functools import partial
from typing import ClassVar
from unittest import mock

import numpy as np
from tlp import Tlp

from hetfeat.dataset.store import RecordStore
from hetfeat.features.batch import Batch, Examples
from hetfeat.models.calibration import Calibration, fit_calibration
from hetfeat.models.labels import best_latencies, group_codes, labels
from hetfeat.models.metrics import by_group, pairwise_accuracy

FAILED_S = 1e10
"""What TVM takes for the latency of a failed program."""


class TvmModel:
    """As much of the contract of a cost model as judging it needs.

    `settings` are hyperparameters in TVM's names; those left out are TVM's defaults, which
    `shipped` has of those that are searched.
    """

    shipped: ClassVar[dict] = {}

    def __init__(self, seed: int, **settings) -> None:
        self.seed, self.settings = seed, settings
        self.curve: Calibration | None = None

    def fit(self, train: Examples, valid: Examples) -> None:
        """Learns from `train` as TVM does; `valid` only calibrates."""
        random.seed(self.seed)
        np.random.seed(self.seed)
        groups = list(by_group(group_codes(train)[0]))
        costs = np.nan_to_num(train.latency_s, nan=FAILED_S)
        self.learn([(features_of(train.batch, rows), costs[rows]) for rows in groups])
        y = labels(valid, best_latencies(train, valid))
        self.curve = fit_calibration(self.predict(valid.batch), y)

    def calibrate(self, scores):
        return self.curve(scores)

    def predict(self, batch: Batch, support=None):
        return self.score(features_of(batch, np.arange(len(batch)))).astype(np.float64)


class TvmXgb(TvmModel):
    """`XGBModel`: pack-sum of squared errors, stopped by its own training error."""

    shipped: ClassVar[dict] = {
        "max_depth": 10,
        "gamma": 0.001,
        "min_child_weight": 0.0,
        "eta": 0.2,
        "early_stopping_rounds": 50,
    }

    def learn(self, groups) -> None:
        from tvm.s_tir.meta_schedule.cost_model import XGBModel
        from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig

        own, others = divided(self.settings, XGBConfig)
        config = XGBConfig(nthread=2, seed=43 + self.seed, **own)
        self.model = XGBModel(config=config, verbose_eval=0, **others)
        ys = np.concatenate([costs.min() / costs for _, costs in groups]).astype(np.float32)
        self.model._train([x for features, _ in groups for x in features], ys)

    def score(self, features):
        return self.model._predict(features)

    @staticmethod
    def proposed(trial) -> dict:
        """All that `XGBConfig` has, and how soon boosting ends; TVM sets no number of rounds."""
        return {
            "max_depth": trial.suggest_int("max_depth", 3, 12),
            "gamma": trial.suggest_float("gamma", 1e-4, 1.0, log=True),
            "min_child_weight": trial.suggest_float("min_child_weight", 0.0, 30.0),
            "eta": trial.suggest_float("eta", 0.02, 0.4, log=True),
            "early_stopping_rounds": trial.suggest_int("early_stopping_rounds", 5, 100, log=True),
        }


class TvmMlp(TvmModel):
    """`MLPModel`: LambdaRank over batches that mix tasks, 50 epochs.

    Without the 8 columns of the workload that it takes beside the 164 of a store: records do not
    hold them.
    """

    shipped: ClassVar[dict] = {
        "hidden_dim": 256,
        "use_norm": False,
        "use_sigmoid": False,
        "batch_size": 128,
        "learning_rate": 7e-4,
        "weight_decay": 1e-6,
        "num_epoch_full": 50,
    }

    def learn(self, groups) -> None:
        import torch
        from tvm.s_tir.meta_schedule.cost_model.mlp_model import (
            SegmentSumMLPConfig,
            SegmentSumMLPTrainer,
            State,
            TrainerConfig,
        )

        torch.manual_seed(self.seed)
        logging.getLogger("mlp_model").setLevel(logging.ERROR)
        own, others = divided(self.settings, SegmentSumMLPConfig)
        config = SegmentSumMLPConfig(input_dim=groups[0][0][0].shape[1], **own)
        self.trainer = SegmentSumMLPTrainer(TrainerConfig(**others), State(config))
        for number, (features, costs) in enumerate(groups):
            self.trainer.state.add_to_group(features, costs, str(number))
        schedule = torch.optim.lr_scheduler.StepLR
        # TVM passes verbose=True, which torch no longer takes.
        with mock.patch(
            "torch.optim.lr_scheduler.StepLR", lambda *a, verbose, **k: schedule(*a, **k)
        ):
            self.trainer.train_full()

    def score(self, features):
        # One more than there are: TVM fails where the last batch is of one program.
        odd = len(features) % self.trainer.batch_size == 1
        return self.trainer.predict_incremental(features + features[-1:] * odd)[: len(features)]

    @staticmethod
    def proposed(trial) -> dict:
        return {
            "hidden_dim": trial.suggest_categorical("hidden_dim", (64, 128, 256)),
            "use_norm": trial.suggest_categorical("use_norm", (False, True)),
            "use_sigmoid": trial.suggest_categorical("use_sigmoid", (False, True)),
            "batch_size": trial.suggest_categorical("batch_size", (32, 64, 128, 256, 512)),
            "learning_rate": trial.suggest_float("learning_rate", 1e-4, 5e-3, log=True),
            "weight_decay": trial.suggest_float("weight_decay", 1e-6, 1e-2, log=True),
            "num_epoch_full": trial.suggest_categorical("num_epoch_full", (50, 100)),
        }


class Tuned:
    """A model of TVM's with the best of some settings by PCA on the valid side, as in our hpo.

    The first is as TVM ships it. No trial is pruned, as those of our hpo are: bad ones take their
    time, and cost no figure. There are 20 trials by default, as of `hetfeat hpo --trials 20`.
    """

    def __init__(self, kind: type[TvmModel], seed: int, trials: int = 20) -> None:
        self.kind, self.seed, self.trials = kind, seed, trials

    def fit(self, train: Examples, valid: Examples) -> None:
        """Searches, then trains the best again."""
        import optuna

        groups = group_codes(valid)[0]

        def pca(trial) -> float:
            model = self.kind(self.seed, **self.kind.proposed(trial))
            model.fit(train, valid)
            return pairwise_accuracy(model.predict(valid.batch), valid.latency_s, groups).value

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=self.seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.enqueue_trial(self.kind.shipped)
        # A training that diverges has no scores to calibrate.
        study.optimize(pca, self.trials, catch=(ValueError,))
        self.best = self.kind(self.seed, **study.best_params)
        self.best.fit(train, valid)

    def predict(self, batch: Batch, support=None):
        return self.best.predict(batch)

    def calibrate(self, scores):
        return self.best.calibrate(scores)


TVM = {"tvm_xgb": TvmXgb, "tvm_mlp": TvmMlp}
TUNED = {f"{name}_tuned": partial(Tuned, kind) for name, kind in TVM.items()}
"""Cost 20 trainings a cell: only where they are named."""
ON_NESTS = {"nest_sum": TvmXgb, "nest_tlp": Tlp}
"""Read `loop_nests` in the place of stores and primitives: for records of the auto-scheduler, which
have no stores."""
BASELINES = {**TVM, **TUNED, **ON_NESTS}


def divided(settings: dict, kind) -> tuple[dict, dict]:
    """Those that a configuration of TVM's has, and the others."""
    own = {name: value for name, value in settings.items() if name in kind._fields}
    return own, {name: value for name, value in settings.items() if name not in own}


def features_of(batch: Batch, rows) -> list:
    """Per-store features of some programs; one of zeros where a program has no store."""
    width = batch.stores.shape[1]
    parts = [batch.stores[batch.offsets[i] : batch.offsets[i + 1]] for i in rows]
    return [part if len(part) else np.zeros((1, width), np.float32) for part in parts]


class Remeasured:
    """The noise ceiling: the first repeat of a record as the score, the others as the truth."""

    def __init__(self, store: RecordStore, test: Examples, *others: Examples) -> None:
        table = store.read(["device", "program", "latencies_s", "unix_s"]).to_pydict()
        rows = sorted(zip(*table.values(), strict=True), key=lambda row: row[3])
        repeats = {(device, program): values for device, program, values, _ in rows}
        keys = zip(test.device.tolist(), test.program.tolist(), strict=True)
        found = [repeats[key] or () for key in keys]
        some = np.flatnonzero([len(values) > 1 for values in found])
        self.examples = test.take(some)
        self.first_s = np.array([found[i][0] for i in some])
        self.examples.latency_s[:] = [np.median(found[i][1:]) for i in some]
        best = best_latencies(*others, self.examples)
        groups, keys = group_codes(self.examples)
        self.best_s = np.array([best[key] for key in keys])[groups]

    def predict(self, batch: Batch, support=None):
        return np.minimum(self.best_s / self.first_s, 1)

    def calibrate(self, scores):
        return scores
