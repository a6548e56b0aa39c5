"""What is in the registry, as rows for a table."""

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hetfeat.errors import RequestError
from registry.models.aliases import ALIASES
from registry.models.mlflow_client import (
    MODELS_A_PAGE,
    condition,
    connect,
    pages,
    translated,
)
from registry.models.names import check_model_name, is_lock
from registry.models.version import DATASET_TAG, PARENT_TAG, Version, figure_of
from registry.models.versions import check_known, resolve, search_versions

if TYPE_CHECKING:
    from mlflow import MlflowClient

SHOWN_FIGURES = ("pca", "top1", "latency_ms")


def models(client: "MlflowClient | None" = None) -> list[dict[str, Any]]:
    """One row for each registered model, without our locks.

    Figures are those of the version in production, or of the newest where none is.
    """
    client = client or connect()
    rows: list[dict[str, Any]] = []
    with translated("list the registry"):
        for model in pages(client.search_registered_models, MODELS_A_PAGE):
            if not is_lock(model.name):
                rows.append(_model_row(client, model))
    return _without_absent_figures(rows)


def _model_row(client: "MlflowClient", model: Any) -> dict[str, Any]:
    latest = {int(version.version): version for version in model.latest_versions}
    newest = max(latest, default=None)
    held = {alias: _number(dict(model.aliases).get(alias)) for alias in ALIASES}
    shown = held["production"] or newest
    figures: dict[str, float | None] = dict.fromkeys(SHOWN_FIGURES)
    if shown in latest:
        figures = _figures(Version.of(latest[shown]))
    elif shown is not None:  # MLflow's own stage says something else than the alias
        with contextlib.suppress(RequestError):
            figures = _figures(resolve(f"models:/{model.name}/{shown}", client=client))
    made = _made(latest[newest]) if newest else None
    return {"name": model.name, "newest": newest, "made": made, **held, **figures}


def versions(name: str, client: "MlflowClient | None" = None) -> list[dict[str, Any]]:
    """One row for each version of a registered model, newest first.

    Raises:
        RequestError: There is no such model.
    """
    client = client or connect()
    with translated(f"list {check_model_name(name)}"):
        model = check_known(client, name)
        registered = list(search_versions(client, condition("name", name)))
        aliases: dict[int, list[str]] = {}
        for alias, number in model.aliases.items():
            aliases.setdefault(int(number), []).append(alias)
    registered.sort(key=lambda version: -int(version.version))
    rows = [_row(version, aliases.get(int(version.version), [])) for version in registered]
    return _without_absent_figures(rows)


def _row(registered: Any, aliases: list[str]) -> dict[str, Any]:
    version = Version.of(registered)
    return {
        "version": version.version,
        "stage": version.stage,
        "aliases": aliases,
        "made": _made(registered),
        **_figures(version),
        "dataset": version.tags.get(DATASET_TAG, "")[:12],
        "parent": version.tags.get(PARENT_TAG, "").removeprefix("models:/"),
        "run_id": version.run_id,
    }


def _made(registered: Any) -> str:
    """When a version was made, in UTC."""
    made = datetime.fromtimestamp((registered.creation_timestamp or 0) / 1000, UTC)
    return made.isoformat(timespec="seconds").removesuffix("+00:00")


def _figures(version: Version) -> dict[str, float | None]:
    return {name: figure_of(version, name) for name in SHOWN_FIGURES}


def _without_absent_figures(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    absent = {name for name in SHOWN_FIGURES if all(row[name] is None for row in rows)}
    return [{key: row[key] for key in row if key not in absent} for row in rows]


def _number(text: str | None) -> int | None:
    return int(text) if text else None
