"""Deployment of the Python API: `hetfeat deploy` without a registry."""

import hashlib
import json
import logging
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hetfeat
from hetfeat.api.bundles import Bundle
from hetfeat.api.devices import Device, as_profile
from hetfeat.api.models import source_model
from hetfeat.api.networks import load_network
from hetfeat.deploy.calibration import as_calibration
from hetfeat.deploy.check_on_device import CheckOptions
from hetfeat.deploy.pipeline import compile_found, deploy
from hetfeat.deploy.precision import FLOAT32, check_precision, need_half, slug_in
from hetfeat.deploy.quantise import import_in_precision
from hetfeat.deploy.request import (
    DeployRequest,
    Imported,
    SourceModel,
    discard,
    existing,
    refuse_unguided,
)
from hetfeat.deploy.signing import signing_key
from hetfeat.devices.host import need_cross_compiler
from hetfeat.devices.probe import home
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import RequestError, not_one_of
from hetfeat.measure.base import need_measurable
from hetfeat.progress import OnProgress, reported_to
from hetfeat.tune.session import BUDGETS
from hetfeat.workloads.exported import network_digest
from hetfeat.workloads.network import Network

if TYPE_CHECKING:
    from hetfeat.models.base import CostModel

log = logging.getLogger(__name__)

KEY_DIGITS = 16
WITHOUT_PEERS = CheckOptions(peers=())
"""No peers: `hetfeat bench` compares a bundle with other engines; each would load the network by
its name."""


def deploy_network(
    network: Network | str,
    device: Device = "local",
    *,
    model: "CostModel | Path | str | None" = None,
    effort: str = "quick",
    trials: int | None = None,
    out: Path | str | None = None,
    seed: int = 0,
    refresh: bool = False,
    journal: Path | None = None,
    on_progress: OnProgress | None = None,
    precision: str = FLOAT32,
    calibration: "Path | str | Sequence[Any] | None" = None,
    max_loss: float | None = None,
) -> Bundle:
    """Tunes and compiles a network for a device, and verifies it against its own framework.

    The same request is found again at once. Ctrl-C ends the tuning: the bundle is of the best so
    far, its report says `interrupted`, and the same call goes on.

    Args:
        network: Network from `load_network`, or a name that it takes.
        device: Profile from `probe`; or `local` (the default), a preset's name or a profile's file.
        model: Cost model to tune with, or the folder of one; `none` to tune without one; default
            None for the packaged one of the device's family, if there is one.
        effort: `quick` (the default), `standard` or `full`: for ResNet-50 on 2 cores at most 5, 25,
            60 minutes.
        trials: Number of programs to measure; default None for what the effort allows, 0 to trust
            the model.
        out: Folder of the bundle, measurements in `OUT.journal`; default None for the user's cache.
        seed: Seed of the search, default 0.
        refresh: Whether to measure and compile anew what lies there, default False.
        journal: `OUT.journal` of the same network with other weights, default None: nothing is
            measured, what it holds is compiled.
        on_progress: Callable that is told of progress as programs are measured, default None.
        precision: `float32` (the default); `float16` or `bfloat16`: weights are stored in it, and
            products computed in it where the device can; or `int8`: quantised with `calibration`,
            and verified against exact integers; the report's `accuracy` says how far that is from
            float32.
        calibration: Inputs to quantise with, of two batches or more: an `.npz` file, a folder of
            images, `module:function`, or an array or tensor for each input; default None.
        max_loss: Most that `int8` may lose, the share of rows with another first class or, without
            classes, noise over signal: layers go back to float32. None, the default, for any.

    Returns:
        The bundle; for a device that is not here it can be copied there, not called.

    Raises:
        RequestError: A network, device or effort that cannot be used, no trials and no model, or a
            bundle of another request at `out`.
        DataError: What lies at `out` is no bundle or has changed, or the calibration data is not
            what the network takes.
        WorkFailed: The compiled network is wrong or does not run.

    Examples:
        >>> import torch, hetfeat
        >>> module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
        >>> network = hetfeat.load_network(module, torch.randn(2, 8))
        >>> bundle = hetfeat.deploy_network(network, model="none", trials=1)
        >>> x = torch.randn(2, 8)
        >>> torch.allclose(bundle(x), module(x), atol=1e-4)
        True
    """
    _check_budget(effort, trials)
    check_precision(precision, calibration, 1, max_loss)
    signing_key()  # one that cannot be used shows before anything is tuned
    profile = as_profile(device)
    need_half(precision, profile.name, profile.target)
    need_measurable(profile)
    need_cross_compiler(profile.name, profile.target)
    with reported_to(on_progress):
        loaded = network if isinstance(network, Network) else load_network(network, seed=seed)
        name, source = source_model(model, profile)
        data = None if calibration is None else as_calibration(calibration)
        request = DeployRequest(
            network=loaded.name,
            slug=slug_in(loaded.name, precision),
            batches=(rows_of(loaded),),
            device=profile.name,
            model=name,
            effort=effort,
            trials=trials,
            seed=seed,
            digest=network_digest(loaded),
            precision=precision,
            calibration=data.digest if data else None,
            max_loss=max_loss,
        )
        refuse_unguided(request, source is not None)
        folder = Path(out) if out else _cache_folder(request, profile)
        if refresh or not existing(request, folder):
            networks = [import_in_precision(request.batches[0], loaded, data, max_loss)]
            _deploy(request, networks, profile, source, folder, refresh, journal)
        else:
            log.info("'%s' is this bundle already", folder)
        return Bundle(folder)


def _check_budget(effort: str, trials: int | None) -> None:
    if effort not in BUDGETS:
        raise not_one_of("effort", effort, BUDGETS, "choose one of them")
    if trials is not None and trials < 0:
        raise RequestError(f"trials {trials}", "none, 0 or more", "correct it")


def rows_of(network: Network) -> int:
    """The batch size that a network's example inputs have."""
    first = network.inputs[0]
    return max(1, int(first.shape[0])) if first.ndim else 1


def _deploy(
    request: DeployRequest,
    networks: list[Imported],
    profile: DeviceProfile,
    source: SourceModel | None,
    out: Path,
    refresh: bool,
    journal: Path | None,
) -> None:
    if refresh:
        discard(out)
    if journal:
        compile_found(request, networks, profile, source, out, journal, WITHOUT_PEERS)
    else:
        deploy(request, networks, profile, source, out, WITHOUT_PEERS)


def _cache_folder(request: DeployRequest, profile: DeviceProfile) -> Path:
    """A folder in the user's cache, named by the request, the device and the versions."""
    facts: list[Any] = [request.as_json(), profile.to_dict(), versions()]
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:KEY_DIGITS]
    return home() / "bundles" / f"{request.slug}-{key}"


def versions() -> list[str]:
    """Of what decides what a network is compiled to."""
    return [hetfeat.__version__, *map(version, ("apache-tvm", "apache-tvm-ffi", "torch"))]
