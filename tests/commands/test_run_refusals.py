"""What `hetfeat run` refuses: spoilt bundles, wrong inputs, outputs that cannot be written."""

import json
import shutil
from pathlib import Path

import built
import numpy as np
import pytest
from door import hetfeat
from PIL import Image

import mlproject
from registry.cli import app

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return built.build(tmp_path_factory.mktemp("built") / "bundle", "nets:tiny")


@pytest.fixture
def copied(bundle, tmp_path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


@pytest.fixture
def sample(bundle) -> Path:
    return bundle / "sample_input_0.npy"


def edited(change):
    """Spoils the manifest and nothing else."""

    def spoil(bundle: Path) -> None:
        path = bundle / "bundle.json"
        manifest = json.loads(path.read_text())
        change(manifest)
        path.write_text(json.dumps(manifest))

    return spoil


def flipped(name: str):
    def spoil(bundle: Path) -> None:
        data = bytearray((bundle / name).read_bytes())
        data[len(data) // 2] ^= 1
        (bundle / name).write_bytes(data)

    return spoil


def linked(bundle: Path) -> None:
    (bundle / "lib_1.so").rename(bundle.parent / "elsewhere.so")
    (bundle / "lib_1.so").symlink_to(bundle.parent / "elsewhere.so")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (flipped("lib_1.so"), "lib_1.so has changed"),
        (flipped("params.npz"), "params.npz has changed"),
        (flipped("run.py"), "run.py has changed"),
        (lambda b: (b / "lib_1.so").unlink(), "without a proper file lib_1.so"),
        (lambda b: (b / "params.npz").unlink(), "without a proper file params.npz"),
        (linked, "without a proper file lib_1.so"),
        (lambda b: (b / "bundle.json").unlink(), "a folder with a bundle.json"),
        (lambda b: (b / "bundle.json").write_text("{"), "a folder with a bundle.json"),
        (lambda b: (b / "bundle.json").write_text("[]"), "a folder with a bundle.json"),
        (lambda b: shutil.rmtree(b), "a folder with a bundle.json"),
        (edited(lambda m: m.update(format=4)), "of format 4"),
        (edited(lambda m: m.pop("files")), "a bundle"),
        (edited(lambda m: m["files"].pop("lib_1.so")), "a bundle"),
        (edited(lambda m: m["files"].update({"../x": "0"})), "a bundle"),
        (edited(lambda m: m.pop("threads")), "a bundle"),
        (edited(lambda m: m.update(inputs=[{}])), "a bundle"),
        (edited(lambda m: m["code_features"].append("avx1024")), "a CPU with avx1024"),
    ],
)
def test_spoilt_bundles_are_refused_before_anything_is_loaded(copied, sample, capfd, spoil, said):
    spoil(copied)
    out = copied.parent / "y.npy"
    refused = hetfeat(capfd, "run", str(copied), "--input", str(sample), "--output", str(out))
    assert refused.code == 2
    assert (refused.value, refused.errors.count("\n")) == (None, 1)
    assert said in refused.errors
    assert not out.exists()


def npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, np.zeros((1, 3, 16, 16), np.float32))


def pickled(path: Path) -> None:
    """A .npy file of objects, whose contents only unpickling would read; it holds none."""
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"never")


def array(value):
    return lambda path: np.save(path, value, allow_pickle=False)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (array(np.zeros((1, 3, 16, 17), np.float32)), "float32 [1, 3, 16, 17]"),
        (array(np.zeros((3, 16, 16), np.float32)), "float32 [1, 3, 16, 16]"),
        (array(np.zeros((1, 3, 16, 16))), "float64 [1, 3, 16, 16]"),
        (pickled, "Object arrays cannot be loaded"),
        (npz, "an archive of arrays"),
        (lambda path: path.write_text("text"), "a .npy file of numbers"),
        (lambda path: path.write_bytes(b""), "a .npy file of numbers"),
        (lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'de"), "a .npy file"),
        (lambda path: path.mkdir(), "a .npy file of numbers"),
        (lambda path: None, "x.npy"),
    ],
)
def test_wrong_inputs_are_refused(bundle, tmp_path, capfd, make, said):
    make(tmp_path / "x.npy")
    line = ("--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npy"))
    refused = hetfeat(capfd, "run", str(bundle), *line)
    assert refused.code == 2
    assert (refused.value, refused.errors.count("\n")) == (None, 1)
    assert said in refused.errors
    assert not (tmp_path / "y.npy").exists()


@pytest.mark.parametrize("output", ["no/such/y.npy", "."])
def test_an_output_that_cannot_be_written_is_refused(bundle, sample, capfd, output):
    line = ("--input", str(sample), "--output", output)
    refused = hetfeat(capfd, "run", str(bundle), *line)
    assert refused.code == 2
    assert "--output" in refused.errors


def test_an_image_that_is_none_is_refused(bundle, tmp_path, capfd):
    (tmp_path / "x.png").write_text("text")
    refused = hetfeat(capfd, "run", str(bundle), "--input", str(tmp_path / "x.png"))
    assert refused.code == 2
    assert "a PNG or JPEG" in refused.errors and "pickle" not in refused.errors


def test_an_image_runs_and_its_time_is_told_from_that_of_loading(bundle, tmp_path, capfd):
    Image.new("RGB", (40, 20), (200, 30, 30)).save(tmp_path / "x.jpg")
    ran = hetfeat(capfd, "run", str(bundle), "--input", str(tmp_path / "x.jpg"), "--repeat", "3")
    assert (ran.code, ran.value["runs"], ran.value["output"]) == (0, 3, None)
    assert ran.value["loading_s"] > 0 < ran.value["run_ms"]
    assert ran.value["seconds"] > ran.value["loading_s"]
    assert len(ran.value["best"]) == 5
    assert app.run(mlproject.cli, ["run", str(bundle), "--input", str(tmp_path / "x.jpg")]) == 0
    assert "loaded in" in capfd.readouterr().out


def test_two_inputs_for_one_are_refused(bundle, sample, tmp_path, capfd):
    line = ("--input", str(sample), "--input", str(sample), "--output", str(tmp_path / "y.npy"))
    assert hetfeat(capfd, "run", str(bundle), *line).code == 2
