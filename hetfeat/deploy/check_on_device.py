"""Checks a bundle on its device: that it computes what it should, and how fast it is."""

import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hetfeat.deploy import bundle
from hetfeat.deploy.bench import (
    GPU_PEERS,
    PEERS,
    PEERS_OF_FILES,
    Latency,
    TurnOptions,
    compare,
    peer_runs,
)
from hetfeat.deploy.lowered import Lowered
from hetfeat.deploy.peer_files import write_exact, write_for_peers
from hetfeat.deploy.precision import multiplied_in
from hetfeat.deploy.remote.device import BundleSessionOptions, DeviceBundle, on_device
from hetfeat.deploy.request import DeployRequest
from hetfeat.deploy.runtime import worst
from hetfeat.deploy.stages import Stopwatch
from hetfeat.deploy.verify import (
    Reference,
    Runs,
    Verified,
    refuse_wrong_import,
    rows_are_independent,
    verify,
)
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import WorkFailed
from hetfeat.measure.remote.session import Quarantine
from hetfeat.parsing import printable
from hetfeat.workloads.convolution_variants import count_occurrences

log = logging.getLogger(__name__)


def _rounds() -> dict[str, int]:
    return {"quick": 20, "standard": 20, "full": 40}


@dataclass(frozen=True)
class CheckOptions:
    """How a bundle is checked and timed on its device.

    Attributes:
        peers: Names of engines to time beside it where the device is here, each of which loads the
            network by its name; None, the default, for all of them.
        rounds: Turns of each engine in the comparison, by effort, by default 20, 20 and 40:
            docs/measuring.md tells why so many.
        picked_rounds: Most turns of each where nothing is measured, 6 by default: who asks for no
            tuning wants to wait for seconds.
        few_rounds: Turns of what is timed by itself, the untuned network and the other batch sizes;
            2 by default.
        slow_ms: Latency in milliseconds above which an untuned network is not run once more to
            compare what it computes; 10,000 by default.
        untuned: Whether to time the untuned network however long that takes, and where nothing is
            tuned; False by default.
        untuned_s: Longest that a run of an untuned network may be expected to take to be the first
            that is built, in seconds; 1 by default.
        untuned_flops_per_s: Pace at which that is expected, on a CPU; 1e9 by default: ResNet-18 and
            ResNet-50 ran at 0.7e9 to 0.9e9 on two cores.
        turns: Settings of the turns; those of `TurnOptions` by default.
        session: Settings of the session with a server, where the device is not here; those of
            `BundleSessionOptions` by default.
    """

    peers: Sequence[str] | None = None
    rounds: Mapping[str, int] = field(default_factory=_rounds)
    picked_rounds: int = 6
    few_rounds: int = 2
    slow_ms: float = 1e4
    untuned: bool = False
    untuned_s: float = 1.0
    untuned_flops_per_s: float = 1e9
    turns: TurnOptions = field(default_factory=TurnOptions)
    session: BundleSessionOptions = field(default_factory=BundleSessionOptions)

    def rounds_of(self, request: DeployRequest) -> int:
        """Turns of each engine in the comparison."""
        rounds = self.rounds[request.effort]
        return min(rounds, self.picked_rounds) if request.trials == 0 else rounds

    def runs_soon(self, lowered: Lowered) -> bool:
        """Whether a run of the untuned network is expected to take at most `untuned_s`."""
        tasks = lowered.tasks_of_each[0]
        weights = count_occurrences(tasks)
        flops = sum(task.task.flops * weights[task.task.hash] for task in tasks)
        on_gpu = lowered.profile.target.is_gpu
        return on_gpu or flops <= self.untuned_s * self.untuned_flops_per_s


CHECK_DEFAULTS = CheckOptions()


