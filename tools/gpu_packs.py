"""Makes gpu/: a pack, what runs it where nothing is installed, and wheels, to carry to a GPU.

    python tools/gpu_packs.py DEVICE.yaml [--python 3.12] [options of `hetfeat pack build`]

Of TVM's wheel the compiler is left out, which is nine tenths of it: what measures needs none.
"""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GPU = ROOT / "gpu"
COMPILER = "libtvm_compiler.so"
MOST_BYTES = 40 * 2**20
"""What is carried shares 64 MiB with the tree and its packaged records."""


def main(arguments: list[str]) -> None:
    """Builds, packs up, and says how large it became."""
    device, *options = arguments
    python = "3.12"
    if options[:1] == ["--python"]:
        python, options = options[1], options[2:]
    GPU.mkdir(exist_ok=True)
    pack = GPU / "pack.tar.xz"
    _hetfeat("pack", "build", "--device", device, "--out", pack, *options)
    shutil.rmtree(GPU / "alone", ignore_errors=True)
    _hetfeat("pack", "run", pack, "--standalone", GPU / "alone")
    pack.unlink()  # the folder has it
    _fetch_wheels(python)
    shutil.copyfile(ROOT / "tools" / "gpu_check.sh", GPU / "check.sh")
    size = sum(path.stat().st_size for path in GPU.rglob("*") if path.is_file())
    sys.stderr.write(f"gpu/ has {size / 2**20:.1f} MiB\n")
    if size > MOST_BYTES:
        sys.exit(f"over {MOST_BYTES / 2**20:.0f} MiB: ask for fewer programs")


def _hetfeat(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "mlproject", *map(str, words)], cwd=ROOT, check=True)


def _fetch_wheels(python: str) -> None:
    """Brings the wheels of the standalone folder here, for another version of Python perhaps."""
    wheels = GPU / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels]
    command += ["--only-binary", ":all:", "--python-version", python]
    command += ["-r", GPU / "alone" / "requirements.txt"]
    subprocess.run(list(map(str, command)), check=True)
    for wheel in wheels.glob("apache_tvm-*.whl"):
        without_compiler(wheel)


def without_compiler(wheel: Path) -> None:
    """Leaves the compiler out of TVM's wheel, and out of its list of files."""
    draft = wheel.with_suffix(".draft")
    with (
        zipfile.ZipFile(wheel) as whole,
        zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as small,
    ):
        for member in whole.infolist():
            if Path(member.filename).name == COMPILER:
                continue
            data = whole.read(member)
            if member.filename.endswith(".dist-info/RECORD"):
                kept = [line for line in data.splitlines(True) if COMPILER.encode() not in line]
                data = b"".join(kept)
            small.writestr(member, data)
    draft.replace(wheel)


if __name__ == "__main__":
    main(sys.argv[1:])
