"""What a bundle holds, and that nothing of it is opened before it is found right."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from built import rewrite, run_py
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hetfeat.deploy import runtime, signing
from hetfeat.deploy.bundle import Output, Sample, Variant, write_bundle
from hetfeat.deploy.runtime import BundleError, LoadedBundle, check_cpu
from hetfeat.deploy.verify import Reference, rows_are_independent
from hetfeat.errors import RequestError

pytestmark = pytest.mark.tvm

FILES = {"bundle.json", "bundle.json.sig", "run.py", "params.npz", "lib_1.so", "lib_2.so"} | {
    *("sample_input_0.npy", "sample_output.npy"),
}


def write_keys(folder: Path) -> SimpleNamespace:
    """A key pair in PEM."""
    key = Ed25519PrivateKey.generate()
    private, public = folder / "key.pem", folder / "public.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return SimpleNamespace(private=private, public=public)


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> SimpleNamespace:
    return write_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def twins(tmp_path_factory, child_environment, keys) -> list[Path]:
    """One network built twice, of traces drawn alike: two processes, folders, hash seeds."""
    folders = [tmp_path_factory.mktemp(name) / name for name in ("first", "the other")]
    environment = child_environment | {
        "SOURCE_DATE_EPOCH": "1700000000",
        signing.SIGNING_KEY: str(keys.private),
    }
    script = str(Path(__file__).parents[2] / "built.py")
    running = [
        subprocess.Popen(
            [sys.executable, script, str(out), "nets:tiny", "1,2"],
            env=environment | {"PYTHONHASHSEED": str(seed)},
        )
        for seed, out in enumerate(folders, 1)
    ]
    assert [process.wait() for process in running] == [0, 0]
    return folders


@pytest.fixture(scope="module")
def built(twins) -> Path:
    return twins[0]


@pytest.fixture
def copied(built, tmp_path) -> Path:
    """A copy of the bundle to spoil."""
    return Path(shutil.copytree(built, tmp_path / "copy"))


@pytest.fixture
def no_tvm(monkeypatch):
    """Importing TVM fails: what is refused now was refused before any library was opened."""
    monkeypatch.setitem(sys.modules, "tvm", None)


def test_the_same_input_gives_the_same_bytes(twins):
    digests = [
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        for folder in twins
    ]
    assert set(digests[0]) == FILES
    assert digests[0] == digests[1]
    manifest = json.loads((twins[0] / "bundle.json").read_text())
    assert manifest["created"] == "2023-11-14T22:13:20Z"
    schedules = [json.loads(task["trace"])[0] for task in manifest["tasks"]]
    assert len(schedules) >= 3 and all(schedules)


def test_parameters_of_batch_sizes_that_are_laid_out_alike_are_stored_once(tmp_path, device):
    executable = SimpleNamespace(export_library=lambda path, fcompile: Path(path).touch())
    alike, *others = (np.full((2, 2), value, np.float32) for value in range(3))
    variants = [Variant(n, executable, [alike, other]) for n, other in enumerate(others, 1)]
    sample = Sample([alike], [Output("y", alike, 0.0)])
    write_bundle(tmp_path / "bundle", variants, device, sample, {})
    manifest = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    first, second = (set(variant["parameters"]) for variant in manifest["variants"])
    with np.load(tmp_path / "bundle" / "params.npz", allow_pickle=False) as stored:
        assert set(stored.files) == first | second
    assert len(first & second) == 1


class TestCheck:
    def test_a_good_copy_proves_itself(self, copied):
        done = run_py(copied, "--check")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("\n") == 1
        assert "computes what it should" in done.stdout
        assert {path.name for path in copied.iterdir()} == FILES

    def test_another_output_is_exit_1(self, copied):
        output = np.load(copied / "sample_output.npy", allow_pickle=False)
        np.save(copied / "sample_output.npy", output + 1)
        rewrite(copied)
        done = run_py(copied, "--check")
        assert done.returncode == 1
        assert "does not compute" in done.stdout

    def test_a_changed_copy_is_exit_2(self, copied):
        (copied / "sample_output.npy").write_bytes(b"")
        done = run_py(copied, "--check")
        assert (done.returncode, done.stdout) == (2, "")
        assert "sample_output.npy has changed" in done.stderr
        assert "Traceback" not in done.stderr


class TestCpu:
    def test_one_without_an_instruction_set_is_refused(self, copied, no_tvm):
        rewrite(copied, code_features=["avx2", "avx1024"])
        with pytest.raises(BundleError, match="a CPU with avx1024; deploy"):
            LoadedBundle(copied)

    @pytest.mark.parametrize(
        ("cpuinfo", "wanted", "missing"),
        [
            ("flags\t\t: sse4_1 pni abm avx512_bf16", ["sse4.1", "sse3", "lzcnt"], ""),
            ("flags\t\t: sse4_1 avx512_bf16", ["avx512bf16", "sse4.2"], "sse4.2"),
            ("flags : avx2", ["avx512f", "avx2", "bmi"], "avx512f, bmi"),
            ("Features\t: fp asimd asimddp", ["neon", "dotprod"], ""),
            ("Features\t: fp asimd", ["neon", "sve"], "sve"),
            ("Features\t: sve svebitperm", ["sve-bitperm", "sve2-bitperm"], ""),
            ("", ["neon"], "neon"),
        ],
    )
    def test_flags_by_the_names_of_llvm_and_of_linux(self, monkeypatch, cpuinfo, wanted, missing):
        monkeypatch.setattr(Path, "read_text", lambda path: f"processor : 0\n{cpuinfo}\n\n")
        manifest = {"device": "there", "code_features": wanted}
        if not missing:
            return check_cpu(Path("b"), manifest)
        with pytest.raises(BundleError, match=f"a CPU with {missing};"):
            check_cpu(Path("b"), manifest)


def appended(name):
    def spoil(bundle: Path) -> None:
        with (bundle / name).open("ab") as file:
            file.write(b" ")

    return spoil


def signed_by_another(bundle: Path) -> None:
    data = (bundle / runtime.MANIFEST).read_bytes()
    signature = Ed25519PrivateKey.generate().sign(data)
    (bundle / runtime.SIGNATURE).write_bytes(base64.b64encode(signature))


def swapped(bundle: Path) -> None:
    """The signature of another manifest by the right key."""
    rewrite(bundle, network="another")


class TestSignature:
    @pytest.fixture
    def key_configured(self, monkeypatch, keys, no_tvm):
        monkeypatch.setenv(runtime.PUBLIC_KEY, str(keys.public))

    @pytest.mark.parametrize(
        ("spoil", "said"),
        [
            (appended("bundle.json"), "another signature"),
            (appended("lib_2.so"), "lib_2.so has changed"),
            (appended("run.py"), "run.py has changed"),
            (lambda b: (b / "params.npz").unlink(), "without a proper file params.npz"),
            (lambda b: (b / "more.so").touch(), "more.so, which was added"),
            (lambda b: (b / "__pycache__").mkdir(), "__pycache__, which was added"),
            (swapped, "another signature"),
            (signed_by_another, "another signature"),
            (lambda b: (b / runtime.SIGNATURE).unlink(), "unsigned"),
            (lambda b: (b / runtime.SIGNATURE).write_text("%"), "another signature"),
            (lambda b: (b / runtime.SIGNATURE).write_bytes(b""), "another signature"),
        ],
    )
    def test_what_was_not_signed_is_refused(self, copied, key_configured, spoil, said):
        spoil(copied)
        with pytest.raises(BundleError, match=said):
            LoadedBundle(copied)

    def test_what_was_signed_loads(self, built, keys, monkeypatch):
        monkeypatch.setenv(runtime.PUBLIC_KEY, str(keys.public))
        error, tolerance = LoadedBundle(built).check()
        assert error <= tolerance

    def test_without_a_public_key_nothing_but_tvm_and_numpy_is_needed(self, copied, monkeypatch):
        monkeypatch.delenv(runtime.PUBLIC_KEY, raising=False)
        monkeypatch.setitem(sys.modules, "cryptography", None)
        (copied / runtime.SIGNATURE).unlink()
        LoadedBundle(copied)

    @pytest.mark.parametrize("key", ["missing.pem", "private", "text"])
    def test_a_public_key_that_is_none_is_an_error(
        self, built, keys, monkeypatch, tmp_path, key, no_tvm
    ):
        (tmp_path / "text").write_text("no key")
        path = keys.private if key == "private" else tmp_path / key
        monkeypatch.setenv(runtime.PUBLIC_KEY, str(path))
        with pytest.raises(BundleError, match="Ed25519 public key"):
            LoadedBundle(built)

    def test_a_key_without_the_library_is_an_error(self, built, keys, monkeypatch, no_tvm):
        monkeypatch.setenv(runtime.PUBLIC_KEY, str(keys.public))
        monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
        with pytest.raises(BundleError, match="the package cryptography"):
            LoadedBundle(built)

    @pytest.mark.parametrize("key", ["missing.pem", "public"])
    def test_a_signing_key_that_is_none_is_an_error(self, keys, monkeypatch, key):
        path = keys.public if key == "public" else key
        monkeypatch.setenv(signing.SIGNING_KEY, str(path))
        with pytest.raises(RequestError, match="openssl genpkey"):
            signing.signing_key()

    def test_who_accepts_signed_bundles_only_must_sign(self, keys, monkeypatch):
        monkeypatch.setenv(runtime.PUBLIC_KEY, str(keys.public))
        with pytest.raises(RequestError, match=signing.SIGNING_KEY):
            signing.signing_key()


def test_what_is_verified_is_what_is_loaded(copied, monkeypatch):
    """Every file is written over, and its name given to another, once all were hashed."""
    device = LoadedBundle._device

    def swapped_first(self):
        for path in copied.iterdir():
            path.write_bytes(b"of somebody else")
            path.rename(copied.parent / path.name)
            path.write_bytes(b"of somebody else")
        return device(self)

    monkeypatch.setattr(LoadedBundle, "_device", swapped_first)
    error, tolerance = LoadedBundle(copied).check()
    assert error <= tolerance


def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(copied, no_tvm):
    (copied / "params.npz").unlink()
    os.mkfifo(copied / "params.npz")
    with pytest.raises(BundleError, match=r"without a proper file params\.npz"):
        LoadedBundle(copied)


def test_nothing_added_to_the_folder_is_imported(copied):
    (copied / "argparse.py").write_text("print('code of somebody else')")
    done = run_py(copied, "--check")
    assert (done.returncode, done.stdout) == (2, "")
    assert "argparse.py, which was added" in done.stderr


@pytest.fixture(scope="module")
def loaded(built) -> LoadedBundle:
    return LoadedBundle(built)


class TestRows:
    @pytest.mark.parametrize("rows", [1, 2, 3, 5])
    def test_any_number_runs(self, loaded, rows):
        """Compiled for 1 and 2: three rows are 2 and 1, five are 2, 2 and 1."""
        from hetfeat.workloads.networks import load_network

        values = torch.randn(rows, 3, 16, 16, generator=torch.Generator().manual_seed(rows))
        with torch.inference_mode():
            expected = load_network("nets:tiny").module(values).numpy()
        found = loaded.run([values.numpy()])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("sizes", [[4], [2, 4], [1, 8]])
    def test_the_last_rows_are_padded_to_the_nearest_size(self, sizes):
        ran = []

        def runs(inputs):
            ran.append(len(inputs[0]))
            return lambda: SimpleNamespace(numpy=lambda: inputs[0] * 2)

        loaded = object.__new__(LoadedBundle)
        loaded.manifest = {"any_rows": True, "inputs": [{"shape": [4, 3], "dtype": "int64"}]}
        loaded._variants = [(size, None, []) for size in sizes]
        loaded.prepare = runs
        values = np.arange(21).reshape(7, 3)
        np.testing.assert_array_equal(loaded.run([values]), values * 2)
        assert ran == {4: [4, 4], 2: [4, 4], 1: [8]}[sizes[0]]

    def test_none_at_all_are_refused(self, loaded):
        with pytest.raises(BundleError, match=r"float32 \[0, 3, 16, 16\]"):
            loaded.run([np.zeros((0, 3, 16, 16), np.float32)])

    @pytest.mark.parametrize(
        ("function", "batch", "independent"),
        [
            (lambda x: x * 2, 3, True),
            (lambda x: x - x.mean(0), 3, False),
            (lambda x: x.cumsum(0)[::-1], 3, False),
            (lambda x: x.cumsum(0), 3, False),
            (lambda x: x.sum(0), 3, False),
            (lambda x: x * 2, 2, False),
            (lambda x: x * 2, 1, False),
        ],
    )
    def test_rows_that_depend_on_each_other_are_found(self, function, batch, independent):
        inputs = [np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)]
        sample = Sample(inputs, [Output("y", function(inputs[0]), 1e-4)])
        loaded = SimpleNamespace(run=lambda inputs: function(inputs[0]))
        reference = Reference(SimpleNamespace(), (sample,), (), ())
        assert rows_are_independent(loaded, reference, batch) == independent


def test_an_output_that_is_a_folder_is_refused(built, tmp_path):
    done = run_py(built, "--input", str(built / "sample_input_0.npy"), "--output", str(tmp_path))
    assert (done.returncode, "a file in a folder that exists" in done.stderr) == (2, True)
