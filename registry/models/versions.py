"""Versions of models in the registry: made by `register`, found by `resolve`."""

import difflib
import functools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hetfeat.errors import RequestError
from registry.models.description import card_of_model, describe
from registry.models.mlflow_client import (
    EXISTS,
    MISSING,
    MODELS_A_PAGE,
    VERSIONS_A_PAGE,
    condition,
    connect,
    error_code,
    is_refused,
    pages,
    translated,
)
from registry.models.names import check_model_name, is_lock
from registry.models.signatures import signature_tags
from registry.models.version import LIVE_STAGES, MANIFEST_TAG, METRIC_PREFIX, PARENT_TAG, Version

if TYPE_CHECKING:
    from mlflow import MlflowClient

_URI = re.compile(r"(?:models:/)?(?P<name>[^/@]+)(?:/(?P<part>[^/@]+)|@(?P<alias>[^/@]+))?")


def metric_tags(metrics: Mapping[str, float]) -> dict[str, str]:
    """Figures as tags of a version, for `register`."""
    return {f"{METRIC_PREFIX}{name}": repr(float(value)) for name, value in metrics.items()}


def register(
    name: str,
    model_uri_or_logged_model: Any,
    *,
    folder_manifest_sha256: str,
    tags: Mapping[str, str],
    parent_uri: str | None = None,
    run_id: str | None = None,
    client: "MlflowClient | None" = None,
) -> Version:
    """Makes a new version of a registered model, in no stage.

    Args:
        name: Name of the registered model, from `registry.models.names`.
        model_uri_or_logged_model: `models:/m-...`, `runs:/RUN/PATH`, another artifact URI, or
            what `log_model` returned.
        folder_manifest_sha256: SHA-256 of the folder's manifest, as `write_manifest` returned it.
        tags: Tags of the version; see `metric_tags` and the `..._TAG` names of
            `registry.models.version`.
        parent_uri: URI of the version it was made from, kept pinned; default None.
        run_id: Id of the run that made it, default None; a logged model brings its own.
        client: Client of the registry; default None for the one that MLflow's variables name.
    """
    client = client or connect()
    check_model_name(name)
    uri = str(getattr(model_uri_or_logged_model, "model_uri", model_uri_or_logged_model))
    kept = {**tags, MANIFEST_TAG: folder_manifest_sha256}
    kept |= signature_tags(name, folder_manifest_sha256)
    if parent_uri is not None:
        kept[PARENT_TAG] = resolve(parent_uri, client=client).uri
    with translated(f"register a version of {name}"):
        model_id = logged_model_id(uri)
        if model_id is not None and run_id is None:
            run_id = client.get_logged_model(model_id).source_run_id
        _ensure_model(client, name)
        made = Version.of(
            client.create_model_version(
                name, uri, run_id, tags=kept, model_id=model_id, await_creation_for=0
            )
        )
        describe(client, made)
    return made


def resolve(
    name_or_uri: str,
    stage: str | None = None,
    *,
    device: str | None = None,
    client: "MlflowClient | None" = None,
) -> Version:
    """The version that a name or URI means at this moment.

    Args:
        name_or_uri: `models:/NAME/VERSION`, `models:/NAME/Production`, `models:/NAME@alias`, the
            same without `models:/`, or a plain NAME with `stage`.
        stage: Stage of a plain name, `staging` or `production`; default None.
        device: Device whose version is preferred under a family's name; default None.
        client: Client of the registry; default None for the one that MLflow's variables name.

    Raises:
        RequestError: There is no such model, version, stage or alias.
    """
    client = client or connect()
    name, number, alias = _parse(name_or_uri, stage)
    with translated(f"look up {name_or_uri}"):
        if device is not None and number is None:
            version = _by_alias(client, f"{name}.{device}", alias)
            if version is not None:
                return version
        version = _by_alias(client, name, alias) if number is None else _by(client, name, number)
        if version is None:
            raise _not_found(client, name, number, alias)
        return version


def alias_of(name_or_uri: str, stage: str | None = None) -> str | None:
    """The alias by which `resolve` finds a version; None where it is pinned.

    Raises:
        RequestError: The name or URI is none.
    """
    return _parse(name_or_uri, stage)[2] or None


def model_names(client: "MlflowClient") -> list[str]:
    """Names of all registered models, without our locks."""
    models = pages(client.search_registered_models, MODELS_A_PAGE)
    return [model.name for model in models if not is_lock(model.name)]


