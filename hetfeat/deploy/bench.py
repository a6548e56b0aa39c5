"""Compares engines: each in its own process, taking turns, with equal threads."""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetfeat.deploy import runtime
from hetfeat.deploy.bundle import read_manifest
from hetfeat.deploy.messages import CompareEngine, TimeEngine, WarmEngine
from hetfeat.deploy.precision import FLOAT32, INT8, QUANTISED, multiplied_in, slug_in
from hetfeat.deploy.request import journal_path
from hetfeat.errors import RequestError, WorkFailed, not_one_of
from hetfeat.measure.interruptible import InterruptibleThreads
from hetfeat.measure.machine_lock import timing
from hetfeat.measure.messages import Hello, Message, RequestFailed
from hetfeat.measure.worker import Lost, Worker
from hetfeat.workloads.networks import is_plain_name, network_slug

CHILD = "hetfeat.deploy.engines"
PEERS = ("torch", "onnxruntime", "openvino")
MORE_PEERS = ("torch_compile",)
"""Engines compared with where they are asked for: half a minute goes by before the first run."""
GPU_PEERS = ("torch", "torch_compile")
"""Engines compared with on a GPU; the others are the CPU's here."""
MORE_GPU_PEERS = ("torch_max_autotune",)
"""Engines compared with on a GPU where asked for: a minute goes by before the first run."""
PEERS_OF_FILES = {"ONNX": ("onnxruntime", "openvino"), "TFLite": ()}
"""Engines that run a network which comes from a file, by its `Network.kind`."""
WITHOUT_TORCH = {"bundle", "onnx"}
"""Settings of engines that load without torch."""


@dataclass(frozen=True)
class TurnOptions:
    """How engines take turns.

    Attributes:
        turn_s: Seconds that a turn lasts, at least one run; 0.25 by default.
        settle_s: Seconds before a turn, 0.25 by default: threads of the engine that ran last spin
            for a while before they sleep.
        turn_timeout_s: Longest that a turn may take, in seconds; 120 by default.
        load_timeout_s: Longest that an engine may take to load, in seconds; 300 by default.
    """

    turn_s: float = 0.25
    settle_s: float = 0.25
    turn_timeout_s: float = 120.0
    load_timeout_s: float = 300.0


