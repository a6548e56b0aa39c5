"""The state of a registered model, and the aliases and MLflow stages that show it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetfeat.errors import RequestError
from registry.models.mlflow_client import condition, patiently
from registry.models.version import LIVE_STAGES, STAGE_TAG, Version
from registry.models.versions import resolve, search_versions

if TYPE_CHECKING:
    from mlflow import MlflowClient

ALIASES = ("previous", "production", "staging")
"""Names of our aliases, in the order in which they are set: whoever sees a new production finds the
way back, too."""


@dataclass(frozen=True)
class State:
    """Which version holds each alias.

    Attributes:
        staging: Number of the version that is in MLflow's stage Staging as well; default None.
        production: Number of the version that is in MLflow's stage Production as well; default
            None.
        previous: Number of the version that `rollback` goes back to; default None.
    """

    staging: int | None = None
    production: int | None = None
    previous: int | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "State":
        """From the entry of a ledger or MLflow's aliases; other names are left out."""
        held = {alias: content.get(alias) for alias in ALIASES}
        return cls(**{alias: int(number) if number else None for alias, number in held.items()})

    def holder_of(self, stage: str) -> int | None:
        """The version in `staging` or `production`; None for any other stage."""
        return getattr(self, stage) if stage in LIVE_STAGES else None

    def after(self, version: int, to: str) -> "State":
        """The state once a version has moved to a stage."""
        left = {
            stage: None if self.holder_of(stage) == version else self.holder_of(stage)
            for stage in LIVE_STAGES
        }
        after = dataclasses.replace(self, **left)
        if to in LIVE_STAGES:
            after = dataclasses.replace(after, **{to: version})
        if after.production != self.production and self.production is not None:
            after = dataclasses.replace(after, previous=self.production)
        return after


@dataclass(frozen=True)
class Shown:
    """What MLflow shows of a registered model.

    Attributes:
        tags: Tags of the registered model.
        aliases: State that our aliases show.
        latest: The newest version in each of MLflow's stages, in lower case.
    """

    tags: Mapping[str, str]
    aliases: State
    latest: Mapping[str, int]


def version_of(client: "MlflowClient", name: str, number: int) -> Version:
    """A version by its number, or the error that says what there is."""
    return patiently(lambda: resolve(f"models:/{name}/{number}", client=client))


def read(client: "MlflowClient", name: str) -> Shown:
    """What a registered model shows now, in one call."""
    model = patiently(lambda: client.get_registered_model(name))
    newest = map(Version.of, getattr(model, "latest_versions", ()))
    latest = {version.stage: version.version for version in newest}
    return Shown(dict(model.tags), State.of(dict(model.aliases)), latest)


def versions_of(client: "MlflowClient", name: str) -> list[Version]:
    """All versions of a registered model."""
    named = condition("name", name)
    found = [Version.of(v) for v in patiently(lambda: list(search_versions(client, named)))]
    if _has_stages(client):
        return found
    held = read(client, name).aliases  # a search does not tell them
    return [_with_stage_of_alias(version, held) for version in found]


def _with_stage_of_alias(version: Version, held: State) -> Version:
    """A version that was promoted before there was our tag of its stage, as it was then."""
    stages = [stage for stage in LIVE_STAGES if held.holder_of(stage) == version.version]
    if STAGE_TAG in version.tags or not stages:
        return version
    return dataclasses.replace(version, stage=stages[0])


def exists(client: "MlflowClient", name: str, number: int | None) -> bool:
    """Whether there is such a version."""
    try:
        return number is not None and bool(version_of(client, name, number))
    except RequestError:
        return False


def differences(client: "MlflowClient", name: str, state: State) -> list[str]:
    """Where aliases and MLflow's stages do not show a state, in words."""
    return deviations(read(client, name).aliases, versions_of(client, name), state)


def deviations(shown: State, versions: Sequence[Version], state: State) -> list[str]:
    """As `differences`, of aliases and versions that have been read already."""
    found = []
    for alias in ALIASES:
        is_on, wanted = getattr(shown, alias), getattr(state, alias)
        if is_on != wanted:
            found.append(f"alias {alias} is on {_said(is_on)}, not on {_said(wanted)}")
    for stage in LIVE_STAGES:
        holders = sorted(version.version for version in versions if version.stage == stage)
        wanted = state.holder_of(stage)
        if holders != ([] if wanted is None else [wanted]):
            said = " and ".join(map(str, holders)) or "none"
            found.append(f"MLflow's stage {stage} holds {said}, not {_said(wanted)}")
    return found


def apply(
    client: "MlflowClient",
    name: str,
    state: State,
    archived: int | None,
    before_each: Callable[[], None],
) -> None:
    """Makes aliases and stages show a state; the same when repeated.

    Args:
        client: Client of the registry.
        name: Name of the registered model.
        state: State to show.
        archived: Number of a version to archive as well, or None.
        before_each: Callable that runs before each step.
    """
    shown = read(client, name).aliases
    for alias in ALIASES:
        wanted = getattr(state, alias)
        if wanted != getattr(shown, alias):
            before_each()
            _set_alias(client, name, alias, wanted)
    for stage in ("production", "staging"):
        before_each()
        _show_stage(client, name, stage, state.holder_of(stage))
    if archived is not None:
        before_each()
        _move(client, name, archived, "archived", False)


def set_version_tag(client: "MlflowClient", name: str, version: int, key: str, value: str) -> None:
    """Sets a tag of a version."""
    patiently(lambda: client.set_model_version_tag(name, str(version), key, value))


def _set_alias(client: "MlflowClient", name: str, alias: str, version: int | None) -> None:
    if version is None:
        patiently(lambda: client.delete_registered_model_alias(name, alias))
    else:
        patiently(lambda: client.set_registered_model_alias(name, alias, str(version)))


def _has_stages(client: "MlflowClient") -> bool:
    """Whether MLflow still moves versions through stages of its own; where not, our tag says them.

    MLflow has announced that they go.
    """
    return hasattr(client, "transition_model_version_stage")


def _show_stage(client: "MlflowClient", name: str, stage: str, wanted: int | None) -> None:
    if not _has_stages(client):
        for version in versions_of(client, name):
            if version.stage == stage and version.version != wanted:
                set_version_tag(client, name, version.version, STAGE_TAG, "archived")
        if wanted is not None:
            set_version_tag(client, name, wanted, STAGE_TAG, stage)
        return
    if wanted is not None:  # one transaction moves it in and whatever was there out
        _move(client, name, wanted, stage, True)
        return
    while (holder := read(client, name).latest.get(stage)) is not None:
        _move(client, name, holder, "archived", False)


def _move(client: "MlflowClient", name: str, version: int, stage: str, archive: bool) -> None:
    if not _has_stages(client):
        set_version_tag(client, name, version, STAGE_TAG, stage)
        return
    patiently(
        lambda: client.transition_model_version_stage(
            name, str(version), stage.capitalize(), archive_existing_versions=archive
        )
    )


def _said(version: int | None) -> str:
    return "no version" if version is None else f"version {version}"
