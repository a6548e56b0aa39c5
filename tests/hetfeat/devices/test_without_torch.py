"""Children that are kept without torch."""

import subprocess
import sys

from hetfeat.devices.without_torch import words_to_run

CHILD = """
import sys
try:
    import torch
except ImportError as error:
    print(error.name)
print("torch" in sys.modules, __name__, sys.argv[1:])
"""


def test_a_module_runs_as_the_main_program_without_torch(tmp_path):
    (tmp_path / "of_test.py").write_text(CHILD)
    done = subprocess.run(
        [*words_to_run("of_test"), "3", "{}"],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout == "torch\nFalse __main__ ['3', '{}']\n"
