"""More parsers of others' bytes: stores' small files, replies of servers, boosters, traces."""

import contextlib
import multiprocessing
import os
import resource
import socket
import struct
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from unittest import mock

Target = Callable[[bytes, Path], object]
CHILD_CPU_S = 4
"""Processor seconds of a child, the first of which may go to importing."""
CHILDREN = multiprocessing.get_context("forkserver")
"""Not forks of this process, whose threads a child would wait for."""
CHILDREN.set_forkserver_preload(["lightgbm", "xgboost"])
SOUND = b"s"


def sealed(data: bytes, folder: Path) -> None:
    """A journal that `compact` had begun to move into shards."""
    from hetfeat.dataset.store import SEALED, RecordStore

    store = RecordStore.create(folder / "store")
    (store.path / SEALED).write_bytes(data)
    store.compact()
    store.read()


def notes(name: str) -> Target:
    """What collecting and tuning write beside a store's records."""

    def target(data: bytes, folder: Path) -> None:
        from hetfeat.dataset import sidecar_files

        (folder / name).write_bytes(data)
        sidecar_files.evaluation_tasks(folder)
        sidecar_files.spent_s(folder, "a")
        if name.endswith(".jsonl"):
            list(sidecar_files.noted(folder, name))

    return target


def networks(data: bytes, folder: Path) -> None:
    from hetfeat.dataset.store import RecordStore

    store = RecordStore.create(folder / "store")
    (store.path / "networks.json").write_bytes(data)
    store.networks()


def head(data: bytes, folder: Path) -> None:
    from hetfeat.dataset.store import HEAD, RecordStore

    (folder / HEAD).write_bytes(data)
    RecordStore.open(folder)


def workloads(data: bytes, folder: Path) -> None:
    from hetfeat.dataset.store import WORKLOADS, RecordStore

    store = RecordStore.create(folder / "store")
    (store.path / WORKLOADS).write_bytes(data)
    store.workloads()


def parquet(data: bytes, folder: Path) -> None:
    """A listed shard; whether its bytes are those written is asked by `records verify` alone."""
    import json

    from hetfeat.dataset.schema import from_table
    from hetfeat.dataset.store import SHARDS, RecordStore

    store = RecordStore.create(folder / "store")
    shard = store.path / "device=a" / "operator=matmul" / "0.parquet"
    shard.parent.mkdir(parents=True)
    shard.write_bytes(data)
    line = {"path": str(shard.relative_to(store.path)), "sha256": "0" * 64, "rows": 1}
    (store.path / SHARDS).write_text(json.dumps(line) + "\n")
    for _ in from_table(store.read()):
        pass


def trace(data: bytes, folder: Path) -> None:
    """A record's trace: as columns, as a sequence."""
    from hetfeat.features import trace as traces

    text = data.decode(errors="replace")
    traces.vectors([text])
    traces.steps([text])


def donor(data: bytes, folder: Path) -> None:
    """A record's trace, carried over to another task."""
    from hetfeat.transfer.schedule_library import carry_over

    draw = '["SamplePerfectTile",["l1"],[2,64],["v1","v2"]]'
    carry_over(data.decode(errors="replace"), [f"[[{draw}],[[0,[8,8]]]]"])


def tracker(data: bytes, folder: Path) -> None:
    from tvm.rpc import base

    from hetfeat.devices.fleet import control
    from hetfeat.devices.fleet.route import Address

    here, there = socket.socketpair()
    with here, there:
        there.sendall(struct.pack("<ii", base.RPC_TRACKER_MAGIC, len(data)) + data)
        there.shutdown(socket.SHUT_WR)
        with mock.patch.object(socket, "create_connection", return_value=here):
            control.status(Address("localhost", 9190))


def description(data: bytes, folder: Path) -> None:
    from hetfeat.devices.fleet.report import Description
    from hetfeat.parsing import decode

    decode(data, Description, what="a server's answer", action="start it anew")


def reply(data: bytes, folder: Path) -> None:
    """A reply of the child that holds a session, and the latencies in it."""
    from multiprocessing import Pipe

    from hetfeat.devices.profile import DeviceProfile
    from hetfeat.measure.latencies import latencies_of
    from hetfeat.measure.worker_loop import received
    from hetfeat.records import Task

    here, there = Pipe()
    with here, there, contextlib.suppress(EOFError):
        there.send_bytes(data)
        value = received(here).get("value")
        task = Task("0", "matmul", ((1, 2), (2, 2), (1, 2)), "float32", 8.0)
        latencies_of(value, task, DeviceProfile("a", "cpu-x86", {"kind": "llvm"}, 2))


