"""A bundle without the toolkit: in a fresh environment, and from C++."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from built import build, rewrite, run_py
from needs import cannot

from hetfeat.deploy import runtime

pytestmark = [pytest.mark.slow, pytest.mark.tvm]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("built") / "bundle", "nets:tiny")


def assert_is_the_sample_s(output: Path, bundle: Path) -> None:
    found, expected = (
        np.load(path, allow_pickle=False) for path in (output, bundle / "sample_output.npy")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_made_fails_in_ci_alone(monkeypatch, project):
    assert "\nexport CI=true\n" in (project / ".ci" / "run").read_text()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no pip"):
        cannot("no pip")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no pip"):
        cannot("no pip")


def test_a_fresh_environment_with_tvm_and_numpy_alone_runs_it(built, tmp_path, project):
    pins = (project / "constraints.txt").read_text().splitlines()
    wanted = [p for p in pins if p.split("==")[0] in ("apache-tvm", "apache-tvm-ffi", "numpy")]
    assert len(wanted) == 3
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    installed = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", *wanted], capture_output=True, text=True
    )
    if installed.returncode:
        cannot(f"pip cannot install {', '.join(wanted)}: {installed.stderr.strip()[-200:]}")
    output = tmp_path / "y.npy"
    line = ("--input", str(built / "sample_input_0.npy"), "--output", str(output))
    for arguments in (("--check",), line):
        done = run_py(built, *arguments, python=python)
        assert done.returncode == 0, done.stderr
    assert_is_the_sample_s(output, built)


@pytest.fixture(scope="module")
def run_bundle(tmp_path_factory, project) -> Path:
    """The C++ example, compiled."""
    compiler = shutil.which("g++")
    if compiler is None:
        cannot("no g++ to compile the example with")
    import tvm
    import tvm_ffi

    tvm_home, ffi_home = (Path(m.__file__).parent for m in (tvm, tvm_ffi))
    program = tmp_path_factory.mktemp("cpp") / "run_bundle"
    subprocess.run(
        [compiler, "-std=c++17", str(project / "examples" / "run_bundle.cc")]
        + [f"-I{ffi_home / 'include'}", "-Wl,--no-as-needed", "-ltvm_runtime", "-ltvm_ffi"]
        + [f"-L{home / 'lib'}" for home in (tvm_home, ffi_home)]
        + [f"-Wl,-rpath,{home / 'lib'}" for home in (tvm_home, ffi_home)]
        + ["-o", str(program)],
        check=True,
    )
    return program


class TestCppExample:
    def run(
        self, program: Path, bundle: Path, output: Path, *digest: str
    ) -> subprocess.CompletedProcess[str]:
        inputs = sorted(map(str, bundle.glob("sample_input_*.npy")))
        line = [str(program), str(bundle), *inputs, str(output), *digest]
        return subprocess.run(line, capture_output=True, text=True)

    def test_it_runs_a_bundle(self, run_bundle, built, tmp_path):
        done = self.run(run_bundle, built, tmp_path / "y.npy")
        assert done.returncode == 0, done.stderr
        assert_is_the_sample_s(tmp_path / "y.npy", built)

    def test_a_cpu_without_an_instruction_set_is_refused(self, run_bundle, built, tmp_path):
        """Before the library is opened, which is none here."""
        copied = Path(shutil.copytree(built, tmp_path / "copy"))
        features = json.loads((copied / "bundle.json").read_text())["code_features"]
        (copied / "lib_1.so").write_bytes(b"")
        rewrite(copied, code_features=[*features, "avx1024", "sve-9.9"])
        done = self.run(run_bundle, copied, tmp_path / "y.npy")
        assert (done.returncode, done.stdout) == (1, "")
        assert "that this one lacks: avx1024 sve-9.9;" in done.stderr
        assert not (tmp_path / "y.npy").exists()

    @pytest.mark.parametrize("name", ["lib_1.so", "params.npz"])
    def test_a_changed_byte_is_refused(self, run_bundle, built, tmp_path, name):
        copied = Path(shutil.copytree(built, tmp_path / "copy"))
        data = bytearray((copied / name).read_bytes())
        data[len(data) // 2] ^= 1
        (copied / name).write_bytes(data)
        self.refused(self.run(run_bundle, copied, tmp_path / "y.npy"), f"{name} has changed")
        assert not (tmp_path / "y.npy").exists()

    @pytest.mark.parametrize("name", ["lib_1.so", "params.npz", "bundle.json"])
    def test_a_link_in_the_place_of_a_file_is_refused(self, run_bundle, built, tmp_path, name):
        copied = Path(shutil.copytree(built, tmp_path / "copy"))
        (copied / name).unlink()
        (copied / name).symlink_to(built / name)
        self.refused(self.run(run_bundle, copied, tmp_path / "y.npy"), f"proper file {name}")

    def test_a_manifest_swapped_with_its_files_is_refused_by_its_digest(
        self, run_bundle, built, tmp_path
    ):
        copied = Path(shutil.copytree(built, tmp_path / "copy"))
        digest = hashlib.sha256((copied / "bundle.json").read_bytes()).hexdigest()
        assert self.run(run_bundle, copied, tmp_path / "y.npy", digest).returncode == 0
        rewrite(copied, device="another")
        assert self.run(run_bundle, copied, tmp_path / "y.npy").returncode == 0
        done = self.run(run_bundle, copied, tmp_path / "y.npy", digest)
        self.refused(done, "bundle.json has changed")

    @pytest.mark.parametrize("rest", [0, 1, 55, 56, 63])
    def test_its_digests_are_sha_256_of_any_length(self, run_bundle, built, tmp_path, rest):
        copied = Path(shutil.copytree(built, tmp_path / "copy"))
        text = (copied / "bundle.json").read_bytes()
        text += b" " * ((rest - len(text)) % 64)
        (copied / "bundle.json").write_bytes(text)
        digest = hashlib.sha256(text).hexdigest()
        assert self.run(run_bundle, copied, tmp_path / "y.npy", digest).returncode == 0

    def refused(self, done: subprocess.CompletedProcess[str], said: str) -> None:
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert said in done.stderr

    def test_several_inputs_and_outputs(self, run_bundle, tmp_path):
        bundle = build(tmp_path / "bundle", "nets:heads")
        done = self.run(run_bundle, bundle, tmp_path / "y")
        assert done.returncode == 0, done.stderr
        for name in ("output_0.npy", "output_1.npy"):
            found = np.load(tmp_path / "y" / name, allow_pickle=False)
            expected = np.load(bundle / f"sample_{name}", allow_pickle=False)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    def test_another_number_of_inputs_is_refused(self, run_bundle, built, tmp_path):
        line = [str(run_bundle), str(built), *[str(built / "sample_input_0.npy")] * 2]
        done = subprocess.run([*line, str(tmp_path / "y")], capture_output=True, text=True)
        self.refused(done, "2 inputs; expected 1;")

    def test_it_knows_the_flags_that_run_py_knows(self, project):
        source = (project / "examples" / "run_bundle.cc").read_text()
        assert dict(re.findall(r'\{"(\w+)", "(\w+)"\}', source)) == runtime.CPU_FLAGS
