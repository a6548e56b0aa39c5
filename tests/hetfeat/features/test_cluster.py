"""Features over a local Dask cluster of two workers, against those of one process."""

import dataclasses
import os

import numpy as np
import pytest
import stores

from hetfeat.cluster import over
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.errors import DataError
from hetfeat.features.assemble import assemble, map_examples
from hetfeat.models.aggregate import flat_features
from hetfeat.records import Measurement


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as made,
    ):
        made.wait_for_workers(2)
        yield made


@pytest.fixture
def store(tmp_path):
    """Many pieces, with duplicates, failures, a journal and records without features."""
    small = StoreConfig(buffer_bytes=20_000)
    made = stores.make_store(tmp_path / "s", tasks=6, per_task=20, options=small)
    first, second = stores.programs(stores.task(0), 2, seed=0)
    made.append(
        [
            dataclasses.replace(stores.measured(first, stores.profile("a")), unix_s=9.0),
            Measurement(dataclasses.replace(second, stores=None), "a", (), "build", 0.0, ""),
        ]
    )
    return made


def flattened(examples) -> bytes:
    return flat_features(examples.batch).tobytes()


def process_of(examples) -> int:
    return os.getpid()


def test_two_workers_give_what_one_process_gives(client, store):
    here, there = assemble(store), assemble(store, over(client))
    assert (here.without_features, here.duplicates) == (there.without_features, there.duplicates)
    assert (here.without_features, here.duplicates) == (1, 1)
    for field in dataclasses.fields(here.examples.batch):
        ours, theirs = (getattr(found.examples.batch, field.name) for found in (here, there))
        assert (ours.dtype, ours.tobytes()) == (theirs.dtype, theirs.tobytes())
    np.testing.assert_array_equal(here.examples.latency_s, there.examples.latency_s)
    for name in ("task", "device", "operator", "program", "shapes"):
        assert getattr(here.examples, name).tolist() == getattr(there.examples, name).tolist()


def test_a_function_of_the_features_is_called_by_both_workers(client, store):
    ours = [part.result for part in map_examples(store, flattened)]
    theirs = [part.result for part in map_examples(store, flattened, over(client))]
    assert len(ours) > 4
    assert ours == theirs
    processes = {part.result for part in map_examples(store, process_of, over(client))}
    assert len(processes) == 2
    assert os.getpid() not in processes


def refusing(examples):
    raise DataError("this", "that", "try again")


def test_what_a_worker_refuses_is_one_line(client, store):
    with pytest.raises(DataError, match=r"^this; expected that; try again$"):
        list(map_examples(store, refusing, over(client)))
