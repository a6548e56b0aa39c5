"""Descriptions: of a version from what is recorded of it, of a model from its name."""

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


def card_of_model(name: str) -> str:
    """What a registered model is, where its figures stand and how to use it, in Markdown."""
    kind, _, of = name.partition(".")
    uri = f"models:/{name}@production"
    if kind == "network":
        what = f"The network and device `{of}`: compiled, verified bundles."
        use = _use_of_bundle(uri)
    elif kind == "costmodel":
        what = f"Cost models of `{of}`: they predict which programs of a task are fast."
        use = _use_of_cost_model(uri)
    else:
        what, use = f"Versions of `{name}`.", f"    hetfeat pull {uri} --out DIR"
    figures = (
        "The version with the alias `production` is the one to use; its description has its "
        f"figures. `hetfeat versions {name}` lists all, `hetfeat history {name}` says who moved "
        "which, and why."
    )
    return "\n\n".join([what, figures, "## Use\n" + use])


def describe(client: "MlflowClient", version: Version) -> None:
    """Makes the card the version's description in the registry."""
    text = card_of(version)
    patiently(
        lambda: client.update_model_version(version.name, str(version.version), description=text)
    )


def _usage(version: Version) -> str:
    use = _use_of_bundle if version.name.startswith("network.") else _use_of_cost_model
    return use(version.uri)


def _use_of_bundle(uri: str) -> str:
    return f"    hetfeat pull {uri} --out DIR\n    hetfeat run DIR --input x.npy --output y.npy"


def _use_of_cost_model(uri: str) -> str:
    return f'    hetfeat pull {uri} --out DIR\n    mlflow.pyfunc.load_model("{uri}").predict(...)'


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
