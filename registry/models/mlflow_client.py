"""The MLflow client, and its errors in our words."""

import contextlib
import functools
import getpass
import logging
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from hetfeat.errors import DataError, HetfeatError, RequestError, WorkFailed

if TYPE_CHECKING:
    from mlflow import MlflowClient

T = TypeVar("T")

MISSING = frozenset({"RESOURCE_DOES_NOT_EXIST", "NOT_FOUND"})
EXISTS = frozenset({"RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS"})
MODELS_A_PAGE, VERSIONS_A_PAGE, RUNS_A_PAGE = 500, 10_000, 1000
"""Results asked for at once: MLflow gives at most 1,000 models, 200,000 versions and 50,000 runs or
experiments a page."""
_FOREIGN = frozenset({"mlflow", "requests", "urllib3", "boto3", "botocore", "sqlalchemy"})
_OF_THE_STORAGE = (
    "database or disk is full",
    "disk I/O error",
    "attempt to write a readonly database",
    "No space left on device",
    "Read-only file system",
)
_DEFAULTS = {
    # MLflow's own (7 retries, 120 s) leave a command silent for minutes when a server is gone.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    # A bar for each small file says nothing.
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # Spans go in requests of five, and MLflow forgets a trace, a deployment's too, after an hour.
    "MLFLOW_ASYNC_TRACE_LOGGING_MAX_SPAN_BATCH_SIZE": "512",
    "MLFLOW_TRACE_BUFFER_TTL_SECONDS": "604800",
}


def connect(tracking_uri: str | None = None) -> "MlflowClient":
    """A client of the registry that MLflow's own variables name, or of `tracking_uri`."""
    set_defaults()
    # Stages are kept as a mirror of the aliases on purpose; MLflow would say so at each move.
    warnings.filterwarnings("ignore", message=".*[Ss]tages", category=FutureWarning)
    from mlflow import MlflowClient

    with translated("connect to the registry"):
        client = MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)
    # It asks before each write, and is answered with the whole model: every version and tag.
    client._raise_if_prompt = functools.cache(client._raise_if_prompt)  # type: ignore[method-assign]
    return client


def set_defaults() -> None:
    """Gives MLflow our own settings, where its variables say nothing."""
    # It would log the traceback of what it raises, too.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    for variable, value in _DEFAULTS.items():
        os.environ.setdefault(variable, value)


def user() -> str:
    """Who acts: the user of the MLflow server, else of this machine."""
    try:
        return os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    except (KeyError, OSError):  # as in a container, whose user may have no name
        return f"uid {os.getuid()}"


def error_code(error: BaseException) -> str:
    """MLflow's name of what went wrong, or an empty string for another exception."""
    return str(getattr(error, "error_code", ""))


def is_refused(error: BaseException) -> bool:
    """Whether the server knows the user and does not let this user do it."""
    return error_code(error) == "PERMISSION_DENIED" or "error code 403" in _first_line(error)


def is_busy(error: BaseException) -> bool:
    """Whether the store was short of a lock or a connection for a moment, as SQLite often is."""
    return "database is locked" in str(error) or error_code(error) == "TEMPORARILY_UNAVAILABLE"


def patiently(call: Callable[[], T], attempts: int = 8) -> T:
    """Makes a call that does no harm when it is repeated, again while the store is busy.

    Args:
        call: Callable without arguments.
        attempts: Most calls, default 8: the pauses between them come to 6 s at most.
    """
    for attempt in range(attempts):
        try:
            return call()
        except Exception as error:
            if not is_busy(error) or attempt == attempts - 1:
                raise
            time.sleep(random.uniform(0.5, 1) * 0.05 * 2**attempt)
    raise AssertionError("unreachable")


def pages(search: Callable[..., Any], size: int) -> Iterator[Any]:
    """All that a search of MLflow's client finds, page by page.

    Args:
        search: Callable that takes `max_results` and `page_token`.
        size: Number of results of a page; MLflow bounds it.
    """
    token = None
    while True:
        page = search(max_results=size, page_token=token)
        yield from page
        if not (token := page.token):
            return


def condition(key: str, value: str, how: str = "=") -> str:
    r"""One condition of MLflow's searches; its values have no escapes, only two kinds of quotes.

    Args:
        key: Field of the search, such as `name` or `tags.split`.
        value: Value, which may have been written by others.
        how: Operator, default `=`.

    Raises:
        DataError: The value cannot be quoted.

    Examples:
        >>> condition("name", "bob's", "LIKE")
        'name LIKE "bob\'s"'
    """
    quotes = [quote for quote in ("'", '"') if quote not in value]
    if not quotes or "\\" in value or not value.isprintable():
        raise DataError(
            f"{key} {value!r}", "a name that MLflow can search for", "have it renamed or deleted"
        )
    return f"{key} {how} {quotes[0]}{value}{quotes[0]}"


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turns what MLflow and the network raise into one line.

    Args:
        doing: Description of what is being tried, as in `promote costmodel.cpu-x86`.
    """
    try:
        yield
    except HetfeatError:
        raise
    except Exception as error:
        if not is_foreign(error):
            raise
        raise in_our_words(error, doing) from error


def is_foreign(error: BaseException) -> bool:
    """Whether MLflow, the network or the storage raised it, and not a defect of ours."""
    origins = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    return isinstance(error, OSError) or not _FOREIGN.isdisjoint(origins)


def in_our_words(error: Exception, doing: str) -> HetfeatError:
    """The one line that says what a foreign error means.

    Args:
        error: Error for which `is_foreign` holds.
        doing: Description of what was being tried, as in `translated`.
    """
    code, text = error_code(error), _first_line(error)
    if not code or (unusable := _unusable_storage(error)):
        return WorkFailed(
            f"no way to {doing} ({unusable if code else f'{type(error).__name__}: {text}'})",
            "storage that answers and has room left",
            "check the disk, the server and its credentials, then repeat the command",
        )
    if code in ("UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED") or "error code 401" in text:
        return RequestError(
            f"no right to {doing}: the server does not know this user",
            "a valid user name and password, or token",
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or a new "
            "MLFLOW_TRACKING_TOKEN",
        )
    if is_refused(error):
        return RequestError(
            f"no right to {doing} as '{user()}'",
            "a user with the permission EDIT on it",
            "ask its owner or an administrator of the server",
        )
    if "out-of-date database schema" in text:
        return WorkFailed(
            f"no way to {doing} (a tracking store made by another version of MLflow)",
            "a store with this version's tables",
            "back it up and run `mlflow db upgrade URI`, or use the MLflow that made it",
        )
    if code in MISSING:
        return RequestError(
            f"no way to {doing} ({text})",
            "a model, version and run that exist",
            "`hetfeat versions` lists them",
        )
    # MLflow's basic auth answers to a token, which it does not know, as to an error of its own.
    token = ", MLFLOW_TRACKING_TOKEN" if os.environ.get("MLFLOW_TRACKING_TOKEN") else ""
    return WorkFailed(
        f"no way to {doing} ({text})",
        "a registry that answers",
        f"check MLFLOW_TRACKING_URI{token} and the server, then repeat the command",
    )


def _unusable_storage(error: BaseException) -> str:
    """What SQLite or the disk says where MLflow's database cannot be written; mostly nothing."""
    text = str(error)
    return next((said for said in _OF_THE_STORAGE if said in text), "")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