@dataclass(frozen=True)
class Checked:
    """What came out on the device; None for what does not run there.

    Attributes:
        verified: Largest error over all inputs, and what was allowed.
        latency: Latency of the first batch size.
        peers: Latencies of the other engines, by name.
        batches: Latencies of the other batch sizes, by batch size.
        left_out: Reasons why engines have no latency, by name.
        seconds: Wall time of verifying and of timing, by stage; default none.
    """

    verified: Verified
    latency: Latency
    peers: dict[str, Latency | None]
    batches: dict[int, Latency | None]
    left_out: dict[str, str]
    seconds: Mapping[str, float] = field(default_factory=dict)


def check_untuned(
    profile: DeviceProfile,
    folder: Path,
    reference: Reference,
    put_aside: Quarantine,
    options: CheckOptions = CHECK_DEFAULTS,
) -> Latency | None:
    """Times a first bundle on its device and compares what it computes, before any tuning.

    Args:
        profile: Profile of the device.
        folder: Folder of the bundle, mostly the untuned one.
        reference: Outputs that it should compute.
        put_aside: Callable that puts measurements aside, as in `check_tuned`.
        options: Settings, those of `CheckOptions` by default.

    Returns:
        The latency; None where it does not run, or not in time: that alone refuses nothing.

    Raises:
        DeviceLost: No server of the device could be had.
        WorkFailed: It computes something else.
    """
    if profile.route.is_local:
        return _check_untuned_here(profile, folder, reference, options)

    wrong: list[WorkFailed] = []

    def on_server(loaded: DeviceBundle) -> Latency:
        latency = loaded.latency(options.few_rounds)
        try:
            refuse_wrong_import(loaded, reference)
        except WorkFailed as error:
            wrong.append(error)
            raise
        return latency

    try:
        return on_device(profile, folder, on_server, put_aside, options.session)
    except WorkFailed as error:
        if error in wrong:
            raise
        log.warning("the untuned network was not timed: %s", error)
        return None


def _check_untuned_here(
    profile: DeviceProfile, folder: Path, reference: Reference, options: CheckOptions
) -> Latency | None:
    gpu = {"gpu": True} if profile.target.is_gpu else {}
    engines = {"untuned": {"engine": "bundle", "bundle": str(folder), **gpu}}
    timed = compare(
        engines, profile.threads, options.few_rounds, first_needed=False, options=options.turns
    )
    latency = timed["untuned"]
    if latency and latency.median_ms < options.slow_ms:
        refuse_wrong_import(bundle.load_bundle(folder), reference)
    else:
        log.warning("the untuned network was not compared: it does not run, or not in time")
    return latency


def check_tuned(
    lowered: Lowered, folder: Path, put_aside: Quarantine, options: CheckOptions = CHECK_DEFAULTS
) -> Checked:
    """Verifies a bundle where it is to run, then times it beside all else that runs there.

    Args:
        lowered: Networks that it was built of.
        folder: Folder of the bundle; it is told whether it takes any number of rows.
        put_aside: Callable that puts aside the records of a server that is not the device.
        options: Settings, those of `CheckOptions` by default.

    Raises:
        DeviceLost: No server of the device could be had to verify on.
        WorkFailed: The compiled network is wrong or does not run.
    """
    if len(lowered.networks) > 1:
        bundle.add_facts(folder, {"any_rows": True})  # only so are the other sizes reached
    watch = Stopwatch()
    if lowered.profile.route.is_local:
        with watch.stage("verifying"):
            verified = _verify(lowered, folder, bundle.load_bundle(folder))
        with watch.stage("timing"):
            checked = _time_here(lowered, folder, verified, options)
        return replace(checked, seconds=watch.seconds)
    first, *others = lowered.request.batches
    rounds = options.rounds_of(lowered.request)

    def on_server(loaded: DeviceBundle) -> Checked:
        with watch.stage("verifying"):
            verified = _verify(lowered, folder, loaded)
        with watch.stage("timing"):
            batches: dict[int, Latency | None] = {
                batch: loaded.latency(options.few_rounds, batch) for batch in others
            }
            latency = loaded.latency(rounds, first)
        elsewhere = dict.fromkeys(PEERS, f"'{lowered.profile.name}' is behind a tracker")
        peers = dict.fromkeys(PEERS)
        return Checked(verified, latency, peers, batches, elsewhere, watch.seconds)

    return on_device(lowered.profile, folder, on_server, put_aside, options.session)


