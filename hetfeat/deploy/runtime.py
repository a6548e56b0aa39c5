"""Loads and runs a bundle with apache-tvm and numpy alone.

A copy of this file lies in every bundle as `run.py`, so it imports nothing of the toolkit:

    python BUNDLE/run.py --input x.npy --output y.npy
    python BUNDLE/run.py --check
"""

import argparse
import base64
import contextlib
import hashlib
import json
import mmap
import os
import re
import sys
from pathlib import Path
from typing import Any

FORMAT_VERSION = 2
MANIFEST = "bundle.json"
SIGNATURE = "bundle.json.sig"
BESIDE = {MANIFEST, SIGNATURE, "manifest.json"}
"""Files that the manifest does not list: it, its signature, and what the registry adds."""
SPINS = "10000"  # yields of an idle TVM thread before it sleeps; 300,000 delay a process's end
KERNELS = ".fatbin"  # of the file beside a library that holds its kernels for an NVIDIA GPU
PUBLIC_KEY = "HETFEAT_PUBLIC_KEY"
"""Variable with the path of a PEM file; while it is set, only bundles signed by its key load."""
CPU_FLAGS = {"sse3": "pni", "lzcnt": "abm", "bmi": "bmi1"}
CPU_FLAGS |= {"neon": "asimd", "dotprod": "asimddp", "fullfp16": "asimdhp"}
CPU_FLAGS |= {f"sve2{part}": f"sve{part}" for part in ("aes", "bitperm", "sha3", "sm4")}
"""LLVM's names of CPU features where Linux has others, dots, dashes and underscores aside."""


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
        BundleError: Not a bundle, a changed, missing or added file, a wrong signature, or one for
            another CPU. Every check comes before anything of the bundle is loaded.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder)
        check_files(folder, self.manifest)
        load, self._tensor, placed = self._device()
        import numpy as np

        with np.load(folder / "params.npz", allow_pickle=False) as stored:
            parameters = placed({name: stored[name] for name in stored.files})
        self._variants = []
        for variant in self.manifest["variants"]:
            main = load(folder / variant["library"])
            values = [parameters[name] for name in variant["parameters"]]
            self._variants.append((variant["batch"], main, values))

    def _device(self) -> tuple[Any, Any, Any]:
        """Of a device that is right: what loads a library's `main`, an array, and parameters."""
        if self.manifest["target"]["kind"] == "cuda":
            return _on_gpu(self.folder, self.manifest)
        check_cpu(self.folder, self.manifest)
        # TVM reads this once, when its first parallel kernel runs; alone it takes half the cores.
        cores = len(os.sched_getaffinity(0))
        os.environ["TVM_NUM_THREADS"] = str(min(self.manifest["threads"], cores))
        os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", SPINS)
        import tvm
        from tvm import relax

        def load(path: Path) -> Any:
            library = tvm.runtime.load_module(str(path))
            return relax.VirtualMachine(library, tvm.cpu())["main"]

        return load, tvm.runtime.tensor, _in_huge_pages

    def prepare(self, inputs: list[Any]) -> Any:
        """A function without arguments that runs the network on `inputs`, for timing.

        The inputs have the rows of one of the batch sizes compiled.
        """
        inputs, rows = self._checked(inputs)
        _, main, parameters = next(v for v in self._variants if v[0] == rows)
        arguments = [self._tensor(value) for value in inputs] + parameters
        return lambda: main(*arguments)

    def run(self, inputs: list[Any]) -> Any:
        """The output, a numpy array, for numpy arrays of the manifest's shapes and types.

        Any number of rows runs: in the batch sizes compiled, the last padded with zeros.
        """
        import numpy as np

        inputs, rows = self._checked(inputs)
        if not self.manifest["any_rows"]:
            return _array(self.prepare(inputs)())
        sizes = sorted(batch for batch, _, _ in self._variants)
        outputs, done = [], 0
        while done < rows:
            size = next((size for size in sizes if size >= rows - done), sizes[-1])
            parts = [_padded(value[done : done + size], size) for value in inputs]
            outputs.append(_array(self.prepare(parts)())[: rows - done])
            done += size
        return np.concatenate(outputs) if len(outputs) > 1 else outputs[0]

    def check(self) -> tuple[float, float]:
        """Largest error on the sample input, and what is allowed; in units of the output."""
        names = [f"sample_input_{i}.npy" for i in range(len(self.manifest["inputs"]))]
        *inputs, expected = load_arrays([self.folder / n for n in (*names, "sample_output.npy")])
        return largest_error(self.run(inputs), expected), self.manifest["tolerance"]

    def _checked(self, inputs: list[Any]) -> tuple[list[Any], int]:
        """The inputs, contiguous, and how many rows they have."""
        import numpy as np

        wanted = [(tuple(i["shape"]), i["dtype"]) for i in self.manifest["inputs"]]
        given = [(tuple(value.shape), str(value.dtype)) for value in inputs]
        rows = self._variants[0][0]
        shape = given[0][0] if given else ()
        if self.manifest["any_rows"] and len(shape) == len(wanted[0][0]) and shape[0] > 0:
            rows = shape[0]
            wanted = [((rows, *other[1:]), dtype) for other, dtype in wanted]
        if wanted != given:
            raise BundleError(
                f"input {_described(given)}", _described(wanted), "convert or reshape it"
            )
        # `ascontiguousarray` would give a number without dimensions one.
        return [np.asarray(value, order="C") for value in inputs], rows


