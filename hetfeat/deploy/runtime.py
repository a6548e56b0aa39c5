"""Loads and runs a bundle with apache-tvm and numpy alone.

A copy of this file lies in every bundle as `run.py`, so it imports nothing of the toolkit:

    python BUNDLE/run.py --input x.npy --output y.npy    # of several outputs y.npz, by name
    python BUNDLE/run.py --check
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the bundle's folder: nothing that was added to it is ever imported

import argparse
import base64
import contextlib
import hashlib
import io
import json
import math
import mmap
import os
import re
import stat
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

FORMAT_VERSION, SEVERAL_OUTPUTS = 2, 3
"""Format versions of a bundle of one output, and of one of several, which readers of the first
cannot run."""
MANIFEST = "bundle.json"
SIGNATURE = "bundle.json.sig"
BESIDE = {MANIFEST, SIGNATURE, "manifest.json"}
"""Files that the manifest does not list: it, its signature, and what the registry adds."""
PARAMETERS = "params.npz"
MAX_MANIFEST_BYTES = 64 << 20
SPINS = "10000"  # yields of an idle TVM thread before it sleeps; 300,000 delay a process's end
KERNELS = ".fatbin"  # of the file beside a library that holds its kernels for an NVIDIA GPU
PUBLIC_KEY = "HETFEAT_PUBLIC_KEY"
"""Variable with the path of a PEM file; while it is set, only bundles signed by its key load."""
CPU_FLAGS = {"sse3": "pni", "lzcnt": "abm", "bmi": "bmi1"}
CPU_FLAGS |= {"neon": "asimd", "dotprod": "asimddp", "fullfp16": "asimdhp"}
CPU_FLAGS |= {f"sve2{part}": f"sve{part}" for part in ("aes", "bitperm", "sha3", "sm4")}
"""LLVM's names of CPU features where Linux has others, dots, dashes and underscores aside."""
_TEXT = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,199}")
_DIGEST, _DTYPE = re.compile(r"[0-9a-f]{64}"), re.compile(r"[a-z]{1,16}[0-9]{0,3}")
_SHAPED = {"shape": [range(1 << 40)], "dtype": _DTYPE}
_OUTPUTS = [{**_SHAPED, "name": _TEXT, "tolerance": float}]
_SCHEMA = {
    "device": _TEXT,
    "target": {"kind": _TEXT},
    "threads": range(1, 1 << 16),
    "code_features": [_TEXT],
    "inputs": [_SHAPED],
    "variants": [{"batch": range(1, 1 << 31), "library": _NAME, "parameters": [_NAME]}],
    "any_rows": bool,
    "files": dict,
}
"""Keys and forms that `LoadedBundle` needs of a manifest; `_fits` says how it is read."""


class BundleError(Exception):
    """A bundle or an input is not what it should be; three parts make the message."""

    def __init__(self, given: str, expected: str, action: str) -> None:
        super().__init__(f"{given}; expected {expected}; {action}")
        self.parts = given, expected, action


class LoadedBundle:
    """A bundle in memory, ready to run.

    Args:
        folder: Folder of the bundle.

    Raises:
        BundleError: Not a bundle, a changed, missing or added file, a wrong signature, or one for
            another CPU. Every check comes before anything of the bundle is loaded.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with verified(folder) as (self.manifest, private):
            load, self._tensor, placed = self._device()
            parameters = _of_archive(folder, private / PARAMETERS, placed)
            self._variants = []
            for variant in self.manifest["variants"]:
                main = load(private / variant["library"])
                values = [parameters[name] for name in variant["parameters"]]
                self._variants.append((variant["batch"], main, values))
            names = [*sample_inputs(self.manifest), *sample_outputs(self.manifest)]
            self._sample = load_arrays([private / name for name in names])

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
        import tvm_ffi
        from tvm import relax

        def load(path: Path) -> Any:
            library = tvm_ffi.load_module(path)
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

        Of several outputs a tuple, in the manifest's order. Any number of rows runs: in the batch
        sizes compiled, the last padded with zeros.
        """
        import numpy as np

        inputs, rows = self._checked(inputs)
        if not self.manifest["any_rows"]:
            return _one_or_all(_arrays(self.prepare(inputs)()))
        sizes = sorted(batch for batch, _, _ in self._variants)
        ran, done = [], 0
        while done < rows:
            size = next((size for size in sizes if size >= rows - done), sizes[-1])
            parts = [_padded(value[done : done + size], size) for value in inputs]
            ran.append([value[: rows - done] for value in _arrays(self.prepare(parts)())])
            done += size
        joined = zip(*ran, strict=True) if len(ran) > 1 else ()
        return _one_or_all([np.concatenate(parts) for parts in joined] or ran[0])

    def run_by_name(self, inputs: list[Any]) -> dict[str, Any]:
        """As `run`: each output by its name in the manifest."""
        names = [output["name"] for output in outputs_of(self.manifest)]
        return dict(zip(names, as_tuple(self.run(inputs)), strict=True))

    def check(self) -> tuple[float, float]:
        """Largest error on the sample, and what is allowed, of the output that is furthest off."""
        count = len(self.manifest["inputs"])
        found, expected = as_tuple(self.run(self._sample[:count])), self._sample[count:]
        errors = [largest_error(*pair) for pair in zip(found, expected, strict=True)]
        allowed = [output["tolerance"] for output in outputs_of(self.manifest)]
        return worst(zip(errors, allowed, strict=True))

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


