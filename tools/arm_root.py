"""A 64-bit Arm user space that runs here under emulation: `python tools/arm_root.py FOLDER`.

FOLDER/python is then the Arm's Python, with apache-tvm and what a server of the fleet needs. Needs
debootstrap, dpkg, qemu-user-static and no rights: packages are unpacked, and none is configured,
which would take chroot and binfmt_misc.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SUITE = "bookworm"
"""Its Python is 3.11."""
PACKAGES = "python3,libstdc++6"
PLATFORM = "manylinux_2_28_aarch64"
WHEELS = ("apache-tvm", "apache-tvm-ffi", "numpy", "psutil", "tornado")
CPUINFO = "Features\t: fp asimd\n"
"""What any 64-bit Arm has. QEMU before 8.2 would show this machine's own."""
PYTHON = """\
#!/bin/sh
root=$(cd "$(dirname "$0")" && pwd)/root
export PYTHONHOME="$root/usr" PYTHONPATH="$root/site${PYTHONPATH:+:$PYTHONPATH}"
# Threads that wait sleep: yielding 300,000 times, as they would, takes minutes on a busy machine.
export TVM_THREAD_POOL_SPIN_COUNT=0
exec qemu-aarch64-static -L "$root" "$root/usr/bin/python3.11" "$@"
"""


def make(folder: Path, project: Path) -> None:
    """Makes FOLDER/root and FOLDER/python, which is written last."""
    root = folder / "root"
    shutil.rmtree(folder, ignore_errors=True)
    root.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as packages:
        options = ["--download-only", "--variant=minbase", "--arch=arm64", f"--include={PACKAGES}"]
        _run("debootstrap", *options, SUITE, packages)
        for package in Path(packages).rglob("*.deb"):
            _run("dpkg", "-x", str(package), str(root))
    for_arm = ["--platform", PLATFORM, "--python-version", "3.11", "--only-binary=:all:"]
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--target", str(root / "site")]
    _run(sys.executable, "-m", "pip", "install", *for_arm, *quiet, *_pins(project))
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc" / "cpuinfo").write_text(CPUINFO)
    python = folder / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)


def _pins(project: Path) -> list[str]:
    pins = (project / "constraints.txt").read_text().splitlines()
    return [pin for pin in pins if pin.partition("==")[0] in WHEELS]


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise SystemExit(f"{command[0]} is missing; see docs/arm.md for the packages") from error


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(__file__).resolve().parent.parent)
