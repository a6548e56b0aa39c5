"""Makes gpu/: a pack, what runs it where nothing is installed, and wheels, to carry to a GPU.

    python tools/gpu_packs.py DEVICE [--python 3.12] [--there numpy] [--toolkit]
        [options of `pack build`]

Of TVM's wheel the compiler is left out, which is most of it: what measures needs none. With
`--toolkit` it travels, too, for a machine that is to deploy: packed by xz, which takes ten minutes,
in folders gpu-more-1/ and so on, each as large as is carried at once.
"""

import argparse
import lzma
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import distribution, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GPU = ROOT / "gpu"
COMPILER = ("tvm/lib/libtvm_compiler.so", "tvm/3rdparty/")
"""What of TVM's wheel only compiles: the library, and other projects' headers."""
CUDA_RUNTIME = "nvidia-cuda-runtime==13.0.*"
"""What TVM's runtime for CUDA is linked to; the driver alone is taken for granted there."""
TOOLKIT = ("xgboost-cpu", "orjson")
"""What deploying needs beside what measuring does, and beside torch and what comes with it."""
CARRIED_BYTES = 64 * 2**20
"""Most that is carried: the tree with its packaged records, and gpu/."""


def main(arguments: list[str]) -> None:
    """Builds, packs up, and says how large it became."""
    parser = argparse.ArgumentParser(description="Makes gpu/, to carry to a GPU.")
    parser.add_argument("device", help="a device's name or a profile's file")
    parser.add_argument("--python", default="3.12", help="version of Python on the GPU's machine")
    parser.add_argument("--there", action="append", default=[], help="a package that is there")
    parser.add_argument("--toolkit", action="store_true", help="carry TVM's compiler, too")
    given, options = parser.parse_known_args(arguments)
    GPU.mkdir(exist_ok=True)
    pack = GPU / "pack.tar.xz"
    _hetfeat("pack", "build", "--device", given.device, "--out", pack, *options)
    shutil.rmtree(GPU / "alone", ignore_errors=True)
    _hetfeat("pack", "run", pack, "--standalone", GPU / "alone")
    pack.unlink()  # the folder has it
    needed = (GPU / "alone" / "requirements.txt").read_text().split()
    wheels = [wheel for wheel in needed if wheel.partition("==")[0] not in given.there]
    _fetch_wheels(GPU / "wheels", given.python, [*wheels, CUDA_RUNTIME])
    for wheel in (GPU / "wheels").glob("apache_tvm-*.whl"):
        leave_compiler_out(wheel)
    shutil.copyfile(ROOT / "tools" / "gpu_check.sh", GPU / "check.sh")
    most, folders = CARRIED_BYTES - _tree_bytes(), [GPU]
    for folder in ROOT.glob("gpu-more-*"):
        shutil.rmtree(folder)
    if given.toolkit:
        folders += split_compiler(_packed_compiler(), ROOT, most)
        toolkit = [f"{name}=={version(name)}" for name in TOOLKIT]
        _fetch_wheels(folders[-1] / "wheels", given.python, toolkit)
    for folder in folders:
        size = _bytes_of(folder)
        facts = f"{size / 2**20:.1f} MiB of {most / 2**20:.1f} beside the tree"
        sys.stderr.write(f"{folder.name}/ has {facts}\n")
        if size > most:
            sys.exit("too large to be carried: ask for fewer --programs")


def _hetfeat(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "mlproject", *map(str, words)], cwd=ROOT, check=True)


def _fetch_wheels(folder: Path, python: str, wheels: Sequence[str]) -> None:
    """Brings wheels into a folder, for another version of Python perhaps."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    command += ["--only-binary", ":all:", "--python-version", python, *wheels]
    subprocess.run(list(map(str, command)), check=True)


def leave_compiler_out(wheel: Path) -> None:
    """Writes TVM's wheel anew without the compiler, which its list of files names no more."""
    draft = wheel.with_suffix(".draft")
    with (
        zipfile.ZipFile(wheel) as whole,
        zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as small,
    ):
        for member in whole.infolist():
            if member.filename.startswith(COMPILER):
                continue
            data = whole.read(member)
            if member.filename.endswith(".dist-info/RECORD"):
                lines = data.decode().splitlines(keepends=True)
                data = "".join(line for line in lines if not line.startswith(COMPILER)).encode()
            small.writestr(member, data)
    draft.replace(wheel)


def _packed_compiler() -> Path:
    """TVM's compiler packed by xz, in this environment; packed once for each version of TVM."""
    whole = Path(str(distribution("apache-tvm").locate_file(COMPILER[0])))
    packed = whole.with_name(f"{whole.name}.{version('apache-tvm')}.xz")
    if not packed.is_file():
        filters = [
            {"id": lzma.FILTER_X86},
            {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME},
        ]
        draft = packed.with_suffix(".draft")
        with whole.open("rb") as source, lzma.open(draft, "wb", filters=filters) as out:
            shutil.copyfileobj(source, out, 2**24)
        draft.replace(packed)
    return packed


def split_compiler(packed: Path, root: Path, most: int) -> list[Path]:
    """Writes the packed compiler into folders of at most `most` bytes each; returns these."""
    data, folders = packed.read_bytes(), []
    for start in range(0, len(data), most):
        folders.append(root / f"gpu-more-{1 + len(folders)}")
        folders[-1].mkdir()
        (folders[-1] / "compiler.xz").write_bytes(data[start : start + most])
    return folders


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _tree_bytes() -> int:
    """Bytes of the files that git has, and of those that it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    named = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    paths = [ROOT / os.fsdecode(name) for name in named.split(b"\0") if name]
    return sum(path.stat().st_size for path in paths if path.is_file())


if __name__ == "__main__":
    main(sys.argv[1:])
