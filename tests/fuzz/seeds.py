"""Remakes the seeds in corpus/, all of our own making: `python -m tests.fuzz.seeds`."""

import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))
import ansor_lines
import legacy
import spaces
import stores

from hetfeat.dataset.schema import to_row

CORPUS = Path(__file__).parent / "corpus"
DIGEST = "0" * 64


def js(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value).encode()


def seeds() -> dict[str, bytes]:
    """Seed by TARGET."""
    row = to_row(stores.measured(stores.programs(stores.task(1), 1, 1)[0], stores.profile("a")))
    row["stores"] = None
    table, array, image = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(table, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("sgemm_product.csv", "A,B,Run1 (ms),Run2 (ms)\n1,2,3.5,4\n1,4,5,6\n")
    np.save(array, np.zeros((3, 8, 8), np.float32))
    Image.new("RGB", (9, 7)).save(image, "PNG")
    cache = spaces.cache({"8,8,1,0,32": 1.0, "16,8,1,0,32": None}, problem_size=[64, 64])
    cache["cache"]["8,8,2,0,32"] = {
        "time": 2.0,
        "times": [1.0, 2.0],
        **dict.fromkeys(spaces.LEVELS, "x"),
    }
    variant = {"batch": 1, "library": "lib_1.so", "parameters": ["p0"]}
    bundle = {
        "format": 2, "target": {"kind": "llvm"}, "variants": [variant], "device": "a",
        "files": dict.fromkeys(("lib_1.so", "params.npz", "sample_output.npy"), DIGEST),
        "inputs": [{"name": "x", "shape": [1, 3, 8, 8], "dtype": "float32"}],
        "code_features": [], "any_rows": True, "threads": 1, "tolerance": 1e-3,
    }  # fmt: skip
    entry = {
        "event": "promote", "version": 1, "before": None, "state": {"production": "1"},
        "manifest": DIGEST, "gates": [], "user": "u", "time": 1.0,
    }  # fmt: skip
    request = {
        "network": "resnet18", "slug": "resnet18", "batches": [1], "device": "a", "model": None,
        "effort": "quick", "trials": 1, "seed": 0,
    }  # fmt: skip
    listed = {"path": "model.json", "bytes": 3, "sha256": DIGEST}
    urls = {"manifest.json": "http://h/m"}
    report = {
        "machine": "x86_64", "cpu": "c", "missing": [], "threads": 2, "cores": 2, "gflops": 1.0,
        "tvm": "0.27", "instance": "i",
    }  # fmt: skip
    return {
        "ansor": b"\n".join([*ansor_lines.log(2, 1), *ansor_lines.log(2, 2, ansor_lines.on_gpu)]),
        "kernel-tuner": js(cache),
        "search-space": js(cache),
        "uci": table.getvalue(),
        "metaschedule": (
            legacy.record_line([2, 16], [1e-3]).encode()
            + b"\n#\n" + legacy.workload_line(legacy.matmul_graph(4, 4, 4)).encode()
            + b"\n#\n" + js({"net": [{"workload_index": 0, "weight": 3}]})
        ),
        "journal": js(row) + b"\n",
        "shards": js({"path": "shards/a.parquet", "sha256": DIGEST, "rows": 1, "journal": DIGEST}),
        "bundle": js(bundle),
        "manifest": js({"format": 1, "files": [listed]}),
        "presigned": js(
            {"format": 1, "model": "m", "manifest_sha256": DIGEST, "urls": urls}
        ),
        "ledger": js({"ledger.head": f"1 {DIGEST}", "ledger.0000001": json.dumps(entry)}),
        "sealed-ledger": js([entry, {**entry, "version": 2, "before": "1"}]),
        "owner": js({"pid": 1, "started": "1", "host": "h"}),
        "profile": b"name: a\nfamily: cpu-x86\ntarget: {kind: llvm, mcpu: znver4}\nthreads: 2\n",
        "image": image.getvalue(),
        "npy": array.getvalue(),
        "model": js({"format": 1, "model": "xgb", "settings": {}, "files": {"m": DIGEST}}),
        "gates": (Path(__file__).parents[2] / "registry" / "models" / "gates.yaml").read_bytes(),
        "deploy-request": js(request),
        "report": js(report),
    }  # fmt: skip


if __name__ == "__main__":
    for name, data in seeds().items():
        path = CORPUS / name / "seed"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