def deployments(data: bytes, folder: Path) -> None:
    import click

    from registry.cli.deploy import command
    from registry.jobs.deploy_batch import read_jobs

    context = click.Context(command)
    options = {option.name: option for option in command.params}
    defaults = {name: option.get_default(context) for name, option in options.items()}
    (folder / "jobs.yaml").write_bytes(data)
    with contextlib.suppress(click.UsageError):  # one line, as for the same on a command line
        read_jobs(
            folder / "jobs.yaml",
            lambda name, text: options[name].process_value(context, text or defaults[name]),
            defaults,
        )


def answer(data: bytes, folder: Path) -> None:
    """What a name meant, kept for when the registry does not answer."""
    from registry.files import cache
    from registry.files.pull import _Answer

    with mock.patch.dict(os.environ, HETFEAT_HOME=str(folder)):
        path = cache._answer_path(("q",))
        path.parent.mkdir()
        path.write_bytes(data)
        cache.recall(("q",), _Answer)


def study(data: bytes, folder: Path) -> None:
    """A journal of Optuna, to which every worker of `hpo` writes."""
    import optuna

    from hetfeat.errors import RequestError
    from registry.jobs.optuna_study import open_storage

    (folder / "journal").write_bytes(data)
    with contextlib.suppress(RequestError):
        for one in open_storage(str(folder / "journal"), "").get_all_studies():
            optuna.study.StudyDirection(one.directions[0])


def pickles(data: bytes, folder: Path) -> None:
    from registry.files.pickle_check import looks_like_pickle

    (folder / "file").write_bytes(data)
    looks_like_pickle(folder / "file")


def npz(data: bytes, folder: Path) -> None:
    """Parameters of a bundle."""
    from hetfeat.deploy import runtime

    (folder / runtime.PARAMETERS).write_bytes(data)
    with contextlib.suppress(runtime.BundleError):
        runtime._of_archive(folder, folder / runtime.PARAMETERS, runtime._in_huge_pages)


def network_file(suffix: str) -> Target:
    """A network of one of the formats that are read."""

    def target(data: bytes, folder: Path) -> None:
        from hetfeat.workloads.files import load_file

        (folder / f"a{suffix}").write_bytes(data)
        load_file(folder / f"a{suffix}", "a", 1)

    return target


def booster(suffix: str) -> Target:
    """Trees: what `native_child` lets through may be asked. Both in a child, which may die."""

    def target(data: bytes, folder: Path) -> None:
        path = folder / f"booster{suffix}"
        path.write_bytes(data)
        here, there = CHILDREN.Pipe(duplex=False)
        child = CHILDREN.Process(target=_ask, args=(path, there))
        child.start()
        there.close()
        with here, contextlib.suppress(EOFError):
            passed = here.recv_bytes() == SOUND
            child.join()
            if passed and child.exitcode:
                raise AssertionError(f"trees that passed ended a process with {child.exitcode}")
        child.join()

    return target


def _ask(path: Path, parent: Connection) -> None:
    """The child: says that the file passed, then asks the trees."""
    resource.setrlimit(resource.RLIMIT_CPU, (CHILD_CPU_S, CHILD_CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    with contextlib.suppress(Exception):
        import lightgbm
        import numpy as np
        import xgboost

        from hetfeat.models.native_child import check_file

        check_file(path)
        parent.send_bytes(SOUND)
        rows = np.random.default_rng(0).random((8, 5)).astype(np.float32)
        if path.suffix == ".txt":
            lightgbm.Booster(model_file=path).predict(rows, raw_score=True, num_threads=1)
        else:
            xgboost.Booster(model_file=path).inplace_predict(rows, predict_type="margin")


TARGETS: dict[str, Target] = {
    "sealed": sealed,
    "evaluation": notes("evaluation.json"),
    "anchors": notes("anchors.jsonl"),
    "quarantine": notes("quarantine.jsonl"),
    "spent": notes("spent.json"),
    "networks": networks,
    "store-head": head,
    "workloads": workloads,
    "parquet": parquet,
    "trace": trace,
    "donor": donor,
    "tracker": tracker,
    "description": description,
    "reply": reply,
    "deployments": deployments,
    "answer": answer,
    "study": study,
    "pickles": pickles,
    "npz": npz,
    "onnx": network_file(".onnx"),
    "exported": network_file(".pt2"),
    "tflite": network_file(".tflite"),
    "booster-xgb": booster(".ubj"),
    "booster-lgbm": booster(".txt"),
}
