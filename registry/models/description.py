"""The description of a version, generated from what is recorded of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from registry.models.mlflow_client import patiently
from registry.models.version import (
    DATASET_TAG,
    EVALUATION_TAG,
    MANIFEST_TAG,
    METRIC_PREFIX,
    PARENT_TAG,
    Version,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

MAX_CHARACTERS = 5000
"""Most characters of a description: the width of MLflow's column."""

_TITLES = {
    DATASET_TAG: "Data set",
    EVALUATION_TAG: "Evaluated on",
    PARENT_TAG: "Made from",
    "devices": "Devices",
    "operators": "Operators",
    "records": "Records",
    "split": "Split",
    "model": "Kind of model",
    "feature_version": "Features version",
    "device": "Device",
    "network": "Network",
    MANIFEST_TAG: "SHA-256 of the manifest",
}


def card_of(version: Version) -> str:
    """A card in Markdown: data, devices, figures, parent, how to use it."""
    facts = [(title, version.tags[tag]) for tag, title in _TITLES.items() if tag in version.tags]
    figures = {
        tag.removeprefix(METRIC_PREFIX): text
        for tag, text in sorted(version.tags.items())
        if tag.startswith(METRIC_PREFIX)
    }
    parts = [
        f"# {version.name}, version {version.version}",
        "\n".join(f"- **{title}**: {_short(text)}" for title, text in facts),
        _table(figures),
        "## Use\n" + _usage(version),
    ]
    return "\n\n".join(part for part in parts if part)[:MAX_CHARACTERS]


def describe(client: "MlflowClient", version: Version) -> None:
    """Makes the card the version's description in the registry."""
    text = card_of(version)
    patiently(
        lambda: client.update_model_version(version.name, str(version.version), description=text)
    )


def _usage(version: Version) -> str:
    if version.name.startswith("network."):
        return (
            f"    hetfeat pull {version.uri} --out DIR\n"
            "    hetfeat run DIR --input x.npy --output y.npy"
        )
    return (
        f"    hetfeat pull {version.uri} --out DIR\n"
        f'    mlflow.pyfunc.load_model("{version.uri}").predict(...)'
    )


def _table(figures: Mapping[str, str]) -> str:
    if not figures:
        return ""
    rows = [f"| {name} | {_rounded(text)} |" for name, text in figures.items()]
    return "\n".join(["| Figure | Value |", "|---|---|", *rows])


def _rounded(text: str) -> str:
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return _short(text)


def _short(text: str) -> str:
    """One harmless line: tags may come from anybody."""
    line = " ".join(text.split()).replace("|", "/").replace("<", "(").replace(">", ")")
    return line if len(line) <= 200 else line[:197] + "..."
