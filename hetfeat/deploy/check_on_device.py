"""Proves a bundle on its device: that it computes what it should, and how fast it is."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hetfeat.deploy import bundle
from hetfeat.deploy.bench import GPU_PEERS, PEERS, Latency, compare
from hetfeat.deploy.remote.device import DeviceBundle, on_device
from hetfeat.deploy.request import DeployRequest, Imported
from hetfeat.deploy.runtime import worst
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

log = logging.getLogger(__name__)

ROUNDS = {"quick": 20, "standard": 20, "full": 40}
"""Turns of each engine in the comparison, by effort: docs/measuring.md tells why so many."""
UNTUNED_ROUNDS = 2
SLOW_MS = 1e4
"""Latency in milliseconds above which an untuned network is not run once more to compare what it
computes."""


@dataclass(frozen=True)
class Proof:
    """What came out on the device; None for what does not run there.

    Attributes:
        verified: Largest error over all inputs, and what was allowed.
        latency: Latency of the first batch size.
        peers: Latencies of the other engines, by name.
        batches: Latencies of the other batch sizes, by batch size.
    """

    verified: Verified
    latency: Latency
    peers: dict[str, Latency | None]
    batches: dict[int, Latency | None]


def try_untuned(
    profile: DeviceProfile, untuned: Path, reference: Reference, keep: Quarantine
) -> Latency | None:
    """Times the untuned bundle on its device and compares what it computes, before any tuning.

    Args:
        profile: Profile of the device.
        untuned: Folder of the untuned bundle.
        reference: Outputs that it should compute.
        keep: Callable that puts measurements aside, as in `prove`.

    Returns:
        The latency; None where it does not run, or not in time: that alone refuses nothing.

    Raises:
        DeviceLost: No server of the device could be had.
        WorkFailed: It computes something else.
    """
    if not reference.tells:
        log.warning(
            "verified little: output %s of '%s' hardly changes with the inputs (%s)",
            ", ".join(reference.silent),
            reference.network.name,
            "; ".join(reference.values),
        )
    if profile.route.is_local:
        gpu = {"gpu": True} if profile.target.is_gpu else {}
        engine = {"engine": "bundle", "bundle": str(untuned), **gpu}
        compared = compare({"untuned": engine}, profile.threads, UNTUNED_ROUNDS, first_needed=False)
        latency = compared["untuned"]
        if latency and latency.median_ms < SLOW_MS:
            refuse_wrong_import(bundle.load_bundle(untuned), reference)
        else:
            log.warning("the untuned network was not compared: it does not run, or not in time")
        return latency

    wrong: list[WorkFailed] = []

    def there(loaded: DeviceBundle) -> Latency:
        latency = loaded.latency(UNTUNED_ROUNDS)
        try:
            refuse_wrong_import(loaded, reference)
        except WorkFailed as error:
            wrong.append(error)
            raise
        return latency

    try:
        return on_device(profile, untuned, there, keep)
    except WorkFailed as error:
        if error in wrong:
            raise
        log.warning("the untuned network was not timed: %s", error)
        return None


def prove(
    request: DeployRequest,
    networks: Sequence[Imported],
    profile: DeviceProfile,
    draft: Path,
    references: Sequence[Reference],
    keep: Quarantine,
    peers: Sequence[str] | None = None,
) -> Proof:
    """Verifies a bundle where it is to run, then times it beside all else that runs there.

    Args:
        request: Request of the deployment.
        networks: The network for each of its batch sizes.
        profile: Profile of the device.
        draft: Folder of the bundle; it is told whether it takes any number of rows.
        references: Outputs that each network should compute.
        keep: Callable that puts aside the records of a server that is not the device.
        peers: Names of engines to time beside it where that is here; default None for all of them.

    Raises:
        DeviceLost: No server of the device could be had to verify on.
        WorkFailed: The compiled network is wrong or does not run.
    """
    if len(networks) > 1:
        bundle.add_facts(draft, {"any_rows": True})  # only so are the other sizes reached
    if profile.route.is_local:
        verified = _verify(request, networks, references, draft, bundle.load_bundle(draft))
        return _timed_here(request, profile, draft, verified, peers)
    first, *others = request.batches

    def there(loaded: DeviceBundle) -> tuple[Verified, dict[int, Latency | None], Latency]:
        verified = _verify(request, networks, references, draft, loaded)
        batches: dict[int, Latency | None] = {
            batch: loaded.latency(UNTUNED_ROUNDS, batch) for batch in others
        }
        return verified, batches, loaded.latency(ROUNDS[request.effort], first)

    verified, batches, latency = on_device(profile, draft, there, keep)
    return Proof(verified, latency, dict.fromkeys(PEERS), batches)


def _verify(
    request: DeployRequest,
    networks: Sequence[Imported],
    references: Sequence[Reference],
    draft: Path,
    loaded: Runs,
) -> Verified:
    """Verifies each batch size and, if all allow it, opens the bundle to any number of rows."""
    verified = [verify(loaded, reference) for reference in references]
    independent = [
        rows_are_independent(loaded, reference, found.batch)
        for found, reference in zip(networks, references, strict=True)
    ]
    if len(networks) > 1 and not all(independent):
        raise WorkFailed(
            f"network '{request.network}', whose rows depend on each other",
            "rows of their own, to compile it for several batch sizes",
            "pass --batch with one size",
        )
    bundle.add_facts(draft, {"any_rows": all(independent)})
    found = Verified(*worst((of.max_abs_error, of.tolerance) for of in verified))
    log.info("verified: largest error %.3g", found.max_abs_error)
    return found


def _timed_here(
    request: DeployRequest,
    profile: DeviceProfile,
    draft: Path,
    verified: Verified,
    peers: Sequence[str] | None,
) -> Proof:
    first, *others = request.batches
    gpu = profile.target.is_gpu
    where = {"gpu": True} if gpu else {}
    own = {"engine": "bundle", "bundle": str(draft), **where}
    network = {"network": request.network, "batch": first, "seed": request.seed}
    network |= {"outputs": request.outputs}
    if peers is None:
        peers = GPU_PEERS if gpu else PEERS
    rivals = {name: {"engine": name, **network, **where} for name in peers}
    if rivals:
        log.info("comparing with %s, %d threads each", ", ".join(rivals), profile.threads)
    timed = compare({"bundle": own, **rivals}, profile.threads, ROUNDS[request.effort])
    latency = timed.pop("bundle")
    assert latency is not None  # `compare` needs the first to work
    few = profile.threads, UNTUNED_ROUNDS
    batches = {b: compare({"bundle": own | {"batch": b}}, *few)["bundle"] for b in others}
    return Proof(verified, latency, dict.fromkeys(PEERS) | timed, batches)
