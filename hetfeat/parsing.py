"""Text and values that others can write become typed values here, or one line that says why not.

Tags, journals, bundles, logs, caches and replies of servers pass through `decode` (JSON) or
`parse` (a value that is in memory already) before they are used: they never become a path, a
module, a process id or a number unchecked. Files of YAML are read by `read_yaml`.
"""

import functools
import math
from pathlib import Path
from typing import Annotated, Any, TypeVar, overload

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from hetfeat.errors import DataError

MAX_BYTES = 1 << 20
"""Longest JSON text that `decode` takes unless told otherwise, in bytes."""

_CONFIG = ConfigDict(strict=True, allow_inf_nan=False)

T = TypeVar("T")


class Schema(BaseModel):
    """Base of the schemas of formats that others can write.

    Values are never converted (`"3"` is no number, `true` is no integer), NaN and infinities are
    refused, keys that the schema does not name are passed over.

    Examples:
        >>> class Reply(Schema):
        ...     cores: PositiveInt
        >>> decode('{"cores": 4, "later": null}', Reply, what="a reply", action="update it").cores
        4
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True, extra="ignore")


def _only_finite(value: JsonValue) -> JsonValue:
    match value:
        case float() if not math.isfinite(value):
            raise ValueError("a number that is not finite")
        case list():
            for inner in value:
                _only_finite(inner)
        case dict():
            for inner in value.values():
                _only_finite(inner)
    return value


Json = Annotated[JsonValue, AfterValidator(_only_finite)]
"""Any JSON whose numbers are finite: pydantic's own `JsonValue` lets NaN and infinities in."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 digest: 64 hexadecimal digits in lower case."""
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,199}$")]
"""The name of one file: no separator, no leading dot or dash, nothing that a shell would change."""
PositiveInt = Annotated[int, Field(gt=0, lt=1 << 63)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
"""A whole number from 0 on that fits 63 bits."""
PositiveFloat = Annotated[float, Field(gt=0)]


@overload
def decode(
    text: str | bytes, kind: type[T], *, what: str, action: str, max_bytes: int = ...
) -> T: ...
@overload
def decode(
    text: str | bytes, kind: Any, *, what: str, action: str, max_bytes: int = ...
) -> Any: ...
def decode(
    text: str | bytes, kind: Any, *, what: str, action: str, max_bytes: int = MAX_BYTES
) -> Any:
    """A value of a type from JSON that somebody else may have written.

    Args:
        text: JSON text, bounded in length and depth, in UTF-8 where it is bytes.
        kind: A `Schema`, or any type that pydantic knows, e.g. `dict[str, Digest]`; `Json` for any
            JSON.
        what: Words for the text in the error, e.g. `the lock of 'costmodel.cpu-x86'`.
        action: Words for what to do where the text is no such value.
        max_bytes: Longest text that is parsed, in bytes; `MAX_BYTES` by default.

    Raises:
        DataError: The text is too long, no JSON, nested deeper than the parser goes (about 200
            levels), or not of the type.

    Examples:
        >>> decode('["a.so"]', list[FileName], what="files", action="copy it again")
        ['a.so']
        >>> decode("[" * 4000, list[FileName], what="files", action="copy it again")
        Traceback (most recent call last):
        ...
        hetfeat.errors.DataError: files (Invalid JSON: recursion limit exceeded ...
    """
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise _refused(what, "a lone surrogate", kind, action) from None
    if len(data) > max_bytes:
        raise _refused(what, f"{len(data)} bytes, over {max_bytes}", kind, action)
    try:
        return _adapter(kind).validate_json(data)
    except ValidationError as error:
        raise _refused(what, _first(error), kind, action) from None


@overload
def parse(value: object, kind: type[T], *, what: str, action: str) -> T: ...
@overload
def parse(value: object, kind: Any, *, what: str, action: str) -> Any: ...
def parse(value: object, kind: Any, *, what: str, action: str) -> Any:
    """A value of a type from one that somebody else may have written.

    Args:
        value: Value to be parsed, e.g. the text of a tag.
        kind: Type of the result, as for `decode`.
        what: Words for the value in the error.
        action: Words for what to do where the value is not of the type.

    Raises:
        DataError: The value is not of the type.

    Examples:
        >>> parse("../secret", FileName, what="a file of the bundle", action="copy it again")
        Traceback (most recent call last):
        ...
        hetfeat.errors.DataError: a file of the bundle ('../secret': ...
    """
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise _refused(what, f"{printable(repr(value))}: {_first(error)}", kind, action) from None


def read_yaml(
    path: Path,
    *,
    max_characters: int = MAX_BYTES,
    most_values: int = 100_000,
    deepest: int = 100,
) -> Any:
    """What a file of YAML holds: plain values of a sensible number, no integer of over 64 bits.

    Args:
        path: Path of the file.
        max_characters: Longest text that is parsed; `MAX_BYTES` by default.
        most_values: Most values; 100,000 by default: by aliases a few lines become gigabytes, or a
            ring.
        deepest: Most levels; 100 by default: the time that PyYAML takes grows with their square.

    Raises:
        ValueError: It cannot be read, or is something else; the message is one line.
    """
    try:
        with path.open() as file:
            text = file.read(max_characters + 1)
        if len(text) > max_characters:
            raise ValueError(f"over {max_characters} characters")
        _refuse_deep(text, deepest)
        content = yaml.safe_load(text)
    except OSError as error:
        raise ValueError(error.strerror) from error
    except Exception as error:  # whatever PyYAML makes of a scalar that is not of its tag
        known = isinstance(error, yaml.YAMLError | ValueError)
        why = str(error) if known else type(error).__name__
        raise ValueError(" ".join(why.split())) from error
    rest, count = [content], 0
    while rest:
        value, count = rest.pop(), count + 1
        if count > most_values:
            raise ValueError(f"over {most_values} values, perhaps by aliases")
        match value:
            case dict():
                rest += [*value, *value.values()]
            case list() | tuple() | set():
                rest += value
            case int() if value.bit_length() > 64:
                raise ValueError("an integer of over 64 bits")
    return content


def _refuse_deep(text: str, deepest: int) -> None:
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > deepest:
            raise ValueError(f"nested over {deepest} deep")


def printable(text: str, most: int | None = 80) -> str:
    r"""A text of somebody else's on one line, without what a terminal would obey.

    Args:
        text: Text to be shown.
        most: Longest result, in characters, less an ellipsis; 80 by default, None for all of
            it.

    Examples:
        >>> print(printable("v2\n\x1b]0;owned\x07"))
        v2\n\x1b]0;owned\x07
    """
    cut = text if most is None or len(text) <= most else text[:most] + "..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in cut)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    is_schema = isinstance(kind, type) and issubclass(kind, BaseModel)
    return TypeAdapter(kind, config=None if is_schema else _CONFIG)


def _first(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = printable(".".join(map(str, first["loc"])))
    message = printable(first["msg"], 200)
    return f"{place}: {message}" if place else message


def _refused(what: str, why: str, kind: Any, action: str) -> DataError:
    return DataError(f"{what} ({why})", _described(kind), action)


def _described(kind: Any) -> str:
    """A type in the words of its fields: what a right text would have held."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f"an object of {', '.join(kind.model_fields)}"
    names = {id(Digest): "64 hexadecimal digits", id(FileName): "the name of one file"}
    return names.get(id(kind), "what its format says")
