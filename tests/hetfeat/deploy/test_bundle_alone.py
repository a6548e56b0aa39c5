"""A bundle without the toolkit: in a fresh environment, and from C++."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
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
    pins = tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"]
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
    def run(self, program: Path, bundle: Path, output: Path) -> subprocess.CompletedProcess[str]:
        line = [str(program), str(bundle), str(bundle / "sample_input_0.npy"), str(output)]
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

    def test_it_knows_the_flags_that_run_py_knows(self, project):
        source = (project / "examples" / "run_bundle.cc").read_text()
        assert dict(re.findall(r'\{"(\w+)", "(\w+)"\}', source)) == runtime.CPU_FLAGS
