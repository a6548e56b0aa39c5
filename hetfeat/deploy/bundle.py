"""A bundle: a compiled network in a folder, with a manifest that says all about it."""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import hetfeat
from hetfeat.deploy import runtime
from hetfeat.deploy.cuda import compile_kernels
from hetfeat.deploy.runtime import BundleError, LoadedBundle
from hetfeat.deploy.signing import sign
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Variant:
    """The network compiled for one batch size.

    Attributes:
        batch: The batch size.
        executable: The Relax executable.
        parameters: What its `main` takes after the inputs.
    """

    batch: int
    executable: Any
    parameters: Sequence[Array]


@dataclass(frozen=True)
class Sample:
    """A computation that proves a copy of the bundle.

    Attributes:
        inputs: Of the first variant; their shapes and types become the bundle's.
        output: What the framework that the network came from computes.
        tolerance: Largest error allowed, in units of the output.
    """

    inputs: Sequence[Array]
    output: Array
    tolerance: float


def write_bundle(
    folder: Path,
    variants: Sequence[Variant],
    profile: DeviceProfile,
    sample: Sample,
    facts: Mapping[str, Any],
) -> None:
    """Writes a bundle's files and manifest into `folder`, which must not exist.

    The same arguments give the same bytes while SOURCE_DATE_EPOCH sets the date.

    Args:
        folder: Where to; complete once it exists.
        variants: One for each batch size.
        profile: Device it was compiled for.
        sample: Written with it.
        facts: What else the manifest says.

    Raises:
        WorkFailed: The device is a GPU, and nvcc does not compile for it.
    """
    from hetfeat.devices.target import code_features, linker

    draft = folder.with_name(folder.name + ".draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    parameters: dict[str, Array] = {}  # by digest: variants share what is laid out alike
    listed = []
    for variant in variants:
        library = f"lib_{variant.batch}.so"
        variant.executable.export_library(str(draft / library), fcompile=linker(profile.target))
        if profile.target.is_gpu:
            kernels = compile_kernels(variant.executable, profile.target)
            (draft / library).with_suffix(runtime.KERNELS).write_bytes(kernels)
        names = [_content_digest(value) for value in variant.parameters]
        parameters |= dict(zip(names, variant.parameters, strict=True))
        listed.append({"batch": variant.batch, "library": library, "parameters": names})
    np.savez(draft / "params.npz", allow_pickle=False, **parameters)
    for position, value in enumerate(sample.inputs):
        np.save(draft / f"sample_input_{position}.npy", value, allow_pickle=False)
    np.save(draft / "sample_output.npy", sample.output, allow_pickle=False)
    shutil.copyfile(runtime.__file__, draft / "run.py")
    manifest = {
        "format": runtime.FORMAT_VERSION,
        "created": _created(),
        "device": profile.name,
        "target": dict(profile.target),
        "threads": profile.threads,
        "code_features": code_features(profile.target),
        "inputs": [_described(value) for value in sample.inputs],
        "output": _described(sample.output),
        "tolerance": sample.tolerance,
        "variants": listed,
        "any_rows": False,
        "versions": {
            "hetfeat": hetfeat.__version__,
            "tvm": version("apache-tvm"),
            "tvm_ffi": version("apache-tvm-ffi"),
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


def check_files(folder: Path, manifest: dict[str, Any]) -> None:
    """Whether a bundle holds its manifest's files, unchanged, and no others.

    Raises:
        DataError: It does not.
    """
    with _as_data_error():
        runtime.check_files(folder, manifest)


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


def sample_inputs(folder: Path) -> list[Array]:
    """The inputs of a bundle's sample, checked as `load_bundle` checks them.

    Raises:
        DataError: Not a bundle, or a changed file.
    """
    with _as_data_error(), runtime.verified(folder) as (manifest, private):
        names = [f"sample_input_{i}.npy" for i in range(len(manifest["inputs"]))]
        return runtime.load_arrays([private / name for name in names])


@contextlib.contextmanager
def _as_data_error() -> Iterator[None]:
    """Turns the runtime's own error into the toolkit's."""
    try:
        yield
    except BundleError as error:
        raise DataError(*error.parts) from error


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    draft = folder / f".{runtime.MANIFEST}.draft"
    data = (json.dumps(manifest, indent=1) + "\n").encode()
    draft.write_bytes(data)
    os.replace(draft, folder / runtime.MANIFEST)
    sign(folder, data)


def _created() -> str:
    """Now in UTC, or the moment that SOURCE_DATE_EPOCH sets (reproducible-builds.org)."""
    seconds = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _described(value: Array) -> dict[str, Any]:
    return {"shape": list(value.shape), "dtype": str(value.dtype)}


def _content_digest(value: Array) -> str:
    content = f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    return hashlib.sha256(content).hexdigest()[:32]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
