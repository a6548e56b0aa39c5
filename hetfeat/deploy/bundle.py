"""A bundle: a compiled network in a folder, with a manifest that says all about it."""

import contextlib
import hashlib
import itertools
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
from hetfeat.deploy.inputs import load_inputs
from hetfeat.deploy.runtime import BundleError, LoadedBundle
from hetfeat.deploy.signing import sign
from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Variant:
    """The network compiled for one batch size.

    Attributes:
        batch: Batch size in rows.
        executable: Executable of Relax.
        parameters: Arrays that its `main` takes after the inputs.
    """

    batch: int
    executable: Any
    parameters: Sequence[Array]


@dataclass(frozen=True)
class Output:
    """An output as the framework that the network came from computes it.

    Attributes:
        name: Name of the output.
        value: Value that the framework computes.
        tolerance: Largest error allowed, in units of the output.
    """

    name: str
    value: Array
    tolerance: float


@dataclass(frozen=True)
class Sample:
    """A computation that checks a copy of the bundle.

    Attributes:
        inputs: Inputs of the first variant; their shapes and types become the bundle's.
        outputs: Outputs of the first variant, at least one.
    """

    inputs: Sequence[Array]
    outputs: Sequence[Output]


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
        folder: Folder to write; complete once it exists.
        variants: The compiled network, a variant for each batch size.
        profile: Profile of the device it was compiled for.
        sample: Computation that is written with it.
        facts: Facts that the manifest tells beside the others.

    Raises:
        WorkFailed: The device is a GPU, and nvcc does not compile for it.
    """
    from hetfeat.devices.target import code_features

    unfinished = folder.with_name(folder.name + ".draft")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    listed = _write_variants(unfinished, variants, profile)
    described = _write_sample(unfinished, sample)
    shutil.copyfile(runtime.__file__, unfinished / "run.py")
    manifest = {
        "created": _created(),
        "device": profile.name,
        "target": dict(profile.target),
        "threads": profile.threads,
        "code_features": code_features(profile.target),
        **described,
        "variants": listed,
        "any_rows": False,
        "versions": {
            "hetfeat": hetfeat.__version__,
            "tvm": version("apache-tvm"),
            "tvm_ffi": version("apache-tvm-ffi"),
            "numpy": np.__version__,
        },
        "files": {path.name: _sha256(path) for path in sorted(unfinished.iterdir())},
        **facts,
    }
    _write_manifest(unfinished, manifest)
    os.replace(unfinished, folder)


def _write_variants(
    folder: Path, variants: Sequence[Variant], profile: DeviceProfile
) -> list[dict[str, Any]]:
    """Writes libraries, kernels and parameters; what the manifest says of each variant."""
    from hetfeat.devices.target import linker

    parameters: dict[str, Array] = {}  # by digest: variants share what is laid out alike
    listed = []
    for variant in variants:
        library = f"lib_{variant.batch}.so"
        variant.executable.export_library(str(folder / library), fcompile=linker(profile.target))
        if profile.target.is_gpu:
            kernels = compile_kernels(variant.executable, profile.target)
            (folder / library).with_suffix(runtime.KERNELS).write_bytes(kernels)
        names = [_content_digest(value) for value in variant.parameters]
        parameters |= dict(zip(names, variant.parameters, strict=True))
        listed.append({"batch": variant.batch, "library": library, "parameters": names})
    np.savez(folder / "params.npz", allow_pickle=False, **parameters)
    return listed


def _write_sample(folder: Path, sample: Sample) -> dict[str, Any]:
    """Writes the arrays of a sample; what the manifest says of it."""
    described = _sample_facts(sample)
    values = [*sample.inputs, *(output.value for output in sample.outputs)]
    names = [*runtime.sample_inputs(described), *runtime.sample_outputs(described)]
    for name, value in zip(names, values, strict=True):
        np.save(folder / name, value, allow_pickle=False)
    return described


def _sample_facts(sample: Sample) -> dict[str, Any]:
    """What a manifest says of inputs and outputs; of one as all readers of its format know it."""
    outputs = [
        {"name": one.name, **_described(one.value), "tolerance": one.tolerance}
        for one in sample.outputs
    ]
    facts: dict[str, Any] = {
        "format": runtime.SEVERAL_OUTPUTS if len(outputs) > 1 else runtime.FORMAT_VERSION,
        "inputs": [_described(value) for value in sample.inputs],
        "outputs": outputs,
    }
    if len(outputs) == 1:
        (only,) = sample.outputs
        facts |= {"output": _described(only.value), "tolerance": only.tolerance}
    return facts


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


@dataclass(frozen=True)
class BundleRun:
    """What a bundle computed, and how long that took.

    Attributes:
        outputs: Outputs by name.
        loading_s: Seconds of verifying and loading the bundle and its inputs.
        runs_s: Seconds of each run.
    """

    outputs: dict[str, Array]
    loading_s: float
    runs_s: tuple[float, ...]


def run_bundle(
    folder: Path, inputs: Sequence[Path], output: Path | None = None, repeat: int = 1
) -> BundleRun:
    """Runs a bundle on inputs in `.npy` files or images.

    Args:
        folder: Folder of the bundle.
        inputs: Path of each input.
        output: Path of the file for the outputs; default None for none.
        repeat: Number of runs, default 1.

    Raises:
        DataError: The bundle, an input or `output` is not what it should be.
    """
    started = time.perf_counter()
    with _as_data_error():
        loaded = runtime.load_for(folder, output) if output else LoadedBundle(folder)
        arrays = load_inputs(inputs, loaded.manifest["inputs"])
        times_s = [time.perf_counter()]
        for _ in range(repeat):
            outputs = loaded.run_by_name(arrays)
            times_s.append(time.perf_counter())
        if output:
            runtime.write_outputs(outputs, output)
    runs_s = tuple(end - begin for begin, end in itertools.pairwise(times_s))
    return BundleRun(outputs, times_s[0] - started, runs_s)


def sample_inputs(folder: Path) -> list[Array]:
    """The inputs of a bundle's sample, checked as `load_bundle` checks them.

    Raises:
        DataError: Not a bundle, or a changed file.
    """
    with _as_data_error(), runtime.verified(folder) as (manifest, private):
        return runtime.load_arrays([private / name for name in runtime.sample_inputs(manifest)])


@contextlib.contextmanager
def _as_data_error() -> Iterator[None]:
    """Turns the runtime's own error into the toolkit's."""
    try:
        yield
    except BundleError as error:
        raise DataError(*error.parts) from error


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    unfinished = folder / f".{runtime.MANIFEST}.draft"
    data = (json.dumps(manifest, indent=1) + "\n").encode()
    unfinished.write_bytes(data)
    os.replace(unfinished, folder / runtime.MANIFEST)
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
