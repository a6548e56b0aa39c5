"""Inference engines, each run in a process of its own to be compared fairly.

    python -m hetfeat.deploy.engines FILE_DESCRIPTOR SETTINGS_JSON

Settings: `engine`, `threads`, and what the engine needs: `bundle`; or `onnx`, the path of a model,
and `inputs`, those of its inputs; or `network`, `batch`, `seed` and `outputs`. `half` is the type
of half precision that it runs in, if any.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetfeat.deploy import gemm_engines
from hetfeat.deploy.bundle import load_bundle, sample_inputs
from hetfeat.deploy.messages import CompareEngine, TimeEngine, WarmEngine
from hetfeat.deploy.peer_files import write_onnx
from hetfeat.deploy.runtime import largest_error
from hetfeat.errors import RequestError
from hetfeat.measure.messages import Handlers, Hello
from hetfeat.measure.worker_loop import serve
from hetfeat.workloads.networks import load_network

if TYPE_CHECKING:
    from hetfeat.workloads.network import Network

Run = Callable[[], Any]


def bundle(settings: dict[str, Any]) -> Run:
    """A bundle on its sample input, its rows repeated where another batch is asked for."""
    import numpy as np

    folder = Path(settings["bundle"])
    loaded = load_bundle(folder)
    inputs = sample_inputs(folder)
    first = loaded.manifest["variants"][0]["batch"]
    if (batch := settings.get("batch", first)) != first:
        inputs = [np.resize(value, (batch, *value.shape[1:])) for value in inputs]
    run: Run = loaded.prepare(inputs)
    return run


def flushing(settings: dict[str, Any], *, written_bytes: int = 2**28) -> Callable[[], None] | None:
    """What empties the L2 cache of the GPU that an engine runs on; None for one on the CPU.

    Args:
        settings: Settings of the engine.
        written_bytes: Bytes written between runs, 256 MiB by default: a GPU's caches are then as
            cold for every engine.
    """
    if not settings.get("gpu"):
        return None
    if settings["engine"] == "bundle":
        import numpy as np
        import tvm

        gpu = tvm.cuda()
        zeros = np.zeros(written_bytes, np.uint8)
        source, goal = (tvm.runtime.tensor(zeros, gpu) for _ in range(2))

        def flush() -> None:
            source.copyto(goal)
            gpu.sync()
    else:
        import torch

        memory = torch.empty(written_bytes, dtype=torch.uint8, device=GPU)

        def flush() -> None:
            memory.zero_()
            torch.cuda.synchronize()

    return flush


def torch_eager(settings: dict[str, Any]) -> Run:
    """The network in torch, eager mode."""
    return _torch(settings, lambda module: module)


def torch_compile(settings: dict[str, Any]) -> Run:
    """The network compiled by torch's Inductor, which generates C++."""
    import torch

    run = _torch(settings, torch.compile)
    run()  # it compiles at its first
    return run


def torch_max_autotune(settings: dict[str, Any]) -> Run:
    """The network compiled by torch's Inductor, its kernels tuned and replayed as a CUDA graph."""
    import torch

    run = _torch(settings, partial(torch.compile, mode="max-autotune"))
    run()
    return run


def onnxruntime(settings: dict[str, Any]) -> Run:
    """The network in ONNX Runtime's CPU provider, all graph optimisations on that work."""
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads = settings["threads"]
    options.inter_op_num_threads = 1
    with _as_onnx(settings) as (path, inputs):
        session = _session(path, options)
    names = [value.name for value in session.get_inputs()]
    feed = dict(zip(names, inputs, strict=True))
    return lambda: session.run(None, feed)


def _session(path: str, options: Any) -> Any:
    """ONNX Runtime's session: with all optimisations, or all but one that fails on BERT in int8."""
    import onnxruntime as runtime

    load = partial(runtime.InferenceSession, path, options, providers=["CPUExecutionProvider"])
    try:
        return load()
    except Exception as error:  # of its own types
        with suppress(Exception):
            return load(disabled_optimizers=["MatMulAddFusion"])
        raise error from None


def openvino(settings: dict[str, Any]) -> Run:
    """The network in OpenVINO's CPU plugin, for latency, in float32 or in bfloat16."""
    import openvino as ov

    properties = {
        "INFERENCE_NUM_THREADS": settings["threads"],
        "PERFORMANCE_HINT": "LATENCY",
        # Unsaid, it would be bfloat16 wherever the CPU has it.
        "INFERENCE_PRECISION_HINT": ov.Type.bf16 if settings.get("half") else ov.Type.f32,
    }
    with _as_onnx(settings) as (path, inputs):
        compiled = ov.Core().compile_model(path, "CPU", properties)
    for name, value in properties.items():
        if str(is_set := compiled.get_property(name)) != str(value):
            raise RequestError(f"OpenVINO with {name} {is_set}", f"{value}", "leave this peer out")
    request = compiled.create_infer_request()
    feed = dict(enumerate(inputs))
    return lambda: request.infer(feed)


