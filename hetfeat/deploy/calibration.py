"""Calibration data: inputs as users have them, from which ranges are taken when quantising."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetfeat.deploy.inputs import IMAGES, load_inputs
from hetfeat.deploy.runtime import BundleError
from hetfeat.errors import DataError, RequestError
from hetfeat.workloads.example_inputs import named_inputs
from hetfeat.workloads.networks import imported_function, is_function

if TYPE_CHECKING:
    from hetfeat.workloads.network import Network

Array = npt.NDArray[Any]

_FUNCTION = "the function taking nothing and returning an array, or a tuple of one for each input"
_ACTION = "correct --calibration"


@dataclass(frozen=True)
class CalibrationData:
    """Calibration data before it is known which network it is for.

    Attributes:
        name: Name for messages.
        digest: SHA-256 of it: of the file, of the images and their names, or of the arrays.
        arrays: Arrays of rows by name, or `arr_0` and so on by place; default none.
        images: Paths of images, one a row, default none.
    """

    name: str
    digest: str
    arrays: Mapping[str, Array] = field(default_factory=dict)
    images: tuple[Path, ...] = ()


def as_calibration(source: Any) -> CalibrationData:
    """Calibration data by its name, or of an array or tensor, or one for each input."""
    if isinstance(source, str | Path):
        return read_calibration(source)
    return of_arrays(source if isinstance(source, tuple | list) else (source,))


def read_calibration(source: str | Path) -> CalibrationData:
    """Calibration data of an `.npz` file, a folder of images, or a `module:function`.

    Raises:
        RequestError: There is none of that name.
        DataError: It is none of these.
    """
    name, path = str(source), Path(source)
    if path.is_dir():
        return _of_images(path)
    if path.suffix.lower() == ".npz":
        return _of_file(path)
    if not is_function(name):
        raise RequestError(
            f"calibration data '{name}'",
            "an .npz file, a folder of images, or module:function",
            _ACTION,
        )
    made = imported_function(name, _FUNCTION)()
    return of_arrays(made if isinstance(made, tuple | list) else (made,), name)


def of_arrays(values: Sequence[Any], name: str = "calibration data") -> CalibrationData:
    """Calibration data of arrays or tensors, one for each input of a network.

    Raises:
        RequestError: One is neither.
    """
    arrays = {f"arr_{place}": _array(value, name) for place, value in enumerate(values)}
    total = hashlib.sha256()
    for array in arrays.values():
        total.update(f"{array.dtype} {list(array.shape)}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return CalibrationData(name, total.hexdigest(), arrays)


def batches_of(calibration: CalibrationData, network: "Network") -> list[list[Array]]:
    """Inputs of a network's batch size, made of the rows that there are.

    Raises:
        DataError: They are not what the network takes, fewer than two, or tell no range.
    """
    inputs = list(named_inputs(network))
    if calibration.images:
        arrays = [_pixels(calibration, network)]
    else:
        chosen = _by_input(calibration, [name for name, _ in inputs])
        arrays = [
            _checked(calibration, name or f"input {place}", array, value)
            for place, (array, (name, value)) in enumerate(zip(chosen, inputs, strict=True))
        ]
    rows = {len(array) for array in arrays}
    if len(rows) > 1:
        raise _wrong(calibration, f"inputs of {sorted(rows)} rows", "the same number of each")
    sizes = [value.shape[0] if value.ndim else 1 for _, value in inputs]
    count = min(len(array) // size for array, size in zip(arrays, sizes, strict=True))
    if count < 2:  # one to calibrate, one held out
        raise _wrong(calibration, f"{rows.pop()} rows", f"{2 * max(sizes)} or more of each input")
    return [
        [
            array[at * size : (at + 1) * size] if value.ndim else array[at]
            for array, size, (_, value) in zip(arrays, sizes, inputs, strict=True)
        ]
        for at in range(count)
    ]


def split(
    batches: Sequence[list[Array]], every: int = 5
) -> tuple[list[list[Array]], list[list[Array]]]:
    """What calibrates, and what is held out to tell how accurate that came out.

    Args:
        batches: Two or more inputs of a network.
        every: Number of batches of which one is held out, 5 by default; of fewer it is the last.
    """
    held = set(range(every - 1, len(batches), every)) or {len(batches) - 1}
    parts = ([b for at, b in enumerate(batches) if (at in held) == out] for out in (False, True))
    calibrating, held_out = parts
    return calibrating, held_out


def _of_file(path: Path) -> CalibrationData:
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise RequestError(
            f"calibration data '{path}' ({error.strerror})", "a file that exists", _ACTION
        ) from error
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:  # zip, headers and numbers: whatever they raise
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"calibration data '{path}' ({first[:100]!a})",
            "an archive of arrays of numbers",
            "write it with numpy.savez",
        ) from error
    return CalibrationData(str(path), digest, arrays)


def _of_images(folder: Path) -> CalibrationData:
    images = tuple(sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGES))
    if not images:
        raise DataError(f"calibration data '{folder}'", "a folder of PNG or JPEG images", _ACTION)
    total = hashlib.sha256()
    for path in images:
        total.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return CalibrationData(str(folder), total.hexdigest(), images=images)


def _array(value: Any, name: str) -> Array:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray):
        raise RequestError(f"calibration data '{name}' of {type(value)}", _FUNCTION, _ACTION)
    return value


def _by_input(calibration: CalibrationData, names: Sequence[str]) -> list[Array]:
    """An array for each input, by its name or its place."""
    arrays = calibration.arrays
    if set(arrays) == set(names):
        return [arrays[name] for name in names]
    places = [f"arr_{place}" for place in range(len(names))]
    if set(arrays) == set(places):
        return [arrays[place] for place in places]
    if len(arrays) == len(names) == 1:
        return list(arrays.values())
    given = f"arrays {', '.join(sorted(arrays)) or 'none'}"
    raise _wrong(calibration, given, f"one for each input: {', '.join(map(str, names))}")


def _checked(calibration: CalibrationData, name: str, array: Array, like: Array) -> Array:
    """Rows of an input in its type.

    Raises:
        DataError: They are of another shape or type, not finite, or all one number.
    """
    shape = like.shape[1:] if like.ndim else ()
    if array.ndim != len(shape) + 1 or array.shape[1:] != shape:
        sizes = ", ".join(map(str, ("rows", *shape)))
        raise _wrong(calibration, f"{name} of shape {list(array.shape)}", f"[{sizes}]")
    if _kind(array.dtype) != _kind(like.dtype):
        raise _wrong(calibration, f"{name} of {array.dtype}", str(like.dtype))
    if array.size == 0:
        raise _wrong(calibration, f"{name} without rows", "rows of the network's inputs")
    with np.errstate(over="ignore"):
        array = array.astype(like.dtype)
    if like.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise _wrong(calibration, f"{name} with NaN or infinity", "finite numbers")
        if array.min() == array.max():
            number = f"{name} with no other number than {array.flat[0]}"
            raise _wrong(calibration, number, "numbers as the network meets them")
    return array


def _kind(dtype: np.dtype[Any]) -> str:
    return "i" if dtype.kind in "iu" else dtype.kind


def _pixels(calibration: CalibrationData, network: "Network") -> Array:
    """Images as rows of a network's only input."""
    shapes = [list(value.shape) for value in network.arrays()]
    like = network.arrays()[0]
    if len(shapes) > 1 or like.ndim != 4 or like.dtype.kind != "f":
        raise _wrong(
            calibration, f"images for inputs of {shapes}", "one of [rows, 3, height, width]"
        )
    described = {"shape": shapes[0], "dtype": str(like.dtype)}
    return np.concatenate([_image(path, described) for path in calibration.images])


def _image(path: Path, described: Mapping[str, Any]) -> Array:
    try:
        (pixels,) = load_inputs([path], [described])
    except BundleError as error:
        raise DataError(*error.parts[:2], _ACTION) from error
    return pixels


def _wrong(calibration: CalibrationData, given: str, expected: str) -> DataError:
    return DataError(f"calibration data '{calibration.name}' with {given}", expected, _ACTION)
