"""The data set that comes with the package: this folder is itself a record store."""

from pathlib import Path


def packaged_store() -> Path:
    """Where the packaged record store lies."""
    return Path(__file__).resolve().parent
