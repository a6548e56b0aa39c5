"""How engines are timed: a slow one once, one that does not run not at all."""

import contextlib
import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hetfeat.deploy import bench, check_on_device, engines
from hetfeat.deploy.bench import TurnOptions, compare
from hetfeat.deploy.bundle import Output, Sample
from hetfeat.deploy.messages import CompareEngine, TimeEngine, WarmEngine
from hetfeat.deploy.request import DeployRequest
from hetfeat.errors import RequestError, WorkFailed
from hetfeat.measure.messages import Failed, Hello, RequestFailed
from hetfeat.workloads.network import Network

RUN_S = 0.02


@pytest.fixture
def service(monkeypatch):
    """Makes an engine that takes `RUN_S`, and counts how often it ran."""
    runs = []

    def run():
        runs.append(None)
        time.sleep(RUN_S)

    monkeypatch.setitem(engines.ENGINES, "sleeper", lambda settings: run)
    return partial(engines.EngineService, {"engine": "sleeper"}), runs


def test_an_engine_is_warmed_up_and_timed_for_a_while(service):
    make, runs = service
    engine = make()
    engine.hello(Hello())
    assert not runs  # others may be loading beside it
    engine.warm(WarmEngine())
    assert len(runs) == 2
    latencies = engine.time(TimeEngine(seconds=3.5 * RUN_S))
    assert len(latencies) == len(runs) - 2 <= 4
    assert min(latencies) >= RUN_S
    assert sum(latencies) >= 3.5 * RUN_S


def test_a_slow_one_runs_once_whatever_is_asked(service):
    make, runs = service
    engine = make(slow_s=RUN_S)
    engine.hello(Hello())
    engine.warm(WarmEngine())
    assert engine.time(TimeEngine(seconds=1.0)) == engine.time(TimeEngine(seconds=1.0))
    assert len(runs) == 1


def test_timing_many_short_runs_takes_no_longer_than_they_do(monkeypatch):
    monkeypatch.setitem(engines.ENGINES, "idle", lambda settings: lambda: None)
    service = engines.EngineService({"engine": "idle"})
    service.hello(Hello())
    start = time.process_time()
    assert len(service.time(TimeEngine(seconds=0.05))) > 10_000
    assert time.process_time() - start < 1


def test_an_engine_that_does_not_run_is_refused_where_it_is_needed(tmp_path):
    missing = {"untuned": {"engine": "bundle", "bundle": str(tmp_path)}}
    told = {}
    left = compare(missing, 1, 1, first_needed=False, leave_out=told.__setitem__)
    assert left == {"untuned": None}
    assert str(tmp_path) in told["untuned"]
    with pytest.raises(WorkFailed, match="untuned, which does not run"):
        compare(missing, 1, 1)


def test_the_sample_stays_as_it_is_at_its_own_batch(monkeypatch):
    """A network's first dimension need not be its batch."""
    shapes = []

    loaded = SimpleNamespace(
        manifest={"variants": [{"batch": 1}, {"batch": 2}]},
        prepare=lambda inputs: shapes.extend(value.shape for value in inputs),
    )
    monkeypatch.setattr(engines, "load_bundle", lambda folder: loaded)
    monkeypatch.setattr(engines, "sample_inputs", lambda folder: [np.zeros((5, 3))])
    for asked in ({}, {"batch": 1}, {"batch": 2}):
        engines.bundle({"bundle": "x", **asked})
    assert shapes == [(5, 3), (5, 3), (2, 3)]


class Engine:
    """A worker that answers, in its last turn with an error."""

    def __init__(self, child, arguments, threads, *, needs_torch):
        self.turns = 0

    def start(self):
        pass

    def close(self):
        pass

    def ask(self, request, timeout_s):
        self.turns += request.do == "time"
        if self.turns == 3:
            raise RequestFailed(Failed(error="run", message="no room"))
        return [1.0]

    def stop(self):
        pass


