"""What others have, and what a second measurement would say, judged like our own models.

TVM's models take tuning candidates; here they get the per-store features of the records, through
the same private methods that their own `update` and `predict` call.
"""

import logging
import random
from unittest import mock

import numpy as np
from tlp import Tlp

from hetfeat.dataset.store import RecordStore
from hetfeat.features.batch import Batch, Examples
from hetfeat.models.calibration import Calibration, fit_calibration
from hetfeat.models.labels import best_latencies, group_codes, labels
from hetfeat.models.metrics import by_group

FAILED_S = 1e10
"""What TVM takes for the latency of a failed program."""


class TvmModel:
    """As much of the contract of a cost model as judging it needs."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
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

    def learn(self, groups) -> None:
        from tvm.s_tir.meta_schedule.cost_model import XGBModel
        from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig

        self.model = XGBModel(config=XGBConfig(nthread=2, seed=43 + self.seed), verbose_eval=0)
        ys = np.concatenate([costs.min() / costs for _, costs in groups]).astype(np.float32)
        self.model._train([x for features, _ in groups for x in features], ys)

    def score(self, features):
        return self.model._predict(features)


class TvmMlp(TvmModel):
    """`MLPModel`: LambdaRank over batches that mix tasks, 50 epochs.

    Without the 8 columns of the workload that it takes beside the 164 of a store: records do not
    hold them.
    """

    def learn(self, groups) -> None:
        import torch
        from tvm.s_tir.meta_schedule.cost_model.mlp_model import (
            SegmentSumMLPConfig,
            SegmentSumMLPTrainer,
            State,
        )

        torch.manual_seed(self.seed)
        logging.getLogger("mlp_model").setLevel(logging.ERROR)
        config = SegmentSumMLPConfig(input_dim=groups[0][0][0].shape[1])
        self.trainer = SegmentSumMLPTrainer(state=State(config))
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


TVM = {"tvm_xgb": TvmXgb, "tvm_mlp": TvmMlp}
ON_NESTS = {"nest_sum": TvmXgb, "nest_tlp": Tlp}
"""Read `loop_nests` in the place of stores and primitives: for records of the auto-scheduler, which
have no stores."""
BASELINES = {**TVM, **ON_NESTS}


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
