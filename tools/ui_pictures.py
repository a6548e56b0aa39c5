"""Pictures of MLflow's own pages for the docs, taken in a real browser.

    python tools/ui_pictures.py --out docs/pictures

Makes a registry of its own in a temporary folder: three trainings on the packaged data set, one in
production and one in staging. Needs `chromium` on the path.
"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

MODEL = "costmodel.cpu-x86"
MODELS = ("xgb", "lgbm", "mlp")
MOVES = (("1", "staging"), ("1", "production"), ("2", "staging"))
PAGE_MS = 25_000
"""Virtual time a page gets to fetch and draw."""
COLOURS = 96
"""Enough for a page, and a third of the bytes."""
BROWSER = [
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
    *("--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    out = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(__file__).resolve().parent.parent
        path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
            "PYTHONPATH": path,
        }
        hetfeat = [sys.executable, "-m", "mlproject"]
        for model in MODELS:
            train = [*hetfeat, "train", "--model", model, "--effort", "quick"]
            subprocess.run(train, cwd=folder, env=environment, check=True)
        for version, stage in MOVES:
            move = ["promote", MODEL, version, "--to", stage, "--reason", "picture"]
            subprocess.run([*hetfeat, *move], cwd=folder, env=environment, check=True)
        with server(folder, environment) as url:
            runs = ",".join(f"%22{run}%22" for run in run_ids(environment))
            compare = f"{url}/#/compare-runs?runs=%5B{runs}%5D&experiments=%5B%221%22%5D"
            picture(compare, out / "compare-runs.png", height=2600, folder=folder)
            picture(f"{url}/#/models/{MODEL}", out / "registered-model.png", 1500, folder)


def run_ids(environment: dict[str, str]) -> list[str]:
    import mlflow

    mlflow.set_tracking_uri(environment["MLFLOW_TRACKING_URI"])
    runs = mlflow.search_runs(experiment_names=["hetfeat"], output_format="list")
    return [run.info.run_id for run in runs]


@contextlib.contextmanager
def server(folder: str, environment: dict[str, str]) -> Iterator[str]:
    """MLflow's server on a free port; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = environment["MLFLOW_TRACKING_URI"]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    quiet = environment | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    running = subprocess.Popen(command, cwd=folder, env=quiet, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health"):
                break
            time.sleep(0.5)
        yield url
    finally:
        os.killpg(running.pid, 15)
        running.wait()


def picture(url: str, path: Path, height: int, folder: str) -> None:
    command = [
        *BROWSER,
        f"--user-data-dir={folder}/browser",
        f"--window-size=1500,{height}",
        f"--virtual-time-budget={PAGE_MS}",
        f"--screenshot={path}",
        url,
    ]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    with Image.open(path) as taken:
        taken.convert("RGB").quantize(COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    main()