def test_nobody_else_times_or_builds_during_a_turn(monkeypatch):
    held = []

    @contextmanager
    def timing():
        held.append(None)
        yield

    monkeypatch.setattr(bench, "Worker", Engine)
    monkeypatch.setattr(bench, "timing", timing)
    at_once = TurnOptions(settle_s=0.0)
    found = compare({"one": {}, "other": {}}, 1, 2, options=at_once)
    assert {name: latency.turns_ms for name, latency in found.items()} == {
        "one": (1e3, 1e3),
        "other": (1e3, 1e3),
    }
    assert len(held) == 4
    with pytest.raises(WorkFailed, match="while being timed"):
        compare({"one": {}}, 1, 3, options=at_once)


def test_engines_load_at_once_and_run_one_by_one(monkeypatch):
    together, running = threading.Barrier(2), []

    class Loading(Engine):
        def ask(self, request, timeout_s):
            if request.do == "hello":
                together.wait(20)
            else:
                running.append(threading.current_thread())
            return [1.0]

    monkeypatch.setattr(bench, "Worker", Loading)
    found = compare({"one": {}, "other": {}}, 1, 1, options=TurnOptions(settle_s=0.0))
    assert [latency.median_ms for latency in found.values()] == [1e3, 1e3]
    assert set(running) == {threading.current_thread()}


def test_an_interrupt_while_engines_load_ends_them_all(monkeypatch):
    closed, interrupts = threading.Event(), [signal.SIGINT]

    class Silent(Engine):
        def ask(self, request, timeout_s):
            with contextlib.suppress(IndexError):
                os.kill(os.getpid(), interrupts.pop())
            assert closed.wait(20)
            return [1.0]

        def close(self):
            closed.set()

    monkeypatch.setattr(bench, "Worker", Silent)
    with pytest.raises(KeyboardInterrupt):
        compare({"one": {}, "other": {}}, 1, 1)


def test_only_what_needs_torch_can_import_it(monkeypatch):
    needing = []

    class Noted(Engine):
        def __init__(self, child, arguments, threads, *, needs_torch):
            super().__init__(child, arguments, threads, needs_torch=needs_torch)
            needing.append(needs_torch)

    monkeypatch.setattr(bench, "Worker", Noted)
    engines_of_all = {"bundle": {"bundle": "b"}, "of a file": {"onnx": "f"}, "torch": {}}
    compare(engines_of_all, 1, 1, options=TurnOptions(settle_s=0.0))
    assert needing == [False, False, True]


def test_an_onnx_file_is_loaded_with_its_inputs(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3))
    settings = {"onnx": "net.onnx", "inputs": [str(tmp_path / "x.npy")]}
    with engines._as_onnx(settings) as (path, inputs):
        assert path == "net.onnx"
        assert [value.tolist() for value in inputs] == [[0, 1, 2]]


@pytest.mark.parametrize(("off", "outputs"), [(0, list), (2, dict)])
def test_how_far_an_engine_is_from_exact_integers(monkeypatch, tmp_path, off, outputs):
    np.save(tmp_path / "y.npy", np.arange(3))
    made = {"y": np.arange(3) + off}
    found = made if outputs is dict else list(made.values())
    monkeypatch.setitem(engines.ENGINES, "other", lambda _: lambda: found)
    service = engines.EngineService({"engine": "other"})
    service.hello(Hello())
    assert service.compare(CompareEngine(expected=[str(tmp_path / "y.npy")])) == off


def lowered_of(kind, onnx, device):
    import torch

    network = Network("net", torch.nn.ReLU().eval(), (torch.arange(3.0),), onnx, kind)
    request = DeployRequest("net", "net", (1,), "here", None, "quick", 0, 0)
    output = Output("y", np.arange(3), 0.0)
    exact = SimpleNamespace(samples=[Sample([np.arange(3)], [output])], integers={"exact": True})
    return SimpleNamespace(
        request=request,
        profile=device,
        networks=[SimpleNamespace(network=network)],
        references=[exact],
    )


