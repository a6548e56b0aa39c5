"""Remakes the seeds in corpus/, all of our own making: `python -m tests.fuzz.seeds`."""

import gzip
import io
import json
import re
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))
import ansor_lines
import legacy
import spaces
import stores

from hetfeat.dataset.schema import to_row, to_table

CORPUS = Path(__file__).parent / "corpus"
DIGEST = "0" * 64
TRACE = (
    '[[["GetSBlock",[],["b","main"],["b0"]],["GetLoops",["b0"],[],["l1"]],'
    '["SamplePerfectTile",["l1"],[2,64],["v1","v2"]],["Split",["l1","v1","v2"],[1],["l2","l3"]],'
    '["SampleCategorical",[],[[0,16],[0.5,0.5]],["v3"]],["Annotate",["b0","v3"],["unroll"],[]],'
    '["Reorder",["l3","l2"],[],[]],["Fuse",["l2","l3"],[1],["l4"]],["Vectorize",["l4"],[],[]],'
    '["SampleComputeLocation",["b0"],[],["l5"]],["EnterPostproc",[],[],[]]],'
    "[[2,[8,8]],[4,1],[9,-1]]]"
)


def js(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value).encode()


def seeds() -> dict[str, bytes]:
    """Seed by TARGET or TARGET/NAME."""
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
        "tvm": "0.27", "instance": "i", "crashes": 0,
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


def more_seeds() -> dict[str, bytes]:
    """Those of `tests.fuzz.more`, and JSON, whose structure is changed, where YAML is read."""
    row = to_row(stores.measured(stores.programs(stores.task(1), 1, 1)[0], stores.profile("a")))
    row |= {"stores": None, "trace": TRACE}
    shard, arrays = io.BytesIO(), io.BytesIO()
    pq.write_table(to_table([row]), shard, compression="zstd", use_dictionary=False)
    np.savez(arrays, p0=np.zeros((2, 3), np.float32))
    server = {"machine": "x86_64", "cpu": "c", "features": ["avx2"], "cores": 2, "threads": 2}
    server |= {"tvm": "0.27", "instance": "i", "crashes": 0}
    at_work = {"key": "server:a", "addr": ["127.0.0.1", 9090]}
    queue = {"queue_info": {"a": {"free": 1, "pending": 0}}, "server_info": [at_work]}
    job = {"network": ["resnet18", "vgg16"], "device": "lab", "batch": [1, 4], "refresh": True}
    profile = stores.profile("a").to_dict()
    profile["route"] = {"kind": "rpc", "key": "a", "tracker": "127.0.0.1:9190"}
    version = {"name": "m", "version": 1, "run_id": None, "source": "s", "stage": "none"}
    version |= {"aliases": [], "tags": {}}
    entry = {"op_code": 0, "worker_id": "w", "study_name": "s", "directions": [1]}
    rules = yaml.safe_load(
        (Path(__file__).parents[2] / "registry" / "models" / "gates.yaml").read_text()
    )
    return {
        "sealed": js(row) + b"\n" + js(row) + b"\n",
        "evaluation": js({"tasks": [DIGEST]}),
        "anchors": js(row) + b"\n",
        "quarantine": js({"reason": "slow", "quarantined_unix_s": 1.0} | row) + b"\n",
        "spent": js({"seconds": {"resnet18": 1.5}}),
        "networks": js({"resnet18": {DIGEST: 2}}),
        "store-head": js({"schema_version": 1}),
        "workloads": gzip.compress(js([DIGEST, "module"]) + b"\n", mtime=0),
        "parquet": shard.getvalue(),
        "trace": TRACE.encode(),
        "donor": TRACE.encode(),
        "tracker": js([0, queue]),
        "description": js(server),
        "reply": js({"value": [1e-3, 2e-3]}),
        "reply/failure": js({"error": "build", "message": "m"}),
        "deployments": js([job, {"trials": 3, "out": "bundles"}]),
        "answer": js({"version": version, "manifest_sha256": DIGEST}),
        "study": js(entry) + b"\n",
        "pickles": b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00K\x01.",
        "pickles/archive": arrays.getvalue(),
        "npz": arrays.getvalue(),
        "onnx": network(),
        "exported": exported_network(),
        "tflite": tflite_network(),
        "booster-xgb": xgboost_trees(),
        "booster-lgbm": lightgbm_trees(),
        "profile/json": js(profile),
        "gates/json": js(rules),
    }


def network() -> bytes:
    """One operator and one initializer."""
    from onnx import TensorProto, helper

    given, made = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3]) for n in "xy")
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1, 3], [1.0, 2.0, 3.0])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [given], [made])
    graph.initializer.append(weight)
    opset = helper.make_opsetid("", 17)
    return bytes(helper.make_model(graph, opset_imports=[opset]).SerializeToString())


def exported_network() -> bytes:
    """One operator, as torch saves it, without the places of its source on this machine."""
    import torch

    program = torch.export.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def tflite_network() -> bytes:
    """A convolution."""
    import tflite_files

    with tempfile.TemporaryDirectory() as folder:
        return tflite_files.save_convolution(Path(folder) / "a.tflite").read_bytes()


def xgboost_trees() -> bytes:
    import xgboost

    rng = np.random.default_rng(0)
    data = xgboost.DMatrix(rng.random((200, 5)), rng.random(200))
    trees = xgboost.train({"max_depth": 2, "verbosity": 0, "nthread": 1}, data, 2)
    return bytes(trees.save_raw("ubj"))


def lightgbm_trees() -> bytes:
    import lightgbm

    rng = np.random.default_rng(0)
    data = lightgbm.Dataset(rng.random((200, 5)), rng.random(200))
    trees = lightgbm.train({"num_leaves": 4, "verbose": -1, "num_threads": 1}, data, 2)
    text = trees.model_to_string()
    # Without sizes, a change may make a tree longer.
    return re.sub("tree_sizes=.*\n", "", text.partition("\nfeature_importances")[0]).encode()


if __name__ == "__main__":
    for name, data in (seeds() | more_seeds()).items():
        path = CORPUS / (name if "/" in name else f"{name}/seed")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
