"""Options as MLflow can pass them: always `--key value`, where an empty value means unset."""

import itertools
import pkgutil
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from hetfeat.errors import not_one_of
from registry.cli import completion, help


class _EmptyIsUnset(click.Parameter):
    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, Any]:
        filled = {key: _without_empty(value) for key, value in opts.items()}
        given = {key: value for key, value in filled.items() if value not in ("", ())}
        return super().consume_value(ctx, given)


def _without_empty(value: Any) -> Any:
    several = isinstance(value, tuple | list)
    return tuple(one for one in value if one != "") if several else value


class Option(_EmptyIsUnset, click.Option):
    """An option for which an empty text is the same as not given."""


class Argument(_EmptyIsUnset, click.Argument):
    """An argument for which an empty text is the same as not given."""


class Positional(Argument):
    """The value of an option, given without the option's name."""


class _Switch(click.ParamType[bool]):
    name = "true|false"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return bool(value == "true")
        self.fail(f"{value!r} is not true or false", param, ctx)


_VALUES = {"true", "false", "yes", "no", "on", "off", ""}
"""Words after a switch that are no argument of the command, if they are wrong."""


class Command(click.Command):
    """A command whose switches may stand alone: `--force` is `--force true`."""

    context_class = help.Context

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the arguments."""
        switches = {name for p in self.params if p.type is SWITCH for name in p.opts}
        takes_words = any(isinstance(p, click.Argument) for p in self.params)
        return super().parse_args(ctx, list(_spelled_out(args, switches, takes_words)))


def _spelled_out(args: Sequence[str], switches: Set[str], takes_words: bool) -> Iterator[str]:
    """The arguments, with `true` after each switch that stands alone."""
    for word, after in itertools.zip_longest(args, args[1:]):
        yield word
        is_value = str(after).lower() in _VALUES or not takes_words
        if word in switches and (after is None or after.startswith("-") or not is_value):
            yield "true"


class _Names(click.ParamType[tuple[str, ...]]):
    name = "name,name"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in value.split(","))
        if not all(names):
            self.fail(f"{value!r} has an empty name between its commas", param, ctx)
        return names


class Known(click.ParamType[Any]):
    """A name of a table, refused before anything is read or made, or several with commas between.

    Args:
        what: Word for the kind of thing that is named.
        table: Import string of the names, imported when a name is given or completed.
        several: Whether the value is a list, default False.
    """

    name = "text"

    def __init__(self, what: str, table: str, *, several: bool = False) -> None:
        self.what, self.table, self.several = what, table, several

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value, if all names are known.

        Raises:
            RequestError: One is not, with the nearest that is.
        """
        names: tuple[Any, ...] = NAMES.convert(value, param, ctx) if self.several else (value,)
        known = pkgutil.resolve_name(self.table)
        for name in names:
            if name not in known:
                raise not_one_of(self.what, name, known, "choose one of them")
        return names if self.several else value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names that begin as the last one does."""

        def names(context: click.Context, last: str) -> Iterator[str]:
            return iter(pkgutil.resolve_name(self.table))

        return completion.items(names, ctx, incomplete, several=self.several)


class Completed(click.ParamType[Any]):
    """A value that is not looked up before the command runs, of which the Tab key knows some.

    Args:
        source: Source of the names that are offered.
        of: Type of the value, default a text.
        files: Whether files are offered, too; default False.
    """

    def __init__(
        self,
        source: completion.Source,
        of: click.ParamType[Any] = click.STRING,
        *,
        files: bool = False,
    ) -> None:
        self.source, self.of, self.files, self.name = source, of, files, of.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value, of the type that it is."""
        return self.of.convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names that begin as the last one does."""
        several = isinstance(self.of, _Names)
        return completion.items(self.source, ctx, incomplete, several=several, files=self.files)


class _DeviceName(click.ParamType[str]):
    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        # To find the name may be to measure the machine, which the Tab key must not.
        if value != "local" or (ctx and ctx.resilient_parsing):
            return str(value)
        from hetfeat.devices.probe import find_profile

        return find_profile("local").name


class _Counts(click.ParamType[tuple[int, ...]]):
    name = "number,number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        names: tuple[Any, ...] = NAMES.convert(value, param, ctx)
        if not all(str(name).isdecimal() and int(name) > 0 for name in names):
            self.fail(f"{value!r} is not a list of numbers of at least 1", param, ctx)
        if len(set(names)) < len(names):
            self.fail(f"{value!r} names a number twice", param, ctx)
        return tuple(int(name) for name in names)


class _Place(click.Path):
    """Completed by shells as a folder is."""

    name = "folder or URI"

    def __init__(self) -> None:
        super().__init__(readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from hetfeat.dataset.tables.uri import TableUri, as_place

        return value if isinstance(value, TableUri) else as_place(value)


class _AsOf(click.ParamType[Any]):
    name = "version or time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from hetfeat.dataset.tables.uri import as_of

        return as_of(value) if isinstance(value, str) else value


class _Renamed(click.ParamType[tuple[str, str]]):
    name = "name=new"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        from hetfeat.devices.profile import check_name

        if isinstance(value, tuple):
            return value
        old, equals, new = value.partition("=")
        if not (old and equals and new):
            self.fail(f"{value!r} is not NAME=NEW", param, ctx)
        check_name(new)
        return old, new


SWITCH = _Switch()
"""Type of `true` or `false`, as a bool."""

NAMES = _Names()
"""Type of a list separated by commas, as a tuple of strings."""

COUNTS = _Counts()
"""Type of a list of positive numbers separated by commas, as a tuple."""

PLACE = _Place()
"""Type of a record store: a folder, as a path, or the URI of a table."""

AS_OF = _AsOf()
"""Type of a version of a table, as a number or a time."""

RENAMED = _Renamed()
"""Type of a device's name and its new one, as a pair."""