class Model:
    def SerializeToString(self):
        return b"a model"


class Huge:
    def SerializeToString(self):
        raise ValueError("over 2 GB")


@pytest.mark.parametrize(
    ("kind", "onnx", "ran", "by_file"),
    [
        ("torch", None, {"torch", "onnxruntime", "openvino"}, {"onnxruntime", "openvino"}),
        ("ONNX", Model(), {"onnxruntime", "openvino"}, {"onnxruntime", "openvino"}),
        ("ONNX", Huge(), {"onnxruntime", "openvino"}, set()),
        ("TFLite", None, set(), set()),
    ],
)
def test_peers_that_cannot_run_a_network_are_not_started(
    monkeypatch, device, kind, onnx, ran, by_file
):
    told = {}

    def compare(engines, *_, options, leave_out):
        told.update(engines)
        for settings in engines.values():
            if "onnx" in settings:
                content = Path(settings["onnx"]).read_bytes()
                assert content == b"a model" if onnx else b"Relu" in content
                for files in (settings["inputs"], settings["expected"]):
                    assert [np.load(path).tolist() for path in files] == [[0, 1, 2]]
        if "openvino" in engines:
            leave_out("openvino", "one\nthread")
        return dict.fromkeys(engines, "timed")

    monkeypatch.setattr(check_on_device, "compare", compare)
    lowered = lowered_of(kind, onnx, device)
    checked = check_on_device._time_here(lowered, Path("b"), None, check_on_device.CHECK_DEFAULTS)
    assert set(told) == {"bundle", *ran}
    assert {name for name in ran if "onnx" in told[name]} == by_file
    assert checked.peers == {name: "timed" if name in ran else None for name in bench.PEERS}
    assert checked.left_out == {
        name: "one thread" if name in ran else f"it runs no networks of {kind} here"
        for name in bench.PEERS
        if name not in ran or name == "openvino"
    }


def test_a_bundle_that_names_no_network_is_timed_without_peers(monkeypatch):
    manifest = {"variants": [{"batch": 1}], "threads": 1, "target": {"kind": "llvm"}}
    monkeypatch.setattr(bench, "read_manifest", lambda folder: manifest)
    monkeypatch.setattr(bench, "compare", lambda engines, *_: dict.fromkeys(engines))
    assert bench.bench_bundle(Path("b"), (), None, 1) == {"bundle, batch 1": None}
    for network in (None, "resnet18"):
        with pytest.raises(RequestError, match="which it does not name"):
            bench.bench_bundle(Path("b"), ("torch",), network, 1)


def test_peers_of_a_bundle_for_a_gpu_run_on_it(monkeypatch):
    manifest = {"variants": [{"batch": 1}], "threads": 1, "target": {"kind": "cuda"}}
    manifest["request"] = {"network": "resnet18", "slug": "resnet18", "seed": 0}
    told = {}
    monkeypatch.setattr(bench, "read_manifest", lambda folder: manifest)
    monkeypatch.setattr(bench, "compare", lambda engines, *_: told.update(engines) or {})
    bench.bench_bundle(Path("b"), bench.GPU_PEERS, None, 1)
    assert all(engine["gpu"] for engine in told.values())
    assert set(told) == {"bundle, batch 1", "torch", "torch_compile"}
    with pytest.raises(RequestError, match="torch, torch_compile, torch_max_autotune"):
        bench.bench_bundle(Path("b"), ("openvino",), None, 1)
    halves = {"precision": "float16", "slug": "resnet18_float16"}
    for changed, half in (({}, None), (halves, "float16")):
        manifest["request"] |= changed
        bench.bench_bundle(Path("b"), bench.MORE_GPU_PEERS, "resnet18", 1)
        assert told["torch_max_autotune"]["half"] == half
    with pytest.raises(RequestError, match="resnet18_float16"):
        bench.bench_bundle(Path("b"), bench.GPU_PEERS, "resnet50", 1)


