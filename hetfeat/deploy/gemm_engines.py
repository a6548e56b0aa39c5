"""Matrix multiplication in the libraries and in a program of ours, as engines to compare."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Run = Callable[[], Any]


def torch_matmul(settings: dict[str, Any]) -> Run:
    """torch's, which is oneDNN's or MKL's."""
    import torch

    torch.set_num_threads(settings["threads"])
    a, b = map(torch.from_numpy, _operands(settings))
    out = torch.empty(a.shape[0], b.shape[1])
    return lambda: torch.matmul(a, b, out=out)


def openblas_matmul(settings: dict[str, Any]) -> Run:
    """NumPy's, which is OpenBLAS's in its wheels."""
    os.environ["OPENBLAS_NUM_THREADS"] = str(settings["threads"])  # read when NumPy is loaded
    import numpy as np

    a, b = _operands(settings)
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    return lambda: np.matmul(a, b, out=out)


def searched_matmul(settings: dict[str, Any]) -> Run:
    """The program of a state of the tile space."""
    from hetfeat.measure.gemm_child import compile_state

    a, b = _operands(settings)
    return compile_state(settings["target"], settings["state"], a, b)


def _operands(
    settings: dict[str, Any],
) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
    """A and B of the shape, float32."""
    import numpy as np

    m, n, k = settings["gemm"]
    rng = np.random.default_rng(0)
    return rng.random((m, k), np.float32), rng.random((k, n), np.float32)