def largest_error(found: Any, expected: Any) -> float:
    """Over all elements; infinite for another shape, and for NaN.

    Equal infinities are equal. The difference is taken in float64: integers may have no sign.
    """
    import numpy as np

    if found.shape != expected.shape:
        return float("inf")
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.where(found == expected, 0.0, np.abs(found - expected))
    return float(np.max(np.where(np.isnan(off), np.inf, off), initial=0.0))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle; its signature is verified if a public key is configured.

    Raises:
        BundleError: There is none, it is of another format, or not signed by the key.
    """
    try:
        data = (folder / MANIFEST).read_bytes()
        check_signature(folder, data)
        manifest: dict[str, Any] = json.loads(data)
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
    needed = {"params.npz", "sample_output.npy"} | {v["library"] for v in manifest["variants"]}
    if manifest["target"]["kind"] == "cuda":
        needed |= {str(Path(v["library"]).with_suffix(KERNELS)) for v in manifest["variants"]}
    if not manifest["variants"] or not needed <= set(manifest["files"]):
        raise ValueError("files without a library, the parameters or the sample")
    for key in ("device", "code_features", "any_rows"):
        manifest[key]
    [(tuple(i["shape"]), i["dtype"]) for i in manifest["inputs"]]
    [(int(v["batch"]), list(v["parameters"])) for v in manifest["variants"]]
    int(manifest["threads"]), float(manifest["tolerance"])


def check_signature(folder: Path, manifest: bytes) -> None:
    """Raises BundleError unless no public key is configured or it signed these bytes."""
    path = os.environ.get(PUBLIC_KEY)
    if not path:
        return
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        key = load_pem_public_key(Path(path).read_bytes())
    except (ImportError, OSError, ValueError) as error:
        raise BundleError(
            f"{PUBLIC_KEY}={path}, which cannot be used ({error})",
            "an Ed25519 public key in PEM, and the package cryptography",
            f"correct it, or unset {PUBLIC_KEY} to load without checking signatures",
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise BundleError(f"{PUBLIC_KEY}={path}", "an Ed25519 public key", "make one with openssl")
    try:
        key.verify(base64.b64decode((folder / SIGNATURE).read_bytes(), validate=True), manifest)
    except FileNotFoundError:
        raise BundleError(
            f"bundle '{folder}', unsigned", f"a signature by the key of {path}", "have it signed"
        ) from None
    except (InvalidSignature, OSError, ValueError) as error:
        raise BundleError(
            f"bundle '{folder}' with another signature",
            f"one by the key of {path}",
            "do not use it: it was changed, or signed by someone else",
        ) from error


def check_files(folder: Path, manifest: dict[str, Any]) -> None:
    """Raises BundleError unless the folder holds the manifest's files, unchanged, and no others."""
    if added := sorted({path.name for path in folder.iterdir()} - set(manifest["files"]) - BESIDE):
        raise BundleError(
            f"bundle '{folder}' with {added[0]}, which was added",
            "the files that deploy wrote",
            "remove it",
        )
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
    """Raises BundleError unless this CPU has every instruction set the bundle was compiled for.

    The kernel's flags are what counts: a virtual machine may hide what the CPU's name promises.
    """
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    flags = {flag.replace("_", "") for flag in line[1].split()} if line else set()
    wanted = {name: re.sub(r"[.-]", "", name) for name in manifest["code_features"]}
    if missing := [name for name, flag in wanted.items() if CPU_FLAGS.get(flag, flag) not in flags]:
        raise BundleError(
            f"bundle '{folder}' for device {manifest['device']} on this CPU",
            f"a CPU with {', '.join(missing)}",
            "deploy the network to this device",
        )


