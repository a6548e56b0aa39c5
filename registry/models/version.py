"""A version of a registered model, and the tags that it bears."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from hetfeat.errors import DataError
from hetfeat.parsing import decode

MANIFEST_TAG = "manifest_sha256"
SIGNATURE_TAG = "manifest_signature"
PARENT_TAG = "parent_model_uri"
DATASET_TAG = "dataset_digest"
PRECISION_TAG = "precision"
CALIBRATION_TAG = "calibration_digest"
EVALUATION_TAG = "evaluation_digest"
FEATURES_TAG = "feature_version"
COMPARISON_TAG = "comparison"
"""Tag with the same value for all that was trained on one side of a split and judged on the
other."""
METRIC_PREFIX = "metric."
"""Text before the name of a figure in the tags of a version: a run's own can be logged over."""
_FIGURE_BYTES = 32
"""Most bytes of a figure's text; Python writes none of more than 24 characters."""

STAGES = ("none", "staging", "production", "archived")
LIVE_STAGES = ("staging", "production")
STAGE_TAG = "stage"
"""Tag with the stage of a version, written where MLflow has no stages of its own any more."""


@dataclass(frozen=True)
class Version:
    """One version of a registered model, as it was when it was looked up.

    Attributes:
        name: Name of the registered model.
        version: Number of the version.
        run_id: Id of the run that made it, if any.
        source: URI of the place where MLflow keeps its files.
        stage: Name of the stage, one of `STAGES`.
        aliases: Aliases that point to it, default none.
        tags: Tags by key, default none.
    """

    name: str
    version: int
    run_id: str | None
    source: str
    stage: str
    aliases: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        """The version, pinned: `models:/NAME/VERSION`."""
        return f"models:/{self.name}/{self.version}"

    @classmethod
    def of(cls, registered: Any) -> "Version":
        """From MLflow's ModelVersion."""
        aliases, tags = tuple(registered.aliases), dict(registered.tags)
        return cls(
            name=registered.name,
            version=int(registered.version),
            run_id=registered.run_id or None,
            source=registered.source,
            stage=_stage_of(registered, aliases, tags),
            aliases=aliases,
            tags=tags,
        )


def _stage_of(registered: Any, aliases: Collection[str], tags: Mapping[str, str]) -> str:
    """MLflow's own stage of a version; without one that of our tag, or of an alias of before."""
    if stage := getattr(registered, "current_stage", None):
        return str(stage).lower()
    if (tagged := tags.get(STAGE_TAG)) in STAGES:
        return str(tagged)
    return next((stage for stage in LIVE_STAGES if stage in aliases), "none")


def figure_of(version: Version, name: str) -> float | None:
    """A figure of a version's tags; None where there is none, or no finite number."""
    what = f"'{METRIC_PREFIX}{name}' of {version.uri}"
    try:
        text = version.tags.get(METRIC_PREFIX + name, "")
        return decode(text, float, what=what, action="", max_bytes=_FIGURE_BYTES)
    except DataError:
        return None
