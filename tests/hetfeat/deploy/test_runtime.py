"""What a bundle's own code and the children that measure do to be fast, and to let others be."""

import gc
from pathlib import Path

import numpy as np
import pytest
from child_environment import Variable

from hetfeat.deploy.runtime import SPINS, _in_huge_pages
from hetfeat.devices.host import TVM_SPINS
from hetfeat.measure.worker import Worker

SPIN_COUNT = "TVM_THREAD_POOL_SPIN_COUNT"


@pytest.mark.tvm
def test_parameters_in_huge_pages_are_the_arrays_aligned_and_theirs_alone(tmp_path):
    rng = np.random.default_rng(0)
    shapes = {"odd": (3, 5), "scalar": (), "large": (700, 900), "whole": (16,)}
    arrays = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    arrays["indices"] = np.arange(7)
    np.savez(tmp_path / "params.npz", **arrays)
    with np.load(tmp_path / "params.npz") as stored:
        tensors = _in_huge_pages(stored)
    gc.collect()
    for name, tensor in tensors.items():
        assert np.array_equal(tensor.numpy(), arrays[name])
        assert np.from_dlpack(tensor).ctypes.data % 64 == 0
    assert list(tensors) == list(arrays)


@pytest.mark.tvm
def test_no_parameters_need_no_pages(tmp_path):
    np.savez(tmp_path / "params.npz")
    with np.load(tmp_path / "params.npz") as stored:
        assert _in_huge_pages(stored) == {}


def test_idle_threads_of_children_soon_sleep(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.delenv(SPIN_COUNT)
    asked = Variable(name=SPIN_COUNT)
    for chosen in (None, "7"):
        if chosen:
            monkeypatch.setenv(SPIN_COUNT, chosen)
        worker = Worker("child_environment", [], threads=1)
        try:
            assert worker.ask(asked, 60) == (chosen or TVM_SPINS)
        finally:
            worker.stop()


def test_bundles_and_children_agree():
    assert SPINS == TVM_SPINS
