"""Fills a registry as years of training and promotion would, straight in its database."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from registry.files.manifest import write_manifest
from registry.models import ledger
from registry.models.mlflow_client import connect
from registry.models.transition import content_of
from registry.models.version import MANIFEST_TAG

BATCH = 1000
Row = dict[str, Any]


def fill(
    uri: str, models: int, versions: int, folder: Path, files_of: int, family: str = "filled"
) -> None:
    """Adds models whose versions were in production one after the other.

    Args:
        uri: Of the database.
        models: How many.
        versions: Of each.
        folder: Where the artifacts of their runs lie.
        files_of: How many of the newest versions of each model have files still.
        family: Models are called `costmodel.FAMILY-NUMBER`.
    """
    import sqlalchemy as sa

    client = connect(uri)
    experiment = client.create_experiment(family, artifact_location=f"file://{folder}")
    engine = sa.create_engine(uri)
    tables = sa.MetaData()
    tables.reflect(engine)
    rows: dict[str, list[Row]] = {
        "registered_models": [],
        "runs": [],
        "model_versions": [],
        "model_version_tags": [],
        "registered_model_tags": [],
        "registered_model_aliases": [],
    }
    for number in range(models):
        name = f"costmodel.{family}-{number}"
        for table, row in _model(name, versions, folder, files_of, int(experiment)):
            rows[table].append(row)
    with engine.begin() as connection:
        for table, content in rows.items():
            for at in range(0, len(content), BATCH):
                connection.execute(tables.tables[table].insert(), content[at : at + BATCH])
    engine.dispose()


def _model(
    name: str, versions: int, folder: Path, files_of: int, experiment: int
) -> Iterator[tuple[str, Row]]:
    """Rows of one model, by table."""
    now = int(time.time() * 1000)
    yield "registered_models", {"name": name, "creation_time": now, "last_updated_time": now}
    head = ledger.Head()
    for version in range(1, versions + 1):
        run = uuid.uuid4().hex
        artifacts = folder / run / "artifacts"
        digest = _files(artifacts / "model") if version > versions - files_of else "0" * 64
        before = version - 1 or None
        said = content_of(
            "promote", version, "none", "production", "", replaced=before, manifest=digest
        )
        state = {"staging": None, "production": version, "previous": before}
        who = {"name": name, "who": "someone", "when": "2026-01-01T00:00:00.000+00:00"}
        entry = ledger.seal({**who, **said, "state": state}, head)
        head = ledger.Head(entry["n"], entry["digest"])
        yield "runs", _run(run, artifacts, experiment, now)
        yield (
            "model_versions",
            {
                "name": name,
                "version": version,
                "creation_time": now,
                "last_updated_time": now,
                "source": f"file://{artifacts}/model",
                "run_id": run,
                "current_stage": "Production" if version == versions else "Archived",
                "status": "READY",
            },
        )
        figures = {f"metric.{figure}": "0.9" for figure in ("pca", "top1", "rmse")}
        for key, value in {**figures, MANIFEST_TAG: digest, ledger.HEAD: str(head)}.items():
            tag = {"name": name, "version": version, "key": key, "value": value}
            yield "model_version_tags", tag
        yield "registered_model_tags", _tag(name, ledger.key(version), ledger.encode(entry))
    yield "registered_model_tags", _tag(name, ledger.HEAD, str(head))
    for alias, held in state.items():
        if held:
            row = {"name": name, "alias": alias, "version": held}
            yield "registered_model_aliases", row


def _run(run: str, artifacts: Path, experiment: int, now: int) -> Row:
    return {
        "run_uuid": run,
        "name": "train",
        "source_type": "LOCAL",
        "user_id": "someone",
        "status": "FINISHED",
        "start_time": now,
        "end_time": now,
        "lifecycle_stage": "active",
        "artifact_uri": f"file://{artifacts}",
        "experiment_id": experiment,
    }


def _tag(name: str, key: str, value: str) -> Row:
    return {"name": name, "key": key, "value": value}


def _files(model: Path) -> str:
    """Writes a small model; returns the digest of its manifest."""
    model.mkdir(parents=True)
    (model / "model.ubj").write_bytes(b"{" + os.urandom(1000))
    return write_manifest(model)
