"""Inputs of a bundle from files: arrays, or images as a server of the bundle takes them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from hetfeat.deploy.runtime import BundleError, load_arrays

Array = npt.NDArray[Any]

IMAGES = {".png", ".jpg", ".jpeg"}
"""Endings of names of images, in lower case."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet's colours, by which torchvision's classifiers normalise."""


def load_inputs(paths: Sequence[Path], described: Sequence[Mapping[str, Any]]) -> list[Array]:
    """Arrays of `.npy` files and images.

    Args:
        paths: Path of each input.
        described: Inputs as the bundle's manifest has them.

    Raises:
        BundleError: A file is missing, holds no plain array, or is an image for another input.
    """
    arrays = []
    for number, path in enumerate(paths):
        if path.suffix.lower() not in IMAGES:
            arrays += load_arrays([path])
            continue
        shape = described[number]["shape"] if number < len(described) else []
        if len(shape) != 4 or shape[1] != len(MEAN):
            raise BundleError(
                f"image '{path}' for an input of {shape}",
                f"one of [rows, {len(MEAN)}, height, width]",
                "write the input with numpy.save",
            )
        arrays.append(_pixels(path, shape[2], shape[3]).astype(described[number]["dtype"]))
    return arrays


def _pixels(path: Path, height: int, width: int) -> Array:
    """An image cut and scaled to a size, its colours normalised; the same as when it is served."""
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as image:
            fitted = ImageOps.fit(image.convert("RGB"), (width, height))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise BundleError(
            f"image '{path}' ({error})", "a PNG or JPEG", "correct --input"
        ) from error
    colours = (np.asarray(fitted, np.float32) / 255 - MEAN) / DEVIATION
    return colours.transpose(2, 0, 1)[None]