@dataclass(frozen=True)
class Latency:
    """Latency of one engine.

    Attributes:
        median_ms: Median over turns of each turn's median, in milliseconds.
        low_ms: Median of the fastest turn, in milliseconds.
        high_ms: Median of the slowest turn, in milliseconds.
        turns_ms: Median of each turn in milliseconds, in order, default none; the same turn of
            another engine ran beside it.
        error: How far its outputs are from exact ones, at most; None, the default, where nothing
            says what they should be.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    turns_ms: tuple[float, ...] = ()
    error: float | None = None


def peer_runs(peer: str, kind: str) -> bool:
    """Whether a peer runs networks of a kind, as `Network.kind` tells it."""
    return peer in PEERS_OF_FILES.get(kind, (*PEERS, *MORE_PEERS, *MORE_GPU_PEERS))


def bench_bundle(
    folder: Path, peers: Sequence[str], network: str | None, rounds: int
) -> dict[str, Any]:
    """Times each batch size of a bundle, and the first beside peers.

    Args:
        folder: Folder of the bundle.
        peers: Names among `PEERS` and `MORE_PEERS`; on a GPU `GPU_PEERS` and `MORE_GPU_PEERS`.
        network: Name of the network for the peers; None for the manifest's, if it is a plain name.
            A manifest never says which file or function to load.
        rounds: Number of turns of each engine.

    Returns:
        Latencies in milliseconds and rows a second, by engine.

    Raises:
        RequestError: An unknown peer, or another network than the bundle's.
        WorkFailed: The bundle does not run.
    """
    manifest = read_manifest(folder)
    on_gpu = manifest["target"]["kind"] == "cuda"
    choices = (*GPU_PEERS, *MORE_GPU_PEERS) if on_gpu else (*PEERS, *MORE_PEERS)
    if unknown := sorted(set(peers) - set(choices)):
        raise not_one_of("peer", unknown[0], choices, "correct --peers")
    batches = [variant["batch"] for variant in manifest["variants"]]
    engines = {
        f"bundle, batch {batch}": {"engine": "bundle", "bundle": str(folder), "batch": batch}
        for batch in batches
    }
    if peers:
        settings = {"batch": batches[0], **_settings_of_peers(folder, manifest, peers, network)}
        engines |= {peer: {"engine": peer, **settings} for peer in peers}
    if on_gpu:
        engines = {name: {**engine, "gpu": True} for name, engine in engines.items()}
    measured = compare(engines, manifest["threads"], rounds)
    return {
        name: {
            "latency_ms": latency.median_ms,
            "latency_range_ms": [latency.low_ms, latency.high_ms],
            "rows_per_s": 1e3 * engines[name]["batch"] / latency.median_ms,
        }
        if latency
        else None
        for name, latency in measured.items()
    }


def _settings_of_peers(
    folder: Path, manifest: Mapping[str, Any], peers: Sequence[str], network: str | None
) -> dict[str, Any]:
    """What peers run: the network that a bundle was made from, or what it was quantised to.

    Raises:
        RequestError: It is not known, or no network of these peers.
    """
    request = {"network": "", "slug": "which it does not name", **manifest.get("request", {})}
    precision = request.get("precision", FLOAT32)
    if precision == INT8:
        if network is not None:
            raise RequestError(
                f"--network {network} for the peers of '{folder}' in int8",
                "none: they run what the bundle was quantised to",
                "leave --network out",
            )
        return _settings_in_int8(folder, manifest, peers)
    if network is None and is_plain_name(request["network"]):
        network = request["network"]
    if network is None or slug_in(network_slug(network), precision) != request["slug"]:
        raise RequestError(
            f"--network {network or 'not given'} for the peers of '{folder}'",
            f"the network that the bundle was made from, {request['slug']}",
            "pass --network, or no --peers",
        )
    half = multiplied_in(precision, manifest["target"])
    settings = {"network": network, "seed": request.get("seed")}
    return settings | {"outputs": request.get("outputs", []), "half": half}


def _settings_in_int8(
    folder: Path, manifest: Mapping[str, Any], peers: Sequence[str]
) -> dict[str, Any]:
    """The quantised network in the journal of a bundle, and the bundle's sample."""
    file, choices = journal_path(folder) / QUANTISED, PEERS_OF_FILES["ONNX"]
    if unknown := sorted(set(peers) - set(choices)):
        raise not_one_of("peer in int8", unknown[0], choices, "correct --peers")
    if not file.is_file():
        raise RequestError(
            f"'{folder}' in int8 without '{file}'",
            "the journal of its deployment, which has the quantised network",
            "bring the journal beside the bundle, or pass no --peers",
        )
    inputs = [str(folder / name) for name in runtime.sample_inputs(dict(manifest))]
    return {"onnx": str(file), "inputs": inputs}


