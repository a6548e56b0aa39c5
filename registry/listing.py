"""What is in the registry, as rows for a table."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from registry.client import connect, translated
from registry.mirror import ALIASES
from registry.names import check_model_name, is_lock
from registry.version import DATASET_TAG, METRIC_PREFIX, PARENT_TAG, Version
from registry.versions import check_known

if TYPE_CHECKING:
    from mlflow import MlflowClient

SHOWN_FIGURES = ("pca", "top1", "latency_ms")


def models(client: "MlflowClient | None" = None) -> list[dict[str, Any]]:
    """One row for each registered model, without our locks."""
    client = client or connect()
    rows: list[dict[str, Any]] = []
    token = None
    with translated("list the registry"):
        while True:
            page = client.search_registered_models(max_results=500, page_token=token)
            for found in (model for model in page if not is_lock(model.name)):
                newest = max((int(v.version) for v in found.latest_versions), default=None)
                held = {alias: _number(dict(found.aliases).get(alias)) for alias in ALIASES}
                rows.append({"name": found.name, "newest": newest, **held})
            token = page.token
            if not token:
                return rows


def versions(name: str, client: "MlflowClient | None" = None) -> list[dict[str, Any]]:
    """One row for each version of a registered model, newest first.

    Raises:
        RequestError: There is no such model.
    """
    client = client or connect()
    with translated(f"list {check_model_name(name)}"):
        check_known(client, name)
        found = list(client.search_model_versions(f"name = '{name}'"))
        aliases: dict[int, list[str]] = {}
        for alias, number in client.get_registered_model(name).aliases.items():
            aliases.setdefault(int(number), []).append(alias)
    found.sort(key=lambda version: -int(version.version))
    rows = [_row(version, aliases.get(int(version.version), [])) for version in found]
    absent = {name for name in SHOWN_FIGURES if all(row[name] is None for row in rows)}
    return [{key: row[key] for key in row if key not in absent} for row in rows]


def _row(found: Any, aliases: list[str]) -> dict[str, Any]:
    version = Version.of(found)
    made = datetime.fromtimestamp((found.creation_timestamp or 0) / 1000, UTC)
    return {
        "version": version.version,
        "stage": version.stage,
        "aliases": aliases,
        "made": made.isoformat(timespec="seconds").removesuffix("+00:00"),
        **{name: _figure(version.tags.get(METRIC_PREFIX + name)) for name in SHOWN_FIGURES},
        "dataset": version.tags.get(DATASET_TAG, "")[:12],
        "parent": version.tags.get(PARENT_TAG, "").removeprefix("models:/"),
        "run_id": version.run_id,
    }


def _figure(text: str | None) -> float | None:
    """A figure of a tag, which may have been edited."""
    try:
        return float(text or "")
    except ValueError:
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text else None