def _torch(settings: dict[str, Any], compiled: Callable[[Any], Any]) -> Run:
    import torch

    torch.set_num_threads(settings["threads"])
    network = _network(settings)
    if network.kind != "torch":
        raise RequestError(
            f"a network of {network.kind}", "one that torch runs", "leave this peer out"
        )
    if not settings.get("gpu"):
        module, inputs = moved(network, "cpu", settings.get("half"))
        module = compiled(module)
    elif torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        module, inputs = moved(network, GPU, settings.get("half"))
        module = compiled(module)
    else:
        raise RequestError("a torch without CUDA", "a build of torch with it", "leave it out")

    def run() -> Any:
        with torch.inference_mode():
            output = module(*inputs)
        if settings.get("gpu"):
            torch.cuda.synchronize()
        return output

    return run


def moved(network: "Network", device: str, half: str | None) -> tuple[Any, tuple[Any, ...]]:
    """A network's module and inputs on a device of torch.

    Args:
        network: Network of torch.
        device: Name of the device.
        half: What its numbers, and those of its inputs, become: `float16` or `bfloat16`; None
            leaves them.
    """
    import torch

    dtype = getattr(torch, half) if half else None
    inputs = tuple(
        value.to(device, dtype if value.is_floating_point() else None)
        for value in map(torch.as_tensor, network.inputs)
    )
    return network.module.to(device, dtype), inputs


def _network(settings: dict[str, Any]) -> "Network":
    name, batch, seed = (settings[key] for key in ("network", "batch", "seed"))
    return load_network(name, batch, seed, settings.get("outputs", ()))


@contextmanager
def _as_onnx(settings: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The network as an ONNX file, for as long as it takes to load, and its inputs.

    A model that is there already is taken without torch, which takes seconds to import.
    """
    if "onnx" in settings:
        import numpy as np

        yield settings["onnx"], [np.load(path, allow_pickle=False) for path in settings["inputs"]]
        return
    network = _network(settings)
    if network.kind == "TFLite":
        raise RequestError("a network of TFLite", "one of torch or ONNX", "leave this peer out")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        write_onnx(network, path)
        yield str(path), network.arrays()


ENGINES = {
    "bundle": bundle,
    "torch": torch_eager,
    "torch_compile": torch_compile,
    "torch_max_autotune": torch_max_autotune,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "torch_matmul": gemm_engines.torch_matmul,
    "openblas_matmul": gemm_engines.openblas_matmul,
    "searched_matmul": gemm_engines.searched_matmul,
}


GPU = "cuda"
"""Device of torch."""


class EngineService:
    """Answers timing requests for one engine.

    Args:
        settings: Settings of the engine.
        slow_s: Seconds from which a first run is the latency, 10 by default: a network that was not
            tuned may take minutes.
    """

    def __init__(self, settings: dict[str, Any], slow_s: float = 10.0) -> None:
        self._settings, self._slow_s = settings, slow_s
        self._run: Run | None = None
        self._flush: Callable[[], None] | None = None
        self._first_s = 0.0

    def handlers(self) -> Handlers:
        """What the child does for each message."""
        return {
            Hello: self.hello,
            WarmEngine: self.warm,
            CompareEngine: self.compare,
            TimeEngine: self.time,
        }

    def hello(self, request: Hello) -> None:
        """Loads the engine, perhaps beside others."""
        self._run = ENGINES[self._settings["engine"]](self._settings)
        self._flush = flushing(self._settings)

    def warm(self, request: WarmEngine) -> None:
        """Runs the engine twice, once if it is slow, while no other does."""
        assert self._run is not None
        self._first_s = self._time_one()
        if self._first_s < self._slow_s:
            self._run()

    def compare(self, request: CompareEngine) -> float:
        """How far its outputs are from what they should be, at most."""
        import numpy as np

        assert self._run is not None
        made = self._run()
        outputs = list(made.values()) if hasattr(made, "values") else list(made)
        expected = [np.load(path, allow_pickle=False) for path in request.expected]
        return max(largest_error(*pair) for pair in zip(outputs, expected, strict=True))

    def time(self, request: TimeEngine) -> list[float]:
        """Latencies in seconds of runs in a row, at least one."""
        if self._first_s >= self._slow_s:
            return [self._first_s]
        latencies, total_s = list[float](), 0.0
        while total_s < request.seconds:
            latencies.append(self._time_one())
            total_s += latencies[-1]
        return latencies

    def _time_one(self) -> float:
        assert self._run is not None
        if self._flush is not None:
            self._flush()
        start = time.perf_counter()
        self._run()
        return time.perf_counter() - start


if __name__ == "__main__":
    serve(
        Connection(int(sys.argv[1])),
        EngineService(json.loads(sys.argv[2])).handlers(),
        lambda request, error: "run",
    )