def compare(
    engines: Mapping[str, dict[str, Any]],
    threads: int,
    rounds: int,
    first_needed: bool = True,
    options: TurnOptions = TurnOptions(),
    leave_out: Callable[[str, str], None] = lambda name, reason: None,
) -> dict[str, Latency | None]:
    """Times engines in turns, in one order and then the other, so that drift hits all alike.

    Args:
        engines: Settings for `engines.EngineService`, by engine.
        threads: Number of threads that each engine uses.
        rounds: Number of turns of each engine.
        first_needed: Whether the first must work, default True.
        options: Settings of the turns, those of `TurnOptions` by default.
        leave_out: Callable that is told the name of an engine that could not be run, and why; by
            default nobody is.

    Returns:
        Latencies by name; None for an engine that could not be run.

    Raises:
        WorkFailed: The first engine does not run and is needed, or one stops while being timed.
    """
    workers = {
        name: Worker(
            CHILD,
            [json.dumps({"threads": threads, **settings})],
            threads,
            needs_torch=WITHOUT_TORCH.isdisjoint(settings),
        )
        for name, settings in engines.items()
    }
    first = next(iter(engines))
    try:
        failures = _start(workers, options.load_timeout_s)
        if first_needed and (failure := failures.get(first)):
            raise WorkFailed(
                f"{first}, which does not run ({failure})",
                "a bundle that runs",
                "deploy it anew with --refresh true",
            )
        for name, failure in failures.items():
            workers.pop(name).stop()
            leave_out(name, failure)
        errors = _errors(workers, engines, options.turn_timeout_s)
        turns = _take_turns(workers, rounds, options)
    except Lost as lost:
        raise WorkFailed(
            f"an engine that stopped while being timed ({lost.kind})",
            "engines that run",
            "run it again",
        ) from lost
    finally:
        for worker in workers.values():
            worker.stop()
    return {
        name: _latency(turns[name], errors.get(name)) if name in turns else None for name in engines
    }


def _start(workers: Mapping[str, Worker], timeout_s: float) -> dict[str, str]:
    """Loads all engines at once, then runs one after the other; why, by name, one does not."""
    for worker in workers.values():
        worker.start()  # by this thread: a child ends with the one that started it
    threads = InterruptibleThreads(len(workers))
    try:
        loaded = threads.map(lambda worker: _failure(worker, Hello(), timeout_s), workers.values())
        failures = dict(zip(workers, loaded, strict=True))
    except BaseException:
        for worker in workers.values():
            worker.close()  # threads that still ask, after an interrupt, end at once
        raise
    finally:
        threads.shutdown()
    for name, worker in workers.items():
        failures[name] = failures[name] or _failure(worker, WarmEngine(), timeout_s)
    return {name: failure for name, failure in failures.items() if failure}


def _errors(
    workers: Mapping[str, Worker], engines: Mapping[str, dict[str, Any]], timeout_s: float
) -> dict[str, float]:
    """How far outputs are from what is known to the bit, by engine that is told it."""
    return {
        name: worker.ask(CompareEngine(expected=expected), timeout_s)
        for name, worker in workers.items()
        if (expected := engines[name].get("expected"))
    }


def _take_turns(
    workers: Mapping[str, Worker], rounds: int, options: TurnOptions
) -> dict[str, list[float]]:
    """Milliseconds of each engine's turns."""
    turns: dict[str, list[float]] = {name: [] for name in workers}
    for number in range(rounds):
        names = list(workers)
        for name in names if number % 2 == 0 else reversed(names):
            with timing():
                time.sleep(options.settle_s)
                turns[name].append(_turn_ms(name, workers[name], options))
    return turns


def _turn_ms(name: str, worker: Worker, options: TurnOptions) -> float:
    """Median latency of a turn of an engine, in milliseconds."""
    try:
        return 1e3 * statistics.median(
            worker.ask(TimeEngine(seconds=options.turn_s), options.turn_timeout_s)
        )
    except RequestFailed as failed:
        raise WorkFailed(
            f"{name}, which failed while being timed ({failed})",
            "engines that run",
            "leave it out, or run it again",
        ) from failed


def _failure(worker: Worker, request: Message[None], timeout_s: float) -> str | None:
    """Why an engine does not load or run, or None."""
    try:
        worker.ask(request, timeout_s)
    except Lost as lost:
        return lost.kind
    except RequestFailed as failed:
        return str(failed)
    return None


def _latency(turns: list[float], error: float | None) -> Latency:
    return Latency(statistics.median(turns), min(turns), max(turns), tuple(turns), error)