def search_versions(client: "MlflowClient", *conditions: str) -> Iterator[Any]:
    """MLflow's versions that meet all conditions, each from `mlflow_client.condition`."""
    search = functools.partial(client.search_model_versions, " AND ".join(conditions))
    return pages(search, VERSIONS_A_PAGE)


def check_known(client: "MlflowClient", name: str) -> Any:
    """MLflow's registered model of a name.

    Raises:
        RequestError: There is none, with the names there are.
    """
    from mlflow.exceptions import MlflowException

    try:
        return client.get_registered_model(name)
    except MlflowException as error:
        if _is_absent(client, name, error):
            raise _not_found(client, name, None, "production") from error
        raise


def _parse(name_or_uri: str, stage: str | None) -> tuple[str, int | None, str]:
    """Name, version number and alias: the alias counts where there is no number."""
    match = _URI.fullmatch(name_or_uri)
    if match is None or ((match["part"] or match["alias"]) and stage):
        raise RequestError(
            f"model {name_or_uri!r}" + (f" with stage {stage!r}" if stage else ""),
            "models:/NAME/VERSION, NAME@alias, or NAME with a stage",
            "`hetfeat versions` lists names and versions",
        )
    name = check_model_name(match["name"])
    if match["alias"]:
        return name, None, match["alias"]
    if match["part"] and match["part"].isdecimal():
        return name, int(match["part"]), ""
    return name, None, live_stage(match["part"] or stage, name_or_uri)


def live_stage(stage: str | None, model: str) -> str:
    """A stage that one version holds, in lower case.

    Raises:
        RequestError: There is no such stage, or none was named.
    """
    if stage is None or stage.lower() not in LIVE_STAGES:
        raise RequestError(
            f"stage {stage!r} of model {model!r}" if stage else f"model {model!r} alone",
            f"stage {' or '.join(LIVE_STAGES)}, or a version number",
            "write NAME@production or models:/NAME/VERSION",
        )
    return stage.lower()


def _by(client: "MlflowClient", name: str, number: int) -> Version | None:
    return _or_none(client, name, lambda: client.get_model_version(name, str(number)))


def _by_alias(client: "MlflowClient", name: str, alias: str) -> Version | None:
    return _or_none(client, name, lambda: client.get_model_version_by_alias(name, alias))


def _or_none(client: "MlflowClient", name: str, look_up: Any) -> Version | None:
    from mlflow.exceptions import MlflowException

    try:
        return Version.of(look_up())
    except MlflowException as error:
        said = str(error)
        no_alias = error_code(error) == "INVALID_PARAMETER_VALUE" and (
            "not found" in said or "alias name" in said
        )
        if no_alias or _is_absent(client, name, error):
            return None
        raise


def _is_absent(client: "MlflowClient", name: str, error: Exception) -> bool:
    """Whether an error about a registered model says that there is no such model or version.

    Basic auth refuses a name that does not exist as it refuses one that may not be read; it lists
    those that may be.
    """
    if is_refused(error):
        return not client.search_registered_models(condition("name", name), max_results=1)
    return error_code(error) in MISSING


def _not_found(client: "MlflowClient", name: str, number: int | None, alias: str) -> RequestError:
    names = model_names(client)
    if name in names:
        if number is not None:
            return RequestError(
                f"version {number} of '{name}'",
                "a version that exists",
                f"`hetfeat versions {name}` lists them",
            )
        action = f"`hetfeat promote {name} VERSION --to {alias}` puts one there"
        if alias not in LIVE_STAGES:
            action = f"`hetfeat versions {name}` lists versions and aliases"
        return RequestError(f"'{name}@{alias}'", f"a version of '{name}' in {alias}", action)
    if not names:
        to = alias if alias in LIVE_STAGES else "production"
        return RequestError(
            f"model '{name}' in an empty registry",
            "a trained and promoted model",
            f"run `hetfeat train`, then `hetfeat promote {name} 1 --to {to}`",
        )
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or sorted(names)[:3]
    return RequestError(
        f"model '{name}'", f"a registered name, such as {', '.join(near)}", "correct the name"
    )


def _ensure_model(client: "MlflowClient", name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, description=card_of_model(name))
    except MlflowException as error:
        if error_code(error) not in EXISTS:
            raise


def logged_model_id(uri: str) -> str | None:
    """Id of the logged model that a URI names; None where it names something else."""
    match = re.fullmatch(r"models:/(m-[0-9a-f]+)", uri)
    return match[1] if match else None