def test_peers_of_a_bundle_in_int8_run_what_it_was_quantised_to(monkeypatch, tmp_path):
    folder, told = tmp_path / "bundle", {}
    request = {"network": "resnet18", "slug": "resnet18_int8", "precision": "int8"}
    manifest = {"variants": [{"batch": 2}], "threads": 1, "target": {"kind": "llvm"}}
    manifest |= {"request": request, "inputs": [{}, {}]}
    monkeypatch.setattr(bench, "read_manifest", lambda folder: manifest)
    monkeypatch.setattr(bench, "compare", lambda engines, *_: told.update(engines) or {})
    bench.bench_bundle(folder, (), None, 1)
    with pytest.raises(RequestError, match=r"bundle\.journal.quantised\.onnx"):
        bench.bench_bundle(folder, ("openvino",), None, 1)
    file = tmp_path / "bundle.journal" / "quantised.onnx"
    file.parent.mkdir()
    file.touch()
    bench.bench_bundle(folder, ("openvino",), None, 1)
    inputs = [str(folder / f"sample_input_{place}.npy") for place in range(2)]
    expected = {"engine": "openvino", "batch": 2, "onnx": str(file), "inputs": inputs}
    assert told["openvino"] == expected
    with pytest.raises(RequestError, match="--network resnet18"):
        bench.bench_bundle(folder, ("openvino",), "resnet18", 1)
    with pytest.raises(RequestError, match="peer in int8 'torch'"):
        bench.bench_bundle(folder, ("torch",), None, 1)


@pytest.mark.parametrize("works", [True, False])
def test_onnx_runtime_goes_on_without_an_optimisation_that_fails(monkeypatch, works):
    import onnxruntime

    asked = []

    def session(path, options, providers, disabled_optimizers=()):
        asked.append(disabled_optimizers)
        if not (works and disabled_optimizers):
            raise RuntimeError(f"failed without {[*disabled_optimizers]}")
        return "a session"

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    if works:
        assert engines._session("net.onnx", None) == "a session"
    else:
        with pytest.raises(RuntimeError, match=r"failed without \[\]"):
            engines._session("net.onnx", None)
    assert asked == [(), ["MatMulAddFusion"]]


def test_a_peer_on_a_gpu_needs_a_torch_that_can():
    import torch

    if torch.cuda.is_available():
        pytest.skip("it can")
    with pytest.raises(RequestError, match="a torch without CUDA"):
        engines.torch_eager({"threads": 1, "network": "resnet18", "batch": 1, "seed": 0, "gpu": 1})


@pytest.mark.parametrize(
    ("half", "dtype"), [("float16", "float16"), ("bfloat16", "bfloat16"), (None, "float32")]
)
def test_torch_runs_the_precision_that_is_asked_for(half, dtype):
    import torch

    inputs = (torch.ones(1, 4), torch.arange(4))
    network = Network("net", torch.nn.Linear(4, 4).eval(), inputs)
    module, moved = engines.moved(network, "cpu", half=half)
    assert str(module.weight.dtype) == str(moved[0].dtype) == f"torch.{dtype}"
    assert moved[1].dtype == torch.int64


def test_an_untuned_network_that_is_too_slow_there_costs_no_deployment(monkeypatch, device, caplog):
    def fail(*_):
        raise WorkFailed("the bundle on device 'lab' (timeout)", "one that runs", "deploy again")

    monkeypatch.setattr(check_on_device, "on_device", fail)
    there = replace(device, route={"kind": "rpc"})
    reference = SimpleNamespace(tells=True)
    assert check_on_device.check_untuned(there, Path("untuned"), reference, lambda *_: None) is None
    assert "was not timed" in caplog.text