DEVICE = Completed(completion.devices, files=True)
"""Type of a device: `local`, a name, or a profile's file."""

DEVICES = Completed(completion.devices, NAMES, files=True)
"""Type of several devices, as a tuple."""

DEVICE_NAME = Completed(completion.devices, _DeviceName(), files=True)
"""Type of a device's name as records and models have it: `local` becomes that of this machine."""

NETWORK = Completed(completion.networks, files=True)
"""Type of a network: a name, a file, or `module:function`."""

NETWORKS = Completed(completion.networks, NAMES, files=True)
"""Type of several networks, as a tuple."""

MODEL_NAME = Completed(completion.model_names)
"""Type of the name of a registered model."""

MODEL_VERSION = Completed(completion.model_versions)
"""Type of a version: `models:/NAME/VERSION`, the same without `models:/`, or a name."""

VERSION_OR_FOLDER = Completed(completion.model_versions, files=True)
"""Type of a version, or of a folder."""

VERSION = Completed(completion.versions_of_the_name, click.IntRange(1))
"""Type of the number of a version of the model that the argument NAME has."""

MODEL = Known("model", "hetfeat.models.registry:MODELS")
"""Type of the name of a kind of cost model."""

SPLIT = Known("split", "hetfeat.dataset.splits:SPLITS")
"""Type of the name of a split."""

STRATEGY = Known("strategy", "hetfeat.search.strategies:STRATEGIES")
"""Type of the name of a search."""

STRATEGIES = Known("strategy", "hetfeat.search.strategies:STRATEGIES", several=True)
"""Type of names of searches, as a tuple."""

FORMAT = Known("format", "hetfeat.dataset.importers.formats:FORMATS")
"""Type of the name of a format of records."""

PRECISION = Known("precision", "hetfeat.deploy.precision:PRECISIONS")
"""Type of the name of a precision."""

EFFORT = click.Choice(["quick", "standard", "full"])
"""Type of an option with one of the budgets of long work."""
