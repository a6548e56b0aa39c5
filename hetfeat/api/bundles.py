"""Compiled networks of the Python API: called like functions."""

import sys
from functools import cached_property
from pathlib import Path
from typing import Any

from hetfeat.deploy.bundle import load_bundle as loaded_bundle
from hetfeat.deploy.bundle import read_manifest
from hetfeat.deploy.report import DeployReport, parse_report
from hetfeat.deploy.runtime import BundleError, LoadedBundle
from hetfeat.errors import DataError, RequestError


class Bundle:
    """A compiled network, called with arrays of the shapes and types it was compiled for.

    NumPy arrays in give NumPy arrays out, torch tensors give torch tensors, on the device of the
    first. Where its rows do not depend on each other any number of rows may be given. It is loaded
    when it is first called; call it from one thread.

    Attributes:
        folder: Folder of the bundle. It may be copied; its `run.py` needs apache-tvm and NumPy
            alone.
        manifest: Manifest, the bundle's description of itself: `inputs`, `device`, `versions` and
            more.

    Examples:
        >>> import numpy as np, hetfeat
        >>> bundle = hetfeat.load_bundle("bundle")
        >>> bundle(np.ones((2, 8), np.float32)).shape
        (2, 4)
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.manifest: dict[str, Any] = read_manifest(self.folder)

    @property
    def report(self) -> DeployReport:
        """What deploying it came to: `latency_ms`, `untuned_ms`, `trials`, `max_abs_error` ...

        Raises:
            DataError: The bundle was written without one.
        """
        what, action = f"the report of '{self.folder}'", "deploy the network anew"
        return parse_report(self.manifest.get("report"), what=what, action=action)

    def __call__(self, *inputs: Any) -> Any:
        """The output, or a tuple of them where there are several.

        Raises:
            DataError: Inputs of other shapes or types; or, at the first call, a changed file or a
                bundle for another CPU.
        """
        if not inputs:
            raise RequestError("a bundle called without inputs", "its inputs", "pass them")
        torch = sys.modules.get("torch")
        first = inputs[0]
        is_torch = torch is not None and isinstance(first, torch.Tensor)
        arrays = [value.detach().cpu().numpy() if is_torch else value for value in inputs]
        loaded = self._loaded
        try:
            outputs = loaded.run(arrays)
        except BundleError as error:
            raise DataError(*error.parts) from error
        several = isinstance(outputs, tuple | list)
        values = list(outputs) if several else [outputs]
        if torch is not None and is_torch:
            values = [torch.from_numpy(value).to(first.device) for value in values]
        return tuple(values) if several else values[0]

    def __repr__(self) -> str:
        return f"Bundle({str(self.folder)!r})"

    @cached_property
    def _loaded(self) -> LoadedBundle:
        return loaded_bundle(self.folder)

    def load(self) -> "Bundle":
        """Checks and loads it now, and returns it.

        Raises:
            DataError: A changed, missing or added file, a wrong signature, or another CPU's.
        """
        assert self._loaded
        return self


def load_bundle(folder: Path | str) -> Bundle:
    """A bundle that `deploy_network` or `hetfeat deploy` has written, checked and loaded.

    Args:
        folder: Folder of the bundle. With HETFEAT_PUBLIC_KEY set only those signed by its key load.

    Raises:
        DataError: Not a bundle, a changed, missing or added file, a wrong signature, or one for
            another CPU.

    Examples:
        >>> import numpy as np, torch, hetfeat
        >>> bundle = hetfeat.load_bundle("bundle")
        >>> x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
        >>> bool(np.allclose(bundle(torch.from_numpy(x)).numpy(), bundle(x)))
        True
    """
    return Bundle(folder).load()