def worst(errors: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """The error, of pairs of one and what is allowed, that is the largest share of that."""
    return max(errors, key=lambda e: e[0] / e[1] if e[1] else e[0] and math.inf)


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    """What `LoadedBundle.run` returns, also where there is one output."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


def outputs_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """What a manifest says of each output; bundles made before tell one, without a name."""
    made_before = {"name": "output_0", "tolerance": manifest.get("tolerance")}
    found: list[dict[str, Any]] = manifest.get("outputs", [made_before])
    return found


def sample_inputs(manifest: dict[str, Any]) -> list[str]:
    """Names of the files with the inputs of the sample."""
    return [f"sample_input_{place}.npy" for place in range(len(manifest["inputs"]))]


def sample_outputs(manifest: dict[str, Any]) -> list[str]:
    """Names of the files with the outputs of the sample."""
    count = len(outputs_of(manifest))
    several = [f"sample_output_{place}.npy" for place in range(count)]
    return several if count > 1 else ["sample_output.npy"]


@contextlib.contextmanager
def verified(folder: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """The manifest of a bundle, and a folder of the bytes that its digests were found right of.

    Each file is opened once, by no link, and copied into the memory of this process while it is
    hashed: whoever changes the bundle from then on changes nothing of what is loaded.

    Raises:
        BundleError: As `read_manifest` and `check_files`.
    """
    with _opened(folder) as root, contextlib.ExitStack() as copies:
        manifest = _read_manifest(folder, root)
        private = Path(copies.enter_context(tempfile.TemporaryDirectory(prefix="bundle-")))
        _refuse_added(folder, root, manifest)
        for name, digest in manifest["files"].items():
            copy = copies.enter_context(os.fdopen(os.memfd_create(name), "wb"))
            _copy(folder, root, name, digest, copy)
            copy.flush()
            (private / name).symlink_to(f"/proc/{os.getpid()}/fd/{copy.fileno()}")
        yield manifest, private


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle; its signature is verified if a public key is configured.

    Raises:
        BundleError: There is none, it is of another format, or not signed by the key.
    """
    with _opened(folder) as root:
        return _read_manifest(folder, root)


def check_files(folder: Path, manifest: dict[str, Any]) -> None:
    """Raises BundleError unless the folder holds the manifest's files, unchanged, and no others."""
    with _opened(folder) as root:
        _refuse_added(folder, root, manifest)
        for name, digest in manifest["files"].items():
            _copy(folder, root, name, digest, None)


def _read_manifest(folder: Path, root: int) -> dict[str, Any]:
    try:
        data = _bytes_of(root, MANIFEST, MAX_MANIFEST_BYTES)
        check_signature(folder, root, data)
        manifest: dict[str, Any] = json.loads(data, parse_constant=_finite, parse_float=_finite)
        version = manifest["format"]
        if known := version in (FORMAT_VERSION, SEVERAL_OUTPUTS):
            _check_manifest(manifest)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _no_bundle(folder) from error
    if not known:
        raise BundleError(
            f"bundle '{folder}' of format {ascii(version)[:20]}",
            f"format {FORMAT_VERSION} or {SEVERAL_OUTPUTS}",
            "deploy it anew",
        )
    return manifest


def _check_manifest(manifest: dict[str, Any]) -> None:
    """Raises KeyError, TypeError or ValueError unless what `LoadedBundle` needs is there."""
    if not _fits(manifest, _SCHEMA):
        raise ValueError("a key that is missing, or no value of its kind")
    several = manifest["format"] == SEVERAL_OUTPUTS
    if not several and not _fits(manifest, {"tolerance": float}):
        raise ValueError("no tolerance")
    if several or "outputs" in manifest:
        names = {output["name"] for output in manifest["outputs"]}
        if not _fits(manifest["outputs"], _OUTPUTS) or len(names) != len(manifest["outputs"]):
            raise ValueError("outputs that are none, or of one name")
        if several != (len(names) > 1) or not names:
            raise ValueError("another format than that of as many outputs")
    files, inputs, variants = (manifest[key] for key in ("files", "inputs", "variants"))
    if not all(_fits(name, _NAME) and _fits(digest, _DIGEST) for name, digest in files.items()):
        raise ValueError("files that are no names and digests")
    needed = {PARAMETERS, *sample_inputs(manifest), *sample_outputs(manifest)}
    needed |= {v["library"] for v in variants}
    if manifest["target"]["kind"] == "cuda":
        needed |= {str(Path(v["library"]).with_suffix(KERNELS)) for v in variants}
        if not re.fullmatch(r"sm_[0-9]{2,3}[a-z]?", str(manifest["target"]["arch"])):
            raise ValueError("no architecture of a GPU")
    if not variants or not inputs or not needed <= set(files):
        raise ValueError("files without a library, the parameters or the sample")
    if manifest["any_rows"] and not all(i["shape"] for i in inputs):
        raise ValueError("rows of a number")


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of JSON is of a kind.

    Kinds: a pattern of a whole text; a range of integers; `float` for any number; a type;
    `[kind]` for a list; `{key: kind}` for an object that has at least these keys.
    """
    match kind:
        case re.Pattern():
            return isinstance(value, str) and kind.fullmatch(value) is not None
        case range():
            return type(value) is int and value in kind
        case list():
            return isinstance(value, list) and all(_fits(inner, kind[0]) for inner in value)
        case dict():
            return isinstance(value, dict) and all(
                key in value and _fits(value[key], inner) for key, inner in kind.items()
            )
    return type(value) is kind or (kind is float and type(value) is int and abs(value) < 1 << 63)


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"the number {text[:20]}")
    return value


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A descriptor of a bundle's folder, by which its files are opened: it stays that folder."""
    try:
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _no_bundle(folder) from error
    try:
        yield root
    finally:
        os.close(root)


def _file(root: int, name: str) -> BinaryIO:
    """A plain file of the folder, opened; OSError for a link, a pipe, a folder."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.fdopen(os.open(name, flags, dir_fd=root), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{name} is no plain file")
    return file


def _bytes_of(root: int, name: str, most: int) -> bytes:
    with _file(root, name) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{name} over {most} bytes")
    return data


def _refuse_added(folder: Path, root: int, manifest: dict[str, Any]) -> None:
    if added := sorted(set(os.listdir(root)) - set(manifest["files"]) - BESIDE):
        raise BundleError(
            f"bundle '{folder}' with {added[0]}, which was added",
            "the files that deploy wrote",
            "remove it",
        )


def _copy(folder: Path, root: int, name: str, digest: str, copy: BinaryIO | None) -> None:
    """Reads a file once: hashes it, and copies it if there is somewhere to."""
    found = hashlib.sha256()
    try:
        with _file(root, name) as file:
            while part := file.read(1 << 20):
                found.update(part)
                if copy is not None:
                    copy.write(part)
    except OSError as error:
        raise BundleError(
            f"bundle '{folder}' without a proper file {name}",
            "the files that deploy wrote",
            "copy it again",
        ) from error
    if found.hexdigest() != digest:
        raise BundleError(
            f"bundle '{folder}' whose file {name} has changed",
            f"SHA-256 {digest[:12]}...",
            "copy it again, or deploy anew",
        )


def _no_bundle(folder: Path) -> BundleError:
    return BundleError(
        f"'{folder}'", f"a bundle: a folder with a {MANIFEST}", "make one with hetfeat deploy"
    )


def check_signature(folder: Path, root: int, manifest: bytes) -> None:
    """Raises BundleError unless no public key is configured or it signed these bytes.

    Args:
        folder: Folder of the bundle, for the error.
        root: File descriptor of the folder.
        manifest: Bytes of the manifest that were read, once.
    """
    if (key := public_key()) is None:
        return
    from cryptography.exceptions import InvalidSignature

    path = os.environ[PUBLIC_KEY]
    try:
        signature = _bytes_of(root, SIGNATURE, 1000)
        key.verify(base64.b64decode(signature, validate=True), manifest)
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


def public_key() -> Any:
    """The configured Ed25519 key, or None.

    Raises:
        BundleError: It cannot be used.
    """
    path = os.environ.get(PUBLIC_KEY)
    if not path:
        return None
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: F401 -- all of it is there
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
    return key


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


def _of_archive(folder: Path, path: Path, placed: Any) -> dict[str, Any]:
    """The arrays of an `.npz` file, each read when it is placed."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as stored:
            return dict(placed(stored))
    except Exception as error:  # whatever NumPy and zipfile make of what is no archive
        raise BundleError(
            f"bundle '{folder}' whose {PARAMETERS} holds no arrays ({type(error).__name__})",
            "what deploy wrote",
            "deploy anew",
        ) from error


def _in_huge_pages(stored: Any) -> dict[str, Any]:
    """Arrays as TVM's tensors in huge pages where there are any: weights are read in each run.

    Args:
        stored: An open `.npz` file; one array at a time is read beside what is placed.
    """
    import numpy as np
    import tvm

    # Each begins at a multiple of 64 bytes, which TVM's kernels may count on.
    room = sum(-(-info.file_size // 64) * 64 for info in stored.zip.infolist())
    memory = mmap.mmap(-1, max(room, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    tensors, start = {}, 0
    for name, array in stored.items():
        place = np.frombuffer(memory, array.dtype, array.size, start).reshape(array.shape)
        place[...] = array
        tensors[name] = tvm.runtime.from_dlpack(place)  # shares the memory, and keeps it alive
        start += -(-array.nbytes // 64) * 64
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
        main = relax.VirtualMachine(tvm_ffi.load_module(path), device)["main"]

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
    arrays = []
    for path in paths:
        try:
            arrays.append(_of_npy(path.read_bytes()))
        except Exception as error:  # a header is Python's syntax, of which much can go wrong
            raise BundleError(
                f"input '{path}' ({type(error).__name__}: {str(error)[:100]!a})",
                "a .npy file of numbers",
                "write it with numpy.save",
            ) from error
    return arrays


def _of_npy(data: bytes) -> Any:
    """The array of a `.npy` file, in these bytes: what a header claims allocates nothing."""
    import numpy as np

    if data.startswith(b"PK"):
        raise ValueError("an archive of arrays")
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) == (1, 0):
        shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, by_column, dtype = np.lib.format.read_array_header_2_0(file)
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError("Object arrays cannot be loaded, nor negative shapes")
    flat = np.frombuffer(data, dtype, math.prod(shape), file.tell())
    if file.tell() + flat.nbytes != len(data):
        raise ValueError("more bytes than its header says")
    return flat.reshape(shape, order="F" if by_column else "C")


def _arrays(output: Any) -> list[Any]:
    """The arrays of what compiled code returns: a tensor, or several in a container of TVM's."""
    if hasattr(output, "numpy"):
        return [output.numpy()]
    return [array for part in output for array in _arrays(part)]


def _one_or_all(outputs: list[Any]) -> Any:
    return tuple(outputs) if len(outputs) > 1 else outputs[0]


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
    parser.add_argument("--output", type=Path, help=".npy, or .npz, which takes several outputs")
    parser.add_argument("--check", action="store_true", help="run the sample and compare")
    given = parser.parse_args()
    if given.check == bool(given.input and given.output):
        parser.error("give --check alone, or --input and --output")
    try:
        folder = Path(__file__).resolve().parent
        if given.check:
            return _check(folder)
        run_files(folder, given.input, given.output)
        return 0
    except BundleError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def run_files(folder: Path, inputs: list[Path], output: Path) -> dict[str, Any]:
    """Runs a bundle on `.npy` files; returns the outputs by name, and writes them.

    One output becomes a `.npy` file. A path that ends in `.npz` takes any number, by name.

    Raises:
        BundleError: The bundle, an input or the path is not what it should be.
    """
    loaded = load_for(folder, output)
    outputs = loaded.run_by_name(load_arrays(inputs))
    write_outputs(outputs, output)
    return outputs


def load_for(folder: Path, output: Path) -> LoadedBundle:
    """The bundle, once its outputs are known to have a place.

    Raises:
        BundleError: The bundle or the path is not what it should be.
    """
    if output.is_dir() or not output.parent.is_dir():
        raise BundleError(f"--output '{output}'", "a file in a folder that exists", "correct it")
    loaded = LoadedBundle(folder)
    count = len(outputs_of(loaded.manifest))
    if count > 1 and output.suffix != ".npz":
        raise BundleError(
            f"--output '{output}' for {count} outputs", "a name that ends in .npz", "correct it"
        )
    return loaded


def write_outputs(outputs: dict[str, Any], output: Path) -> None:
    """Writes one output to a `.npy` file, or any number, by name, to a `.npz` one."""
    import numpy as np

    if output.suffix != ".npz":
        (value,) = outputs.values()
        with output.open("wb") as file:
            np.save(file, value, allow_pickle=False)
        return
    with zipfile.ZipFile(output, "w") as archive:  # numpy.savez takes no output called "file"
        for name, value in outputs.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, value, allow_pickle=False)


def _check(folder: Path) -> int:
    error, tolerance = LoadedBundle(folder).check()
    right = error <= tolerance
    says = "computes" if right else "does not compute"
    allowed = f"{tolerance:.3g} allowed" if tolerance else "right to the bit or wrong"
    sys.stdout.write(
        f"bundle '{folder}' {says} what it should: largest error {error:.3g}, {allowed}\n"
    )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
