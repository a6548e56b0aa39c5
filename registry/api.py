"""What `registry` offers in Python: the commands of the same names, as functions.

All of them work where MLflow's own variables say, by default in `sqlite:///mlflow.db`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetfeat.api.bundles import Bundle
from hetfeat.deploy.precision import FLOAT32
from hetfeat.deploy.report import DeployReport
from hetfeat.errors import not_one_of
from hetfeat.models.settings import parsed
from hetfeat.progress import OnProgress, reported_to
from hetfeat.search.strategies import EVOLUTION
from hetfeat.tune.session import BUDGETS

SOURCE_STAGE = "production"


@dataclass(frozen=True)
class Trained:
    """A cost model that `train` has registered.

    Attributes:
        name: Name of the registered model, such as `costmodel.cpu-x86`.
        version: Number of the version.
        run_id: Id of the training's MLflow run.
        metrics: Figures of the test side by name: `pca`, `rmse`, `r2`, `top1`, `top5`.
    """

    name: str
    version: int
    run_id: str
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Deployed:
    """A bundle that `deploy` has registered.

    Attributes:
        bundle: The loaded bundle, called like a function.
        version: URI of the bundle's registered version.
        run_id: Id of the deployment's MLflow run, None if the registry does not know it.
        report: What deploying it came to.
    """

    bundle: Bundle
    version: str
    run_id: str | None
    report: DeployReport


def train(
    records: Path | str | None = None,
    *,
    model: str = "xgb",
    family: str | None = None,
    split: str = "by_task",
    holdout: Sequence[str] = (),
    effort: str = "standard",
    seed: int = 0,
    pruned: bool = False,
    settings: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Trained:
    """Trains a cost model, judges it on what it has not seen, logs it and registers it.

    Args:
        records: A record store's folder; default None for the packaged one.
        model: Kind of model: `xgb`, `lgbm`, `mlp`, `attention`, or a plug-in's; default `xgb`.
        family: Family or union of devices; default None for that of the records.
        split: Way of holding out: `within_task`, `by_task` or `by_target`; default `by_task`.
        holdout: Devices (of by_target) or networks (of by_task) to test on; default none named.
        effort: `quick`, `standard` or `full`; default `standard`.
        seed: Seed of training, default 0.
        pruned: Whether to prune the training side, default False.
        settings: Hyperparameters that are not those of the effort, by name; default None.
        on_progress: Callable that is told of each round, default None.

    Raises:
        RequestError: Unknown model, family, split, holdout or hyperparameter.
        DataError: Records that are missing, damaged or too few.

    Examples:
        >>> import registry
        >>> trained = registry.train("records", effort="quick")
        >>> trained.name, 0 < trained.metrics["pca"] <= 1
        ('costmodel.cpu-x86', True)
    """
    from registry.jobs.train import TrainingRequest, train_and_register

    _check_effort(effort)
    request = TrainingRequest(
        records=Path(records) if records is not None else None,
        family=family,
        model=model,
        split=split,
        holdout=tuple(holdout),
        effort=effort,
        seed=seed,
        pruned=pruned,
        settings=parsed(model, [f"{name}={_text(v)}" for name, v in (settings or {}).items()]),
    )
    with reported_to(on_progress):
        report = train_and_register(request)
    return Trained(report["model"], report["version"], report["run_id"], report["metrics"])


def deploy(
    network: str,
    device: str = "local",
    *,
    model: str | None = None,
    stage: str | None = None,
    effort: str = "quick",
    trials: int | None = None,
    batch: Sequence[int] = (1,),
    out: Path | str = "bundle",
    seed: int = 0,
    refresh: bool = False,
    search: str = EVOLUTION,
    unrecorded: bool = False,
    on_progress: OnProgress | None = None,
    precision: str = FLOAT32,
    calibration: Path | str | None = None,
    max_loss: float | None = None,
) -> Deployed:
    """Tunes and compiles a network with a registered cost model, compares it, and registers it.

    Ctrl-C ends the tuning: the bundle is of the best so far, and the same call goes on.

    Args:
        network: Name of a torchvision or timm network, a file, or `module:function`.
        device: `local`, a preset's name, or the path of a profile's file; default `local`.
        model: Registered name, or a version such as `models:/costmodel.cpu-x86@production`; default
            None for the one of the device's family, `none` to tune without one.
        stage: Stage of the model; default None for production if there is one, else no model.
        effort: `quick`, `standard` or `full`; default `quick`.
        trials: Number of programs to measure; default None for what the effort allows, 0 to trust
            the model.
        batch: Batch sizes in rows, the one to compare with other engines first; default 1.
        out: Folder of the bundle, default `bundle`.
        seed: Seed of weights, inputs and search; default 0.
        refresh: Whether to replace a bundle that is there, default False.
        search: Strategy that proposes programs; default `evolution`, which alone asks the model.
        unrecorded: Whether to follow an alias to where no promotion put it, too; default False.
        on_progress: Callable that is told of progress as programs are measured, default None.
        precision: `float32` (the default), `float16`, `bfloat16` or `int8`, as in
            `hetfeat.deploy_network`.
        calibration: Inputs to quantise with: an `.npz` file, a folder of images or
            `module:function`; default None.
        max_loss: Most that `int8` may lose, as in `hetfeat.deploy_network`; default None.

    Raises:
        RequestError: No such device, network, model or stage, or a device that cannot be measured.
        DataError: What lies at `out` is no bundle or has changed, or the calibration data is not
            what the network takes.
        WorkFailed: The compiled network is wrong or does not run.

    Examples:
        >>> import torch, registry
        >>> module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
        >>> torch.export.save(torch.export.export(module, (torch.randn(1, 8),)), "small.pt2")
        >>> model = "models:/costmodel.cpu-x86@production"
        >>> deployed = registry.deploy("small.pt2", model=model, trials=1)
        >>> deployed.version, deployed.report.model_version
        ('models:/network.small_....here/1', 'models:/costmodel.cpu-x86/1')
    """
    from registry.jobs.deploy import DeployJob, deploy_and_register

    _check_effort(effort)
    job = DeployJob(
        network,
        Path(out),
        device=device,
        model=model,
        stage=stage,
        effort=effort,
        trials=trials,
        batch=tuple(batch),
        refresh=refresh,
        seed=seed,
        search=search,
        unrecorded=unrecorded,
        precision=precision,
        calibration=None if calibration is None else str(calibration),
        max_loss=max_loss,
    )
    with reported_to(on_progress):
        made = deploy_and_register(job)
    return Deployed(Bundle(out), made.bundle_version, made.run_id, made.report)


def promote(
    name: str, version: int, to: str = "staging", *, reason: str = "", force: bool = False
) -> bool:
    """Moves a version of a registered model to a stage, through its gates.

    Args:
        name: Name of the registered model.
        version: Number of the version.
        to: Target stage: `staging` (the default), `production` or `archived`.
        reason: Text kept in the history, default empty; an override needs one.
        force: Whether to override gates that refuse, but for that of its files; default False.

    Returns:
        Whether it moved; False where it was there already.

    Raises:
        RequestError: No such model, version or move, or not allowed to this user.
        GateRefused: A gate said no; its `outcome` says what each said.

    Examples:
        >>> import registry
        >>> registry.promote("costmodel.cpu-x86", 1, "production")
        False
    """
    from registry.files.moves import promote as move

    return move(name, version, to, reason=reason, force=force).entry is not None


def pull_version(
    model: str,
    out: Path | str,
    *,
    stage: str | None = None,
    device: str | None = None,
    unrecorded: bool = False,
) -> str:
    """Brings the files of a version here, each checked against the digest it was registered with.

    Args:
        model: Registered name, or a version such as `models:/costmodel.cpu-x86/1`.
        out: A new folder; `hetfeat.load_model` or `hetfeat.load_bundle` reads it.
        stage: Stage that a plain name means; default None for production.
        device: Name of the device whose version is preferred, default None.
        unrecorded: Whether to follow an alias to where no promotion put it, too; default False.

    Returns:
        URI of the version.

    Raises:
        RequestError: No such version, or `out` is in use.
        DataError: A file is not what was registered, and nothing is kept.
        WorkFailed: The registry does not answer and nothing is known from before.

    Examples:
        >>> import hetfeat, registry
        >>> registry.pull_version("costmodel.cpu-x86", "pulled")
        'models:/costmodel.cpu-x86/1'
        >>> model = hetfeat.load_model("pulled")
    """
    from registry.files.pull import pull

    if stage is None and "/" not in model and "@" not in model:
        stage = SOURCE_STAGE
    return pull(model, stage, device=device, out=Path(out), unrecorded=unrecorded).version.uri


def list_versions(name: str | None = None) -> list[dict[str, Any]]:
    """The registered models, or the versions of one, newest first, a dictionary each.

    Args:
        name: Name of a registered model; default None for all models.

    Raises:
        RequestError: No such model.

    Examples:
        >>> import registry
        >>> [model["name"] for model in registry.list_versions()]
        ['costmodel.cpu-x86']
        >>> registry.list_versions("costmodel.cpu-x86")[-1]["stage"]
        'production'
    """
    from registry.tracking import listing

    return listing.models() if name is None else listing.versions(name)


def _check_effort(effort: str) -> None:
    if effort not in BUDGETS:
        raise not_one_of("effort", effort, BUDGETS, "choose one of them")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
