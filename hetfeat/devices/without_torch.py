"""Runs a module as the main program of a process that finds no torch.

    python -m hetfeat.devices.without_torch MODULE ARGUMENT...

TVM's import takes torch in wherever it finds it, for torch's own tensors. A child that has none is
ready three seconds of a core sooner without, and holds 200 MB less.
"""

import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _NoTorch(MetaPathFinder):
    """Says that there is no torch; `None` in `sys.modules` would pass for one that is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Refuses torch, and leaves all else to the other finders."""
        if fullname == "torch":
            raise ModuleNotFoundError("No module named 'torch' in this process", name=fullname)


def words_to_run(module: str) -> list[str]:
    """The first words of a command line that runs a module so; its arguments follow."""
    return [sys.executable, "-m", __name__, module]


if __name__ == "__main__":
    sys.meta_path.insert(0, _NoTorch())
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
