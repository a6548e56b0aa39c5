"""The formats there are: a name and an import string each, loaded when asked for."""

import functools
import logging
from typing import TYPE_CHECKING

from hetfeat.errors import RequestError
from hetfeat.plugins import resolve, with_plugins

if TYPE_CHECKING:
    from hetfeat.dataset.importers.base import Importer

log = logging.getLogger(__name__)

_OWN = {
    "ansor": "hetfeat.dataset.importers.ansor:read",
    "metaschedule": "hetfeat.dataset.importers.metaschedule:read",
    "kernel-tuner": "hetfeat.dataset.importers.kernel_tuner:read",
    "pack": "hetfeat.dataset.importers.pack:read",
}
FORMATS = with_plugins("hetfeat.importers", _OWN)


def importer(name: str) -> "Importer":
    """The importer of a format of the table."""
    chosen: Importer = resolve("format", name, FORMATS)
    return chosen


@functools.cache
def patterns_of_plugins() -> list[tuple[bytes, str, str]]:
    """What lines of plug-ins' formats begin with, as in `sniff.LINES`.

    A plug-in's function says so by its attribute `looks`: pairs of a pattern and words.
    """
    patterns = []
    for name in FORMATS.keys() - _OWN.keys():
        try:
            looks = getattr(importer(name), "looks", ())
        except RequestError as error:
            log.warning("%s", error)
            continue
        patterns += [(pattern, name, words) for pattern, words in looks]
    return patterns
