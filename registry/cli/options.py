"""A command's options, described once: the fields of a frozen dataclass.

Click's parameters are made of them here. `MLproject`, the reference of the commands and the keys of
`deploy --config` are made of click's parameters.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from registry.cli.params import AS_OF, COUNTS, NAMES, SWITCH, Argument, Option, Positional

Options = TypeVar("Options")

REQUIRED: Any = dataclasses.MISSING
"""Default of an option or argument that must be given."""

_MADE, _FLAG, _SETTINGS, _POSITIONAL = "made", "flag", "settings", "positional"
_OWN_TYPES: Mapping[Any, click.ParamType[Any]] = {
    bool: SWITCH,
    # Of click's own, so that shells complete it; what it must be is for the command to say.
    Path: click.Path(readable=False, path_type=Path),
    tuple[str, ...]: NAMES,
    tuple[int, ...]: COUNTS,
}


def option(
    default: Any, help: str = "", *, flag: str = "", positional: bool = False, **settings: Any
) -> Any:
    """A field that is an option, for which an empty text is the same as not given.

    Args:
        default: Value of an option that is not given; `REQUIRED` for one that must be.
        help: Line of the help, default empty.
        flag: Name on the command line, default empty for `--` and the field's, with dashes.
        positional: Whether the value may also be given without the option's name; default False.
        **settings: Settings of `click.Option`; by default the type is made of the annotation.
    """
    settings = {"help": help or None, "show_default": True} | settings
    return _field(default, Option, flag, settings, positional)


def argument(default: Any = REQUIRED, **settings: Any) -> Any:
    """A field that is an argument, for which an empty text is the same as not given.

    Args:
        default: Value of an argument that is not given; `REQUIRED`, the default, for one that must
            be.
        **settings: Settings of `click.Argument`; by default the type is made of the annotation.
    """
    return _field(default, Argument, "", settings)


def seed_option() -> Any:
    """The `--seed` of every command with chance in it."""
    return option(0, "Makes the run repeatable.", type=click.IntRange(0))


def cluster_option() -> Any:
    """The `--cluster` of every command whose work several machines can share."""
    help_text = "Dask cluster that shares the work: tcp://HOST:PORT, or local:N.  [default: none]"
    return option(None, help_text)


def builders_option() -> Any:
    """The `--builders` of every command that measures programs."""
    help_text = "Dask cluster that builds programs: dask://HOST:PORT, or local:N.  [default: none]"
    return option(None, help_text)


def unrecorded_option() -> Any:
    """The `--unrecorded` of every command that takes a version by its alias."""
    return option(False, "Follow an alias to where no promotion put it, too.")


def as_of_option() -> Any:
    """The `--as-of` of every command that reads records."""
    help_text = "Version of the table, or a time.  [default: the newest]"
    return option(None, help_text, type=AS_OF)


def output_option() -> Any:
    """The `--output` of every command that takes a network of several outputs."""
    help_text = "Output of the network that is wanted; may be repeated.  [default: all]"
    return option((), help_text, type=NAMES, multiple=True, callback=_joined)


def _joined(context: click.Context, option: click.Parameter, values: Any) -> tuple[str, ...]:
    return tuple(name for names in values for name in names)


def click_parameters(options: type[Any]) -> list[click.Parameter]:
    """The parameters of a command, in the order of the fields of its options."""
    fields = dataclasses.fields(options)
    positional = [_positional(field) for field in fields if field.metadata[_POSITIONAL]]
    return [*positional, *map(_click_parameter, fields)]


def read_options(options: type[Options], values: Mapping[str, Any]) -> Options:
    """The options of click's values; a field whose value is None has its default.

    Raises:
        UsageError: A value is given twice, with its option's name and without.
    """
    given = {name: value for name, value in values.items() if value is not None}
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        if (alone := given.pop(_name_alone(field), None)) is None:
            continue
        if given.get(field.name, alone) != alone:
            raise click.UsageError(
                f"{field.name} is given twice, as {given[field.name]} and {alone}"
            )
        given[field.name] = alone
    return options(**given)


def _field(
    default: Any, made: type[click.Parameter], flag: str, settings: Any, positional: bool = False
) -> Any:
    metadata = {_MADE: made, _FLAG: flag, _SETTINGS: settings, _POSITIONAL: positional}
    return dataclasses.field(default=default, kw_only=True, metadata=metadata)


def _positional(field: dataclasses.Field[Any]) -> Positional:
    metavar, of = f"[{field.name.upper()}]", field.metadata[_SETTINGS].get("type")
    return Positional([_name_alone(field)], required=False, metavar=metavar, type=of)


def _name_alone(field: dataclasses.Field[Any]) -> str:
    return f"{field.name}_alone"


def _click_parameter(field: dataclasses.Field[Any]) -> click.Parameter:
    made, flag, settings = (field.metadata[key] for key in (_MADE, _FLAG, _SETTINGS))
    several = settings.get("multiple", False) or settings.get("nargs", 1) != 1
    names = [field.name]
    if made is Option:
        names.insert(0, flag or f"--{field.name.replace('_', '-')}")
    given = {"type": _click_type(field.type, several), "required": field.default is REQUIRED}
    if field.default not in (REQUIRED, None, ()):
        given["default"] = _text(field.default)
    parameter: click.Parameter = made(names, **given | settings)
    return parameter


def _click_type(annotation: Any, several: bool) -> Any:
    """A type of click for an annotation, the first of several; of `several` values, that of one."""
    if isinstance(annotation, types.UnionType):
        annotation, *_ = (kind for kind in typing.get_args(annotation) if kind is not type(None))
    if several:
        annotation = typing.get_args(annotation)[0]
    return _OWN_TYPES.get(annotation, annotation)


def _text(default: Any) -> Any:
    """A default as it would stand on the command line, for the help and `MLproject`."""
    match default:
        case bool():
            return str(default).lower()
        case tuple():
            return ",".join(map(str, default))
        case Path():
            return str(default)
    return default
