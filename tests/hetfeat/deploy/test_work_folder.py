"""Folders in which a bundle is made: gone afterwards, and those of a killed deployment, too."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hetfeat.deploy.work import OWNER, remove_left_behind, work_folder

MAKER = """
import sys, time
from pathlib import Path
from hetfeat.deploy.work import work_folder
with work_folder(Path(sys.argv[1])) as work:
    (work / "tuned").mkdir()
    print(work, flush=True)
    time.sleep(300)
"""


def kept(out: Path) -> list[str]:
    return sorted(path.name for path in out.parent.iterdir())


@pytest.fixture
def maker(tmp_path, project):
    """A process that is making `out`, and its work folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKER, str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(project)},
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.communicate()


def test_what_a_kill_left_goes_with_the_next_deployment(maker, tmp_path):
    process, left = maker
    with work_folder(tmp_path / "out") as work:
        assert left.is_dir() and work != left, "a living maker keeps its own"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert kept(tmp_path / "out") == [left.name]
    with work_folder(tmp_path / "out"):
        assert not left.exists()
    assert kept(tmp_path / "out") == []


def test_nothing_else_is_removed(tmp_path):
    out, elsewhere = tmp_path / "here" / "out", tmp_path / "elsewhere"
    for folder in (".out.journal", ".out.x", ".other.x", "out.y"):
        (out.parent / folder).mkdir(parents=True)
    for folder in (elsewhere, out.parent / ".other.x", out.parent / "out.y"):
        folder.mkdir(exist_ok=True)
        (folder / OWNER).touch()
    (out.parent / ".out.x" / OWNER).symlink_to(elsewhere / OWNER)
    (out.parent / ".out.link").symlink_to(elsewhere)
    (out.parent / ".out.file").touch()
    (out.parent / ".out.fifo").mkdir()
    os.mkfifo(out.parent / ".out.fifo" / OWNER)
    before = kept(out)
    remove_left_behind(out)
    assert kept(out) == before
    assert (elsewhere / OWNER).exists()
