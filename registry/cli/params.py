"""Options as MLflow can pass them: always `--key value`, where an empty value means unset."""

import itertools
import pkgutil
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import click
from click.shell_completion import CompletionItem

from hetfeat.errors import not_one_of


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
        before, comma, last = "", "", incomplete
        if self.several:
            before, comma, last = incomplete.rpartition(",")
        names = [name for name in pkgutil.resolve_name(self.table) if name.startswith(last)]
        return [CompletionItem(f"{before}{comma}{name}") for name in names]


class _Device(click.ParamType[str]):
    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from hetfeat.devices.presets import preset_names

        names = [name for name in ("local", *preset_names()) if name.startswith(incomplete)]
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


class _DeviceName(_Device):
    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value != "local":
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


SWITCH = _Switch()
"""Type of `true` or `false`, as a bool."""

NAMES = _Names()
"""Type of a list separated by commas, as a tuple of strings."""

COUNTS = _Counts()
"""Type of a list of positive numbers separated by commas, as a tuple."""

DEVICE = _Device()
"""Type of a device: `local`, a name, or a profile's file."""

DEVICE_NAME = _DeviceName()
"""Type of a device's name as records and models have it: `local` becomes that of this machine."""

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
