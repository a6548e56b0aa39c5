"""Proves a bundle on its device: that it computes what it should, and how fast it is."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetfeat.deploy import bundle
from hetfeat.deploy.bench import GPU_PEERS, PEERS, Latency, compare
from hetfeat.deploy.remote.device import DeviceBundle, latency_if_it_runs, on_device
from hetfeat.deploy.request import DeployRequest, Imported
from hetfeat.deploy.verify import Runs, Verified, rows_are_independent, verify
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import WorkFailed
from hetfeat.measure.remote.lane import Quarantine

log = logging.getLogger(__name__)

ROUNDS = {"quick": 20, "standard": 20, "full": 40}
"""Turns of each engine in the comparison: docs/measuring.md tells why so many."""
UNTUNED_ROUNDS = 2


@dataclass(frozen=True)
class Proof:
    """What came out on the device; None for what does not run there.

    Attributes:
        verified: The largest error.
        latency: Of the first batch size.
        peers: Of the other engines, by name.
        batches: Of the other batch sizes.
        untuned: Of the network compiled without tuning.
    """

    verified: Verified
    latency: Latency
    peers: dict[str, Latency | None]
    batches: dict[int, Latency | None]
    untuned: Latency | None


def prove(
    request: DeployRequest,
    networks: Sequence[Imported],
    profile: DeviceProfile,
    draft: Path,
    untuned: Callable[[], Path],
    keep: Quarantine,
) -> Proof:
    """Verifies a bundle where it is to run, then times it beside all else that runs there.

    Args:
        request: What was asked for.
        networks: The network for each of its batch sizes.
        profile: The device.
        draft: The bundle; it is told whether it takes any number of rows.
        untuned: Makes the same bundle without tuning, once `draft` is verified.
        keep: Puts aside the records of a server that is not the device.

    Raises:
        DeviceLost: No server of the device could be had to verify on.
        WorkFailed: The compiled network is wrong or does not run.
    """
    if len(networks) > 1:
        bundle.add_facts(draft, {"any_rows": True})  # only so are the other sizes reached
    if profile.route.get("kind") == "local":
        verified = _verify(request, networks, draft, bundle.load_bundle(draft))
        return _timed_here(request, profile, draft, untuned(), verified)
    first, *others = request.batches

    def there(loaded: DeviceBundle) -> tuple[Verified, dict[int, Latency | None], Latency]:
        verified = _verify(request, networks, draft, loaded)
        batches: dict[int, Latency | None] = {
            batch: loaded.latency(UNTUNED_ROUNDS, batch) for batch in others
        }
        return verified, batches, loaded.latency(ROUNDS[request.effort], first)

    verified, batches, latency = on_device(profile, draft, there, keep)
    plain = latency_if_it_runs(profile, untuned(), UNTUNED_ROUNDS, keep)
    return Proof(verified, latency, dict.fromkeys(PEERS), batches, plain)


def _verify(
    request: DeployRequest, networks: Sequence[Imported], draft: Path, loaded: Runs
) -> Verified:
    """Verifies each batch size and, if all allow it, opens the bundle to any number of rows."""
    verified = [verify(loaded, found.network, request.seed) for found in networks]
    independent = [rows_are_independent(loaded, f.network, f.batch) for f in networks]
    if len(networks) > 1 and not all(independent):
        raise WorkFailed(
            f"network '{request.network}', whose rows depend on each other",
            "rows of their own, to compile it for several batch sizes",
            "pass --batch with one size",
        )
    bundle.add_facts(draft, {"any_rows": all(independent)})
    worst = max(verified, key=lambda v: v.max_abs_error - v.tolerance)
    log.info("verified: largest error %.3g", worst.max_abs_error)
    return worst


def _timed_here(
    request: DeployRequest, profile: DeviceProfile, draft: Path, untuned: Path, verified: Verified
) -> Proof:
    first, *others = request.batches
    gpu = profile.target["kind"] == "cuda"
    where = {"gpu": True} if gpu else {}
    own = {"engine": "bundle", "bundle": str(draft), **where}
    network = {"network": request.network, "batch": first, "seed": request.seed}
    rivals = {n: {"engine": n, **network, **where} for n in (GPU_PEERS if gpu else PEERS)}
    log.info("comparing with %s, %d threads each", ", ".join(rivals), profile.threads)
    timed = compare({"bundle": own, **rivals}, profile.threads, ROUNDS[request.effort])
    latency = timed.pop("bundle")
    assert latency is not None  # `compare` needs the first to work
    few = profile.threads, UNTUNED_ROUNDS
    batches = {b: compare({"bundle": own | {"batch": b}}, *few)["bundle"] for b in others}
    plain = compare({"untuned": own | {"bundle": str(untuned)}}, *few, first_needed=False)
    return Proof(verified, latency, dict.fromkeys(PEERS) | timed, batches, plain["untuned"])
