"""A version of a registered model, and the tags that it bears."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MANIFEST_TAG = "manifest_sha256"
SIGNATURE_TAG = "manifest_signature"
PARENT_TAG = "parent_model_uri"
DATASET_TAG = "dataset_digest"
EVALUATION_TAG = "evaluation_digest"
FEATURES_TAG = "feature_version"
COMPARISON_TAG = "comparison"
"""The same for all that was trained on one side of a split and judged on the other."""
METRIC_PREFIX = "metric."
"""Before the name of a figure in the tags of a version: a run's own can be logged over."""

STAGES = ("none", "staging", "production", "archived")
LIVE_STAGES = ("staging", "production")


@dataclass(frozen=True)
class Version:
    """One version of a registered model, as it was when it was looked up.

    Attributes:
        name: Of the registered model.
        version: Its number.
        run_id: Of the run that made it, if any.
        source: Where MLflow keeps its files.
        stage: One of `STAGES`.
        aliases: Those that point to it.
        tags: By key.
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
    def of(cls, found: Any) -> "Version":
        """From MLflow's ModelVersion."""
        return cls(
            name=found.name,
            version=int(found.version),
            run_id=found.run_id or None,
            source=found.source,
            stage=str(found.current_stage or "None").lower(),
            aliases=tuple(found.aliases),
            tags=dict(found.tags),
        )