def _verify(lowered: Lowered, folder: Path, loaded: Runs) -> Verified:
    """Verifies each batch size and, if all allow it, opens the bundle to any number of rows."""
    verified = [verify(loaded, reference) for reference in lowered.references]
    independent = [
        rows_are_independent(loaded, reference, imported.batch)
        for imported, reference in zip(lowered.networks, lowered.references, strict=True)
    ]
    if len(lowered.networks) > 1 and not all(independent):
        raise WorkFailed(
            f"network '{lowered.request.network}', whose rows depend on each other",
            "rows of their own, to compile it for several batch sizes",
            "pass --batch with one size",
        )
    bundle.add_facts(folder, {"any_rows": all(independent)})
    furthest_off = Verified(*worst((of.max_abs_error, of.tolerance) for of in verified))
    log.info("verified: largest error %.3g", furthest_off.max_abs_error)
    return furthest_off


def _time_here(
    lowered: Lowered, folder: Path, verified: Verified, options: CheckOptions
) -> Checked:
    request, threads = lowered.request, lowered.profile.threads
    gpu = lowered.profile.target.is_gpu
    where = {"gpu": True} if gpu else {}
    tuned = {"engine": "bundle", "bundle": str(folder), **where}
    names = options.peers if options.peers is not None else GPU_PEERS if gpu else PEERS
    rounds = options.rounds_of(request)
    shown = dict.fromkeys([*PEERS, *names])
    kind = lowered.networks[0].network.kind
    left_out = _left_out(shown, names, kind, gpu)
    able = [name for name in names if name not in left_out]
    with _settings_of_peers(lowered, able) as of_each:
        peers = {name: {"engine": name, **settings, **where} for name, settings in of_each.items()}
        if peers:
            log.info("comparing with %s, %d threads each", ", ".join(peers), threads)
        timed = compare(
            {"bundle": tuned, **peers},
            threads,
            rounds,
            options=options.turns,
            leave_out=left_out.__setitem__,
        )
    latency = timed.pop("bundle")
    assert latency is not None  # `compare` needs the first to work
    batches = {}
    for batch in request.batches[1:]:
        engines = {"bundle": tuned | {"batch": batch}}
        alone = compare(engines, threads, options.few_rounds, options=options.turns)
        batches[batch] = alone["bundle"]
    left_out = {name: printable(" ".join(why.split()), 200) for name, why in left_out.items()}
    return Checked(verified, latency, shown | timed, batches, left_out)


def _left_out(shown: Iterable[str], names: Sequence[str], kind: str, gpu: bool) -> dict[str, str]:
    """Why engines that are shown are not started."""
    unasked = "it is compared with on CPUs alone" if gpu else "it was not asked for"
    unable = f"it runs no networks of {kind} here"
    return {
        name: unable if name in names else unasked
        for name in shown
        if name not in names or not peer_runs(name, kind)
    }


@contextmanager
def _settings_of_peers(lowered: Lowered, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """How each peer loads the first network, for as long as they may.

    What reads ONNX is given one file: no other process imports torch to write it again.
    """
    request, network = lowered.request, lowered.networks[0].network
    half = multiplied_in(request.precision, lowered.profile.target)
    named = {"network": request.network, "batch": request.batches[0], "seed": request.seed}
    named |= {"outputs": request.outputs, "half": half}
    readers = set(PEERS_OF_FILES["ONNX"]) & set(names)
    with tempfile.TemporaryDirectory() as folder:
        written = write_for_peers(network, Path(folder)) if readers else None
        if written:
            written |= write_exact(lowered.references[0], Path(folder))
            written |= {"half": half}
        yield {name: written if written and name in readers else named for name in names}
