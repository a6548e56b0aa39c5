"""One tree of errors; every message says what was given, what was expected and what to do."""

from collections.abc import Iterable
from typing import Any


class HetfeatError(Exception):
    """Root of the errors that a command turns into one line and an exit code.

    Args:
        given: Words for what was asked for or found.
        expected: Words for what would have been right.
        action: Words for what to do about it.

    Examples:
        >>> import hetfeat
        >>> print(hetfeat.HetfeatError("batch 0", "a batch of at least 1", "pass 1 or more"))
        batch 0; expected a batch of at least 1; pass 1 or more
    """

    exit_code = 1

    def __init__(self, given: str, expected: str, action: str) -> None:
        super().__init__(f"{given}; expected {expected}; {action}")
        self.given, self.expected, self.action = given, expected, action

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        """So that it comes whole from another process."""
        return type(self), (self.given, self.expected, self.action)


class RequestError(HetfeatError):
    """The request was wrong: nothing was done."""

    exit_code = 2


class DataError(RequestError):
    """A file, store, model or bundle is not what it should be."""


class WorkFailed(HetfeatError):
    """The request was right and the work failed."""


class GateRefused(HetfeatError):
    """A promotion gate said no.

    Args:
        given: Words for what was asked for or found.
        expected: Words for what would have been right.
        action: Words for what to do about it.
        outcome: Outcome of the gates, with the move that they were asked about; None by default.
    """

    exit_code = 3

    def __init__(self, given: str, expected: str, action: str, outcome: Any = None) -> None:
        super().__init__(given, expected, action)
        self.outcome = outcome


def not_one_of(what: str, given: str, known: Iterable[str], action: str) -> RequestError:
    """The error of a name that is none of the known ones; it says which was probably meant.

    Args:
        what: Word for the kind of thing that is named.
        given: Name that is not known.
        known: Names that are known.
        action: Words for what to do where no known name is near.
    """
    names = list(known)
    action = did_you_mean(given, names) or action
    return RequestError(f"{what} '{given}'", f"one of {', '.join(names)}", action)


def did_you_mean(given: str, known: Iterable[str]) -> str | None:
    """A question after the nearest of the known names, or None where none is near."""
    import difflib  # only here: start-up stays quick

    near = difflib.get_close_matches(given, list(known), 1)
    return f"did you mean '{near[0]}'?" if near else None