def _in_huge_pages(arrays: dict[str, Any]) -> dict[str, Any]:
    """Arrays as TVM's tensors in huge pages where there are any: weights are read in each run."""
    import numpy as np
    import tvm

    # Each begins at a multiple of 64 bytes, which TVM's kernels may count on.
    sizes = [-(-array.nbytes // 64) * 64 for array in arrays.values()]
    memory = mmap.mmap(-1, max(sum(sizes), 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    tensors, start = {}, 0
    for (name, array), size in zip(arrays.items(), sizes, strict=True):
        place = np.frombuffer(memory, array.dtype, array.size, start).reshape(array.shape)
        place[...] = array
        tensors[name] = tvm.runtime.from_dlpack(place)  # shares the memory, and keeps it alive
        start += size
    return tensors


def _on_gpu(folder: Path, manifest: dict[str, Any]) -> tuple[Any, Any, Any]:
    """As `LoadedBundle._device`, on the first NVIDIA GPU.

    Raises:
        BundleError: There is none, or one too old for the kernels.
    """
    import tvm
    import tvm_ffi
    from tvm import relax

    device, arch = tvm.cuda(), manifest["target"]["arch"]
    found = f"sm_{device.compute_version.replace('.', '')}" if device.exist else None
    if found is None or int(found[3:]) < int(arch[3:]):
        raise BundleError(
            f"bundle '{folder}' for device {manifest['device']} on {found or 'no NVIDIA GPU'}",
            f"a GPU of {arch} or later, its driver, and CUDA's runtime library",
            "deploy the network to this device",
        )

    def load(path: Path) -> Any:
        kernels = path.with_suffix(KERNELS).read_bytes()
        # The library holds their source, which TVM asks this function to compile.
        tvm_ffi.register_global_func(
            "tvm_callback_cuda_compile", lambda source: kernels, override=True
        )
        main = relax.VirtualMachine(tvm.runtime.load_module(str(path)), device)["main"]

        def run(*arguments: Any) -> Any:
            output = main(*arguments)
            device.sync()  # a GPU goes on after the call
            return output

        return run

    return load, *on_device(device)


def on_device(device: Any) -> tuple[Any, Any]:
    """What brings an array, and named parameters, to a device that is not this CPU."""
    import tvm

    def tensor(value: Any) -> Any:
        return tvm.runtime.tensor(value, device)

    return tensor, lambda arrays: {name: tensor(value) for name, value in arrays.items()}


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


def _array(output: Any) -> Any:
    while not hasattr(output, "numpy"):
        output = output[0]
    return output.numpy()


def _padded(rows: Any, size: int) -> Any:
    import numpy as np

    missing = size - len(rows)
    return np.pad(rows, [(0, missing), *[(0, 0)] * (rows.ndim - 1)]) if missing else rows


def _described(values: list[Any]) -> str:
    return ", ".join(f"{dtype} {list(shape)}" for shape, dtype in values)


def main() -> int:
    """Runs or checks the bundle that this file lies in."""
    parser = argparse.ArgumentParser(description="Runs this bundle on .npy files, or checks it.")
    parser.add_argument("--input", type=Path, action="append", help="once for each input")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--check", action="store_true", help="run the sample and compare")
    given = parser.parse_args()
    if given.check == bool(given.input and given.output):
        parser.error("give --check alone, or --input and --output")
    try:
        folder = Path(__file__).resolve().parent
        return _check(folder) if given.check else _run(folder, given.input, given.output)
    except BundleError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _run(folder: Path, inputs: list[Path], output: Path) -> int:
    if output.is_dir() or not output.parent.is_dir():
        raise BundleError(f"--output '{output}'", "a file in a folder that exists", "correct it")
    result = LoadedBundle(folder).run(load_arrays(inputs))
    import numpy as np

    with output.open("wb") as file:
        np.save(file, result, allow_pickle=False)
    return 0


def _check(folder: Path) -> int:
    error, tolerance = LoadedBundle(folder).check()
    right = error <= tolerance
    says = "computes" if right else "does not compute"
    sys.stdout.write(
        f"bundle '{folder}' {says} what it should: largest error {error:.3g}, "
        f"{tolerance:.3g} allowed\n"
    )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
