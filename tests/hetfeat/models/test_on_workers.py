"""Models whose features are on the workers of a cluster, against those of one process."""

import os
import signal
import threading

import numpy as np
import pytest
import stores

from hetfeat.cluster import connected
from hetfeat.dataset.splits import split_examples
from hetfeat.errors import WorkFailed
from hetfeat.features.assemble import assemble
from hetfeat.features.cluster import ClusterBatch, assemble_there
from hetfeat.models.engines.net import torch_threads
from hetfeat.models.engines.on_workers import divide, share_of
from hetfeat.models.evaluate import evaluate
from hetfeat.models.hyperparameters import build
from hetfeat.models.training_set import side_of

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[1, 2])
def client(request):
    with connected(f"local:{request.param}") as made:
        yield made


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stores.make_store(tmp_path_factory.mktemp("records") / "s", tasks=24)


def sides_of(examples):
    split = split_examples(examples, "by_task", 1)
    return [examples.take(getattr(split, side)) for side in ("train", "valid", "test")]


def fitted(name, sides):
    model = build(name, "quick", 0, {"rounds": 20 if name in {"xgb", "lgbm"} else 7})
    epochs = []
    with torch_threads(1):  # a worker has one
        model.fit(sides[0], sides[1], lambda epoch, values: epochs.append((epoch, values)))
    return model, epochs


@pytest.mark.parametrize("name", ["xgb", "lgbm", "mlp", "attention"])
def test_one_worker_trains_the_model_of_one_process_more_a_like_one(client, store, name):
    here = sides_of(assemble(store).examples)
    there = sides_of(assemble_there(store, client).examples)
    assert all(isinstance(side.batch, ClusterBatch) for side in there)
    (ours, our_epochs), (theirs, their_epochs) = fitted(name, here), fitted(name, there)
    alone = evaluate(ours, *here).metrics
    shared = evaluate(theirs, *there).metrics
    np.testing.assert_array_equal(theirs.predict(there[2].batch), theirs.predict(here[2].batch))
    if len(client.nthreads()) == 1:
        assert our_epochs == their_epochs
        np.testing.assert_array_equal(ours.predict(here[2].batch), theirs.predict(there[2].batch))
        assert alone == shared
    else:
        assert len(their_epochs) > 5
        assert abs(alone["pca"] - shared["pca"]) < 0.05


def test_shares_hold_whole_tasks_and_all_pairs(store):
    examples = assemble(store).examples
    side = side_of(examples, seed=0)
    rows = divide(examples, 3)
    np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(len(examples)))
    tasks = [set(examples.task[own].tolist()) for own in rows]
    assert not (tasks[0] & tasks[1] | tasks[0] & tasks[2] | tasks[1] & tasks[2])
    assert max(map(len, rows)) < 1.5 * min(map(len, rows))
    margins = np.random.default_rng(0).normal(size=len(examples))
    whole = side.objective(0.2).gradient(margins)
    for own in rows:
        part = share_of(side, own).objective(0.2).gradient(margins[own])
        for ours, theirs in zip(part, whole, strict=True):
            np.testing.assert_allclose(ours, theirs[own], rtol=1e-12)
    assert sum(len(share_of(side, own).pairs) for own in rows) == len(side.pairs)


def test_more_workers_than_tasks(store):
    one = assemble(store).examples
    assert len(divide(one.take(np.flatnonzero(one.task == one.task[0])), 5)) == 1


@pytest.mark.parametrize("name", ["xgb", "mlp"])
def test_a_worker_lost_while_training_is_one_line(store, name):
    with connected("local:2") as client:
        sides = sides_of(assemble_there(store, client).examples)
        process = min(client.run(os.getpid).items())[1]
        timer = threading.Timer(3, os.kill, (process, signal.SIGKILL))
        timer.start()
        model = build(name, "full", 0, {"rounds": 100_000, "patience": 100_000})
        with pytest.raises(WorkFailed, match="lost"):
            model.fit(sides[0], sides[1])
        timer.join()


def test_a_worker_lost_before_costs_its_features_alone(store):
    """They are computed again."""
    with connected("local:2") as client:
        examples = assemble_there(store, client).examples
        os.kill(min(client.run(os.getpid).items())[1], signal.SIGKILL)
        whole = examples.batch.loaded()
    np.testing.assert_array_equal(whole.trace, assemble(store).examples.batch.loaded().trace)
