"""The formats there are: a name and an import string each, loaded when asked for."""

import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetfeat.dataset.importers.base import Importer

FORMATS = {
    "ansor": "hetfeat.dataset.importers.ansor:read",
    "metaschedule": "hetfeat.dataset.importers.metaschedule:read",
    "kernel-tuner": "hetfeat.dataset.importers.kernel_tuner:read",
}


def importer(name: str) -> "Importer":
    """The importer of a format of the table."""
    found: Importer = pkgutil.resolve_name(FORMATS[name])
    return found
