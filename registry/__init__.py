"""Everything that talks to MLflow: runs, model versions, stages, history, bundles.

Importing this loads nothing but the standard library; each public name is imported when it is
first asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from registry.api import deploy, list_versions, promote, pull_version, train

__all__ = ["deploy", "list_versions", "promote", "pull_version", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("registry.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
