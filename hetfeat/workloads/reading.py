"""What reading a network's file has in common, whatever the file is."""

from collections.abc import Sequence
from pathlib import Path

from hetfeat.errors import DataError, RequestError


def content_of(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        RequestError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise RequestError(
            f"network '{path}' ({error.strerror})", "a file that exists", "correct --network"
        ) from error


def unreadable(path: Path, error: Exception) -> DataError:
    """What says that a library does not take a file for what its name says."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    kind = (
        "an ONNX model" if path.suffix.lower() == ".onnx" else "an exported program without pickles"
    )
    return DataError(f"network '{path}', which cannot be read ({first})", kind, "export it anew")


def check_batch(path: Path, shape: Sequence[int], batch: int) -> None:
    """Refuses a batch size that a file's inputs do not have.

    Raises:
        RequestError: Their first size is another one.
    """
    if batch > 1 and (not shape or shape[0] != batch):
        raise RequestError(
            f"--batch {batch} for '{path}', whose inputs have {shape[0] if shape else 'no'} rows",
            "the batch size in the file",
            "export the network with that batch size",
        )
