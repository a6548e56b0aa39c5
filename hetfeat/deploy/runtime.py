"""Loads and runs a bundle with apache-tvm and numpy alone.

A copy of this file lies in every bundle as `run.py`, so it imports nothing of the toolkit:

    python BUNDLE/run.py --input x.npy --output y.npy
"""

import argparse
import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

FORMAT_VERSION = 1
MANIFEST = "bundle.json"
CODE_FEATURES = re.compile(
    r"(avx|sse(?!4a)|fma$|bmi|f16c|popcnt|lzcnt|movbe|gfni|neon|sve|dotprod|fullfp16|i8mm|bf16)"
)
"""CPU features that instructions are made from; a bundle runs without the others."""


class BundleError(Exception):
    """A bundle or an input is not what it should be; three parts make the message."""

    def __init__(self, given: str, expected: str, action: str) -> None:
        super().__init__(f"{given}; expected {expected}; {action}")
        self.parts = given, expected, action


class LoadedBundle:
    """A bundle in memory, ready to run.

    Args:
        folder: The bundle.

    Raises:
        BundleError: Not a bundle, a changed file, or one for another CPU. Every check comes
            before anything of the bundle is loaded.
    """

    def __init__(self, folder: Path) -> None:
        self.manifest = read_manifest(folder)
        check_files(folder, self.manifest)
        # TVM reads this once, when its first parallel kernel runs; alone it takes half the cores.
        cores = len(os.sched_getaffinity(0))
        os.environ["TVM_NUM_THREADS"] = str(min(self.manifest["threads"], cores))
        check_cpu(folder, self.manifest)
        import numpy as np
        import tvm
        from tvm import relax

        self._tensor = tvm.runtime.tensor
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(folder / "lib.so")), tvm.cpu())
        self._main = machine["main"]
        with np.load(folder / "params.npz", allow_pickle=False) as stored:
            self._parameters = [self._tensor(stored[name]) for name in stored.files]

    def prepare(self, inputs: list[Any]) -> Any:
        """A function without arguments that runs the network on `inputs`, for timing."""
        arguments = [self._tensor(value) for value in self._checked(inputs)] + self._parameters
        return lambda: self._main(*arguments)

    def run(self, inputs: list[Any]) -> Any:
        """The output, a numpy array, for numpy arrays of the manifest's shapes and types."""
        output = self.prepare(inputs)()
        while not hasattr(output, "numpy"):
            output = output[0]
        return output.numpy()

    def _checked(self, inputs: list[Any]) -> list[Any]:
        import numpy as np

        wanted = [(tuple(i["shape"]), i["dtype"]) for i in self.manifest["inputs"]]
        given = [(tuple(value.shape), str(value.dtype)) for value in inputs]
        if wanted != given:
            raise BundleError(
                f"input {_described(given)}", _described(wanted), "convert or reshape it"
            )
        return [np.ascontiguousarray(value) for value in inputs]


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle.

    Raises:
        BundleError: There is none, or it is of another format.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        version = manifest["format"]
        if version == FORMAT_VERSION:
            _check_manifest(manifest)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(
            f"'{folder}'", f"a bundle: a folder with a {MANIFEST}", "make one with hetfeat deploy"
        ) from error
    if version != FORMAT_VERSION:
        raise BundleError(
            f"bundle '{folder}' of format {version}", f"format {FORMAT_VERSION}", "deploy it anew"
        )
    return manifest


def _check_manifest(manifest: dict[str, Any]) -> None:
    """Raises KeyError, TypeError or ValueError unless what `LoadedBundle` needs is there."""
    if not {"lib.so", "params.npz"} <= set(manifest["files"]):
        raise ValueError("files without the library or the parameters")
    for key in ("device", "code_features"):
        manifest[key]
    [(tuple(i["shape"]), i["dtype"]) for i in manifest["inputs"]]
    int(manifest["threads"])


def check_files(folder: Path, manifest: dict[str, Any]) -> None:
    """Raises BundleError unless every file of the manifest is there, unchanged."""
    for name, digest in manifest["files"].items():
        path = folder / name
        if Path(name).name != name or path.is_symlink() or not path.is_file():
            raise BundleError(
                f"bundle '{folder}' without a proper file {name}",
                "the files that deploy wrote",
                "copy it again",
            )
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise BundleError(
                    f"bundle '{folder}' whose file {name} has changed",
                    f"SHA-256 {digest[:12]}...",
                    "copy it again, or deploy anew",
                )


def check_cpu(folder: Path, manifest: dict[str, Any]) -> None:
    """Raises BundleError unless this CPU has every instruction set the bundle was compiled for."""
    from tvm.target import codegen

    host = {"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()}
    missing = sorted(set(manifest["code_features"]) - set(code_features(host)))
    if missing:
        raise BundleError(
            f"bundle '{folder}' for device {manifest['device']} on a {host['mcpu']} CPU",
            f"a CPU with {', '.join(missing)}",
            "deploy the network to this device",
        )


def code_features(target: dict[str, Any]) -> list[str]:
    """The CPU features of a target that instructions are made from."""
    import tvm
    from tvm.target import codegen

    found = codegen.llvm_get_cpu_features(tvm.target.Target(target))
    return sorted(str(name) for name in found if CODE_FEATURES.match(str(name)))


def load_arrays(paths: list[Path]) -> list[Any]:
    """Arrays of `.npy` files; nothing in them is unpickled.

    Raises:
        BundleError: A file is missing or holds no plain array.
    """
    import numpy as np

    arrays = []
    for path in paths:
        try:
            array = np.load(path, allow_pickle=False)
            if not isinstance(array, np.ndarray):
                raise ValueError("an archive of arrays")
            arrays.append(array)
        except (OSError, ValueError, EOFError) as error:
            raise BundleError(
                f"input '{path}' ({error})",
                "a .npy file of numbers",
                "write it with numpy.save",
            ) from error
    return arrays


def _described(values: list[Any]) -> str:
    return ", ".join(f"{dtype} {list(shape)}" for shape, dtype in values)


def main() -> int:
    """Runs the bundle that this file lies in."""
    parser = argparse.ArgumentParser(description="Runs this bundle on a .npy file.")
    parser.add_argument("--input", type=Path, required=True, action="append")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    try:
        if not given.output.parent.is_dir():
            raise BundleError(
                f"--output '{given.output}'", "a file in a folder that exists", "correct it"
            )
        output = LoadedBundle(Path(__file__).resolve().parent).run(load_arrays(given.input))
    except BundleError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    import numpy as np

    with given.output.open("wb") as file:
        np.save(file, output, allow_pickle=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
