"""A bundle: a compiled network in a folder, with a manifest that says all about it."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import hetfeat
from hetfeat.deploy import runtime
from hetfeat.deploy.runtime import BundleError, LoadedBundle
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError

Array = npt.NDArray[Any]


def write_bundle(
    folder: Path,
    executable: Any,
    parameters: Sequence[Array],
    profile: DeviceProfile,
    inputs: Sequence[Array],
    facts: Mapping[str, Any],
) -> None:
    """Writes a bundle's files and manifest into `folder`, which must not exist.

    Args:
        folder: Where to; complete once it exists.
        executable: The Relax executable.
        parameters: What its `main` takes after the inputs.
        profile: Device it was compiled for.
        inputs: Sample inputs; their shapes and types become the bundle's.
        facts: What else the manifest says.
    """
    draft = folder.with_name(folder.name + ".draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    executable.export_library(str(draft / "lib.so"))
    np.savez(draft / "params.npz", *parameters, allow_pickle=False)
    for position, value in enumerate(inputs):
        np.save(draft / f"sample_input_{position}.npy", value, allow_pickle=False)
    shutil.copyfile(runtime.__file__, draft / "run.py")
    manifest = {
        "format": runtime.FORMAT_VERSION,
        "device": profile.name,
        "target": profile.target,
        "threads": profile.threads,
        "code_features": runtime.code_features(profile.target),
        "inputs": [{"shape": list(v.shape), "dtype": str(v.dtype)} for v in inputs],
        "versions": {
            "hetfeat": hetfeat.__version__,
            "tvm": version("apache-tvm"),
            "numpy": np.__version__,
        },
        "files": {path.name: _sha256(path) for path in sorted(draft.iterdir())},
        **facts,
    }
    _write_manifest(draft, manifest)
    os.replace(draft, folder)


def add_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Adds to the manifest what was only known once the bundle ran."""
    _write_manifest(folder, read_manifest(folder) | dict(facts))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle.

    Raises:
        DataError: Not a bundle.
    """
    with _as_data_error():
        return runtime.read_manifest(folder)


def load_bundle(folder: Path) -> LoadedBundle:
    """A bundle, checked and loaded into this process.

    Raises:
        DataError: Not a bundle, a changed file, or one for another CPU.
    """
    with _as_data_error():
        return LoadedBundle(folder)


def run_bundle(folder: Path, inputs: Sequence[Path]) -> Array:
    """The output of a bundle for inputs in `.npy` files.

    Raises:
        DataError: The bundle or an input is not what it should be.
    """
    with _as_data_error():
        output: Array = LoadedBundle(folder).run(runtime.load_arrays(list(inputs)))
    return output


@contextlib.contextmanager
def _as_data_error() -> Iterator[None]:
    """Turns the runtime's own error into the toolkit's."""
    try:
        yield
    except BundleError as error:
        raise DataError(*error.parts) from error


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    draft = folder / f".{runtime.MANIFEST}.draft"
    draft.write_text(json.dumps(manifest, indent=1) + "\n")
    os.replace(draft, folder / runtime.MANIFEST)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
