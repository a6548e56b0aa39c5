"""A folder that appears whole or not at all."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hetfeat.durable import sync, sync_tree
from hetfeat.errors import RequestError


def refuse_in_use(out: Path) -> None:
    """Raises RequestError unless a path is new or an empty folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RequestError(f"--out '{out}', which is in use", "a new or empty folder", "choose one")


@contextlib.contextmanager
def whole(out: Path) -> Iterator[Path]:
    """An empty draft on the same disk, which becomes `out` when the block ends well."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as beside:
        draft = Path(beside) / "draft"
        draft.mkdir()
        yield draft
        if out.exists():
            out.rmdir()
        sync_tree(draft)
        draft.rename(out)
        sync(out.parent)
