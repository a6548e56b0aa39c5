import os
import subprocess
import sys

import psutil
import pytest

CHILD = "from hetfeat.devices.death import die_with_parent; die_with_parent({parent}); input()"


def start(parent, then=""):
    return subprocess.Popen(
        [sys.executable, "-c", CHILD.format(parent=parent) + then],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_child_whose_parent_is_there_goes_on():
    child = start(os.getpid(), "; print('went on')")
    assert child.communicate("\n")[0] == "went on\n"


def test_a_child_whose_parent_went_while_it_started_ends():
    _, errors = start(os.getppid()).communicate("\n")
    assert errors == "the process that asked for this is gone\n"


def test_a_parent_that_is_killed_takes_its_child_along():
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c',"
            ' "from hetfeat.devices.death import die_with_parent; die_with_parent();'
            " print('up', flush=True); import time; time.sleep(60)\"],"
            " stdout=subprocess.PIPE); child.stdout.readline();"
            " print(child.pid, flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    try:
        child.wait(30)
    except psutil.TimeoutExpired:
        child.kill()
        pytest.fail("the child lived on")


@pytest.mark.slow
def test_micro_benchmarks_end_where_nobody_waits_for_them():
    done = subprocess.run(
        [sys.executable, "-m", "hetfeat.devices.target", "{}", str(os.getppid())],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "the process that asked for this is gone\n"
