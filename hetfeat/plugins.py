"""Models, searches and importers of other packages, by their entry points."""

import logging
import pkgutil
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from hetfeat.errors import RequestError

log = logging.getLogger(__name__)


def with_plugins(group: str, own: Mapping[str, str]) -> dict[str, str]:
    """A table of import strings, joined by the entry points of installed packages.

    One that is no import string is left out, with a warning. None is imported yet.

    Args:
        group: Group of the entry points, such as `hetfeat.models`.
        own: Import strings of this package, by name.

    Raises:
        RequestError: A name stands for two things.
    """
    table = dict(own)
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        if not (point.module and point.attr):
            log.warning("%s of %s is no import string: left out", point.name, _package(point))
        elif table.setdefault(point.name, point.value) != point.value:
            raise RequestError(
                f"'{point.name}' in {group}, for {table[point.name]} and for {point.value}",
                "one of them",
                f"uninstall {_package(point)}, or the other package",
            )
    return table


def resolve(what: str, name: str, table: Mapping[str, str]) -> Any:
    """What a name of a table stands for, imported.

    Raises:
        RequestError: It cannot be imported.
    """
    try:
        return pkgutil.resolve_name(table[name])
    except Exception as error:  # the code of another package, which may raise anything
        raise RequestError(
            f"{what} '{name}', whose {table[name]} cannot be imported ({error})",
            "an import string that works",
            "mend or uninstall its package",
        ) from error


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "a package"
