"""What the libraries that read and compile networks raise, as one line."""

import contextlib
import errno
import hashlib
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from hetfeat.devices.probe import home
from hetfeat.errors import HetfeatError, RequestError, WorkFailed
from hetfeat.parsing import printable

_OWN = Path(__file__).parents[1]
_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


def said(error: BaseException, most_characters: int = 1000) -> str:
    """What an error says, on one line.

    Args:
        error: Error of a library.
        most_characters: Longest text; 1000 by default: an importer lists every operator that it
            does not know.
    """
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, KeyError | AttributeError | TypeError | IndexError) or not text:
        text = f"{type(error).__name__}: {text}".removesuffix(": ")
    return printable(text.strip(), most_characters)


@contextlib.contextmanager
def refusals(
    network: str,
    refuses: str = "which a library refuses",
    expected: str = "a network that TVM and its own framework know",
    action: str = "change the network",
) -> Iterator[None]:
    """Turns whatever a library raises at a network into a `RequestError`.

    Our own errors pass through. The traceback goes to a file, which the line names.

    Args:
        network: Name of the network.
        refuses: Text that says what the library does not do with it, default `which a library
            refuses`.
        expected: Text that says what would have been right, default a network that TVM and its
            framework know.
        action: Text that says what to do about it, default `change the network`.

    Raises:
        RequestError: A library raised an error.
        WorkFailed: The code that raised it is our own, or memory ran out.
    """
    try:
        yield
    except HetfeatError:
        raise
    except MemoryError as error:
        raise WorkFailed(
            f"network '{network}', for which memory ran out", "more memory", "free some"
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
            raise
        kept = _keep(error)
        if _is_own(error):
            raise WorkFailed(
                f"network '{network}', at which hetfeat itself fails ({said(error)})",
                "no such defect",
                f"report it with '{kept}'",
            ) from error
        raise RequestError(
            f"network '{network}', {refuses} ({said(error)})",
            expected,
            f"{action}; '{kept}' has the traceback",
        ) from error


def _is_own(error: Exception) -> bool:
    """Whether our own code raised it. What torch's compiled code raises has our frame last, too."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not isinstance(error, AttributeError | NameError | KeyError | IndexError):
        return False
    return Path(frames[-1].filename).is_relative_to(_OWN)


def _keep(error: Exception) -> Path:
    """The file with an error's traceback, the same for the same traceback."""
    text = "".join(traceback.format_exception(error)).encode(errors="backslashreplace")
    name = f"{hashlib.sha256(text).hexdigest()[:12]}.txt"
    folder = home() / "errors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="hetfeat-errors-"))
        (folder / name).write_bytes(text)
    return folder / name
