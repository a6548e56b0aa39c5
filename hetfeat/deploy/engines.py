"""Inference engines, each run in a process of its own to be compared fairly.

    python -m hetfeat.deploy.engines FILE_DESCRIPTOR SETTINGS_JSON

Settings: `engine`, `threads`, and what the engine needs (`bundle`, or `network`, `batch`, `seed`).
"""

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hetfeat.errors import RequestError
from hetfeat.measure.serving import serve

Run = Callable[[], Any]


def bundle(settings: dict[str, Any]) -> Run:
    """A bundle on its sample input, its rows repeated to fill the batch asked for."""
    import numpy as np

    from hetfeat.deploy.bundle import load_bundle, sample_inputs

    folder = Path(settings["bundle"])
    loaded = load_bundle(folder)
    inputs = sample_inputs(folder)
    if batch := settings.get("batch"):
        inputs = [np.resize(value, (batch, *value.shape[1:])) for value in inputs]
    run: Run = loaded.prepare(inputs)
    return run


def torch_eager(settings: dict[str, Any]) -> Run:
    """The network in torch, eager mode."""
    import torch

    from hetfeat.workloads.networks import load_network

    torch.set_num_threads(settings["threads"])
    network = load_network(settings["network"], settings["batch"], settings["seed"])
    if network.onnx is not None:
        raise RequestError("an ONNX file", "a network that torch runs", "leave this peer out")

    def run() -> Any:
        with torch.inference_mode():
            return network.module(*network.inputs)

    return run


def onnxruntime(settings: dict[str, Any]) -> Run:
    """The network in ONNX Runtime's CPU provider, all graph optimisations on."""
    import onnxruntime as runtime
    import torch

    from hetfeat.workloads.networks import load_network

    network = load_network(settings["network"], settings["batch"], settings["seed"])
    options = runtime.SessionOptions()
    options.intra_op_num_threads = settings["threads"]
    options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Any = f"{folder}/network.onnx"
        if network.onnx is not None:
            model = network.onnx.SerializeToString()
        else:
            # The TorchScript exporter: the newer one needs a further package.
            torch.onnx.export(network.module, network.inputs, model, dynamo=False)
        session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    feed = dict(zip(names, [value.numpy() for value in network.inputs], strict=True))
    return lambda: session.run(None, feed)


ENGINES = {"bundle": bundle, "torch": torch_eager, "onnxruntime": onnxruntime}


class Service:
    """Answers timing requests for one engine."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._run: Run | None = None

    def hello(self) -> None:
        """Loads the engine and runs it twice."""
        self._run = ENGINES[self._settings["engine"]](self._settings)
        self._run()
        self._run()

    def time(self, seconds: float) -> list[float]:
        """Latencies in seconds of runs in a row, for about `seconds`, at least two."""
        assert self._run is not None
        latencies: list[float] = []
        while len(latencies) < 2 or sum(latencies) < seconds:
            start = time.perf_counter()
            self._run()
            latencies.append(time.perf_counter() - start)
        return latencies


if __name__ == "__main__":
    serve(
        Connection(int(sys.argv[1])),
        Service(json.loads(sys.argv[2])),
        lambda request, error: "run",
    )
