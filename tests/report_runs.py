"""Runs made up by hand, as `registry.tracking.finished_runs` would read them."""

from datetime import UTC, datetime, timedelta

from hetfeat.report.run import Run
from hetfeat.report.scope import SIZES, Device, Scope

DIGEST, FEATURES, HERE = "d" * 64, "2", "zen4-avx512-2t"
START = datetime(2026, 11, 20, 12, tzinfo=UTC)


def scope(effort: str = "standard", devices: tuple[str, ...] = (HERE, "zen4-avx2-2t")) -> Scope:
    return Scope(
        digest=DIGEST,
        features=FEATURES,
        effort=effort,
        size=SIZES[effort],
        devices={name: Device(name, "cpu", "profile of one CPU") for name in devices},
        measured={"cpu": devices},
        families={"cpu": "cpu-x86"},
    )


def training(
    number: int,
    model: str = "xgb",
    split: str = "by_task",
    *,
    pruned: bool = False,
    seed: int = 0,
    holdout: str = "",
    digest: str = DIGEST,
    effort: str = "standard",
    records: int = 1000,
    changed: str = "",
    **metrics: float,
) -> Run:
    settings = {
        "model": model,
        "split": split,
        "pruned": str(pruned),
        "seed": str(seed),
        "holdout": holdout,
        "effort": effort,
        "family": "cpu-x86",
        "train_records": str(records),
        "set": changed,
    }
    return Run(
        id=f"train{number}",
        command="train",
        started=START + timedelta(days=number),
        duration_s=60.0,
        device=f"{HERE},zen4-avx2-2t",
        params={f"resolved.{key}": value for key, value in settings.items()},
        metrics=metrics,
        tags={"dataset_digest": digest, "feature_version": FEATURES, "system.cpu": "AMD EPYC"},
    )


def deployment(
    number: int,
    network: str = "resnet50",
    batches: tuple[int, ...] = (1,),
    *,
    effort: str = "standard",
    source: str | None = None,
    search: str = "evolution",
    **metrics: float,
) -> Run:
    settings = {
        "batches": str(batches),
        "effort": effort,
        "trials": "None",
        "seed": "0",
        "search": search,
        "model": f"models:/costmodel.cpu-x86/{number}" if source else "None",
    }
    return Run(
        id=f"deploy{number}",
        command="deploy",
        started=START,
        duration_s=60.0,
        device=HERE,
        params={f"resolved.{key}": value for key, value in settings.items()},
        metrics=metrics,
        tags={"network": network},
        source=source,
    )


def search(strategy: str, best_ms: float, *, seed: int = 0, budget: int = 484) -> Run:
    settings = {
        "space": f"gemm 512,512,512 on {HERE}",
        "space_size": "484000",
        "budget": str(budget),
        "seed": str(seed),
        "repeats": "1",
    }
    return Run(
        id=f"{strategy}{seed}",
        command="search",
        started=START,
        duration_s=9.0,
        device="AMD EPYC",
        params={f"resolved.{key}": value for key, value in settings.items()}
        | {"strategy": strategy},
        metrics={"best_ms": best_ms, "search_s": 2.0, "measuring_s": 40.0},
        parent="whole",
    )
