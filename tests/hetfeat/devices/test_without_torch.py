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


NETWORK = """
import sys
from pathlib import Path

from hetfeat.deploy.verify import reference_of
from hetfeat.workloads.networks import load_network
from hetfeat.workloads.relax import import_network
from hetfeat.workloads.seeded_resnet18 import write_resnet18

write_resnet18(Path("net.onnx"))
network = load_network("net.onnx")
module = import_network(network)
print(reference_of(network, 0, module=module).tells, "torch" in sys.modules)
"""


def test_an_onnx_model_is_imported_and_computed_without_torch(tmp_path):
    (tmp_path / "of_test.py").write_text(NETWORK)
    done = subprocess.run(
        words_to_run("of_test"),
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "True False\n", done.stderr
