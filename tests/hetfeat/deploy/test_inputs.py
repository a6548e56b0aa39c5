"""Inputs of a bundle from files."""

import base64

import numpy as np
import pytest
from PIL import Image

from hetfeat.deploy.inputs import load_inputs
from hetfeat.deploy.runtime import BundleError
from registry.cli.run import _best_classes

IMAGE = [{"shape": [1, 3, 16, 24], "dtype": "float32"}]


@pytest.mark.parametrize("name", ["x.png", "x.JPG", "x.jpeg"])
def test_an_image_is_taken_as_it_is_when_served(tmp_path, name):
    from registry.tracking.pyfunc_bundle import BOUNDS, _decoded

    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (50, 40, 3), np.uint8)
    Image.fromarray(colours).save(tmp_path / name, "PNG" if name == "x.png" else "JPEG")
    (made,) = load_inputs([tmp_path / name], IMAGE)
    text = base64.b64encode((tmp_path / name).read_bytes()).decode()
    np.testing.assert_array_equal(made[0], _decoded(text, [3, 16, 24], "float32", BOUNDS))


def test_arrays_stay_as_they_are(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6).reshape(2, 3), allow_pickle=False)
    (made,) = load_inputs([tmp_path / "x.npy"], [{"shape": [1, 3], "dtype": "int64"}])
    np.testing.assert_array_equal(made, np.arange(6).reshape(2, 3))


@pytest.mark.parametrize(
    ("shape", "said"), [([1, 3, 16, 16], "expected a PNG or JPEG"), ([1, 8], "an input of")]
)
def test_what_is_no_image_for_the_input_is_refused(tmp_path, shape, said):
    (tmp_path / "x.png").write_bytes(b"text")
    with pytest.raises(BundleError, match=said):
        load_inputs([tmp_path / "x.png"], [{"shape": shape, "dtype": "float32"}])


def test_the_five_best_of_many_classes():
    scores = np.array([[0, 9, 1, 8, 2, 7, 3, 6, 4, 5]], np.float32)
    assert [row["class"] for row in _best_classes({"output": scores})] == [1, 3, 5, 7, 9]
    assert not list(_best_classes({"output": scores[:, :9]}))
    assert not list(_best_classes({"output": scores, "other": scores}))
