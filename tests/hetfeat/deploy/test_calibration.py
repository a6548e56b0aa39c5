"""Calibration data: where it comes from, and what is refused of it in one line."""

import numpy as np
import pytest
import torch
from PIL import Image

from hetfeat.deploy.calibration import (
    as_calibration,
    batches_of,
    of_arrays,
    read_calibration,
    split,
)
from hetfeat.deploy.precision import check_precision, slug_in
from hetfeat.errors import DataError, RequestError
from hetfeat.workloads.network import Network

ROWS = np.random.default_rng(0).normal(size=(6, 3, 4, 4)).astype(np.float32)


class Named(torch.nn.Module):
    def forward(self, pixels, mask):
        return pixels * mask


def network(batch=2):
    return Network("small", torch.nn.ReLU(), (torch.zeros(batch, 3, 4, 4),))


def saved(folder, **arrays):
    np.savez(folder / "data.npz", **arrays)
    return read_calibration(folder / "data.npz")


def test_rows_become_batches_and_what_is_left_over_goes(tmp_path):
    batches = batches_of(saved(tmp_path, any_name=ROWS[:5]), network())
    assert [[array.shape for array in batch] for batch in batches] == [[(2, 3, 4, 4)]] * 2
    np.testing.assert_array_equal(batches[1][0], ROWS[2:4])


def test_inputs_are_found_by_name_or_by_place(tmp_path):
    mask = np.ones((6, 1), np.float32)
    mask[0] = 0
    inputs = (torch.zeros(1, 2), torch.zeros(1, 1))
    named = Network("named", Named(), inputs)
    pixels = ROWS[:, 0, 0, :2]
    by_name = batches_of(saved(tmp_path, mask=mask, pixels=pixels), named)
    by_place = batches_of(of_arrays((pixels, torch.from_numpy(mask))), named)
    for one, other in zip(by_name, by_place, strict=True):
        for array, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(array, same)
    with pytest.raises(DataError, match="arrays left, right; expected one for each input: pixels"):
        batches_of(saved(tmp_path, left=pixels, right=mask), named)


def test_one_in_five_is_held_out_and_of_few_the_last():
    batches = [[np.asarray(at)] for at in range(11)]
    _, held = split(batches)
    assert [int(one[0]) for one in held] == [4, 9]
    calibrating, held = split(batches[:2])
    assert [int(one[0]) for one in calibrating + held] == [0, 1]


def test_a_folder_of_images_is_cut_to_the_input(tmp_path):
    for name, colour in (("b.png", (255, 0, 0)), ("a.jpg", (0, 0, 255)), ("c.png", (9, 9, 9))):
        Image.new("RGB", (8, 6), colour).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not one")
    calibration = read_calibration(tmp_path)
    batches = batches_of(calibration, network(batch=1))
    assert len(batches) == 3 and batches[0][0].shape == (1, 3, 4, 4)
    assert batches[0][0][0, 2].min() > 0 > batches[0][0][0, 0].max()  # a.jpg is blue
    (tmp_path / "a.jpg").rename(tmp_path / "d.jpg")
    assert read_calibration(tmp_path).digest != calibration.digest


def test_a_function_returns_arrays(tmp_path, monkeypatch):
    (tmp_path / "rows.py").write_text("import numpy\ndef made():\n    return numpy.eye(4)\n")
    monkeypatch.syspath_prepend(tmp_path)
    made = as_calibration("rows:made")
    assert made.digest == of_arrays([np.eye(4)]).digest
    with pytest.raises(RequestError, match="has no attribute 'other'"):
        read_calibration("rows:other")


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (ROWS[:, :, :3], r"of shape \[6, 3, 3, 4\]; expected \[rows, 3, 4, 4\]"),
        (ROWS[0], r"of shape \[3, 4, 4\]"),
        (ROWS[:0], "without rows"),
        (ROWS[:3], "3 rows; expected 4 or more"),
        (np.full_like(ROWS, 0.5), "no other number than 0.5"),
        (np.where(ROWS[1, 0, 0, 0] == ROWS, np.nan, ROWS), "with NaN or infinity"),
        (ROWS.astype(np.float64) * 1e39, "with NaN or infinity"),
        ((ROWS * 9).astype(np.uint8), "of uint8; expected float32"),
    ],
)
def test_what_tells_no_range_is_refused(tmp_path, array, said):
    with pytest.raises(DataError, match=said):
        batches_of(saved(tmp_path, x=array), network())


def test_files_that_are_none(tmp_path):
    with pytest.raises(RequestError, match="a file that exists"):
        read_calibration(tmp_path / "nothing.npz")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DataError, match="an archive of arrays of numbers"):
        read_calibration(tmp_path / "broken.npz")
    np.savez(tmp_path / "objects.npz", x=np.array([{}, {}], dtype=object))
    with pytest.raises(DataError, match="an archive of arrays of numbers"):
        read_calibration(tmp_path / "objects.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="a folder of PNG or JPEG images"):
        read_calibration(tmp_path / "empty")
    with pytest.raises(RequestError, match=r"an \.npz file, a folder of images"):
        read_calibration("calibration")


@pytest.mark.parametrize(
    ("precision", "calibration", "batches", "said"),
    [
        ("int8", None, 1, "int8 without --calibration"),
        ("float32", "data.npz", 1, "float32 with --calibration"),
        ("int4", None, 1, "float32, float16, bfloat16 or int8"),
        ("int8", "data.npz", 2, "with 2 batch sizes"),
    ],
)
def test_options_that_do_not_fit(precision, calibration, batches, said):
    with pytest.raises(RequestError, match=said):
        check_precision(precision, calibration, batches)


def test_int8_has_a_name_of_its_own():
    assert slug_in("resnet18", "float32") == "resnet18"
    assert slug_in("resnet18", "int8") == "resnet18_int8"
