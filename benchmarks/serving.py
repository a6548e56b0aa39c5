"""Throughput and p99 latency of a served bundle beside torch, served in the same way.

    PYTHONPATH=. python benchmarks/serving.py BUNDLE [--network resnet18] [--seconds 3] [--rounds 2]

Both are MLflow models from code behind `mlflow models serve`, each a server of its own with the
bundle's number of threads and one inference thread. 1, 4 and 16 clients send one base64 .npy image
a request, the servers taking turns; the clients run in this process, on the same machine.
"""

import argparse
import base64
import http.client
import io
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import uvicorn

CLIENTS = (1, 4, 16)
TORCH_MODEL = """
import base64, io
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import torch
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel
from hetfeat.workloads.networks import load_network

class Torch(PythonModel):
    def load_context(self, context):
        self.thread = ThreadPoolExecutor(1)
        self.module = self.thread.submit(self._load).result()

    def _load(self):
        torch.set_num_threads(THREADS)
        return load_network(NETWORK).module

    def predict(self, context, model_input, params=None):
        texts = np.ravel(model_input["input_0"])
        rows = np.stack([np.load(io.BytesIO(base64.b64decode(t))) for t in texts])
        return self.thread.submit(self._run, torch.from_numpy(rows)).result()

    def _run(self, rows):
        with torch.inference_mode():
            return self.module(rows).numpy()

set_model(Torch())
"""


def save_models(bundle: Path, network: str, folder: Path) -> dict[str, Path]:
    import mlflow.pyfunc

    from registry.tracking import bundle_flavor

    manifest = json.loads((bundle / "bundle.json").read_text())
    code = folder / "torch_model.py"
    settings = f"THREADS, NETWORK = {manifest['threads']}, {network!r}"
    code.write_text(TORCH_MODEL.replace("class Torch", f"{settings}\n\nclass Torch", 1))
    saved = {"bundle": folder / "bundle", "torch": folder / "torch"}
    for name, path in saved.items():
        mlflow.pyfunc.save_model(
            path,
            python_model=str(bundle_flavor._MODEL_FILE if name == "bundle" else code),
            artifacts={"bundle": str(bundle)} if name == "bundle" else None,
            signature=bundle_flavor.signature(manifest),
            pip_requirements=[],
        )
    return saved


def serve(model: Path) -> tuple[subprocess.Popen, int]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    line = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(model)]
    line += ["--env-manager", "local", "--host", "127.0.0.1", "--port", str(port)]
    root = str(Path(__file__).parents[1])
    scripts = Path(uvicorn.__file__).parents[4] / "bin"  # MLflow starts uvicorn by name
    server = subprocess.Popen(
        line,
        env=os.environ | {"PYTHONPATH": root, "PATH": f"{scripts}:{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while server.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/ping")
            connection.getresponse()
            return server, port
        except OSError:
            time.sleep(0.3)
    raise SystemExit(f"{model} could not be served")


def client(port: int, body: bytes, until: float, latencies: list[float]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while time.perf_counter() < until:
        start = time.perf_counter()
        connection.request("POST", "/invocations", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"a server answered {answer.status}")
        latencies.append(time.perf_counter() - start)


def load(port: int, body: bytes, clients: int, seconds: float) -> list[float]:
    latencies: list[float] = []
    until = time.perf_counter() + seconds
    threads = [
        threading.Thread(target=client, args=(port, body, until, latencies)) for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()

    buffer = io.BytesIO()
    np.save(buffer, np.load(given.bundle / "sample_input_0.npy")[0])
    body = json.dumps({"inputs": [base64.b64encode(buffer.getvalue()).decode()]}).encode()
    with tempfile.TemporaryDirectory() as folder:
        models = save_models(given.bundle.resolve(), given.network, Path(folder))
        servers = {name: serve(path) for name, path in models.items()}
        try:
            for _, port in servers.values():
                load(port, body, 1, 1)
            print("clients  server  requests/s  p50 ms  p99 ms  times torch")
            for clients in CLIENTS:
                measured: dict[str, list[list[float]]] = {name: [] for name in servers}
                for number in range(given.rounds):
                    names = list(servers) if number % 2 == 0 else list(reversed(servers))
                    for name in names:
                        port = servers[name][1]
                        measured[name].append(load(port, body, clients, given.seconds))
                rates = {
                    name: statistics.median(len(turn) / given.seconds for turn in turns)
                    for name, turns in measured.items()
                }
                for name, turns in measured.items():
                    ms = 1e3 * np.concatenate(turns)
                    print(
                        f"{clients:7}  {name:6}  {rates[name]:10.1f}  {np.median(ms):6.1f}"
                        f"  {np.quantile(ms, 0.99):6.1f}  {rates[name] / rates['torch']:11.2f}",
                        flush=True,
                    )
        finally:
            for server, _ in servers.values():
                os.killpg(server.pid, signal.SIGTERM)
                server.wait()


if __name__ == "__main__":
    main()
