"""A bundle as MLflow serves it, from this very file and the bundle's own `run.py`.

With HETFEAT_PUBLIC_KEY set it is the installed hetfeat that loads and verifies the bundle.

Needs apache-tvm and numpy, and Pillow for images. Each row of an input is nested lists of numbers,
or a text: base64 of a `.npy` file, or of a PNG or JPEG where the input is an image
[3, height, width], which is then cropped, scaled and normalised as torchvision's classifiers want
it.
"""

import base64
import io
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel
from PIL import Image, ImageOps

Array = npt.NDArray[Any]

PUBLIC_KEY = "HETFEAT_PUBLIC_KEY"
NPY = b"\x93NUMPY"
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet's colours, by which torchvision's classifiers normalise."""


@dataclass(frozen=True)
class RequestBounds:
    """Bounds of what a request may hold.

    Attributes:
        rows: Most rows of an input, default 256.
        pixels: Most pixels of an image, default 1,048,576, or `times_the_input` times the network's
            where that is more.
        times_the_input: Factor of both bounds of an image, default 16. A JPEG may have so many
            times the other bound: it is scaled down while it is decoded.
        scans: Most scans of a progressive JPEG, each of which costs a pass over the image; default
            32.
    """

    rows: int = 256
    pixels: int = 1 << 20
    times_the_input: int = 16
    scans: int = 32


BOUNDS = RequestBounds()


class BundleFunction(PythonModel):
    """Runs a bundle for whoever asks, from one thread: TVM's threads belong to their caller.

    Args:
        bounds: Bounds of what a request may hold, default `BOUNDS`.
    """

    def __init__(self, bounds: RequestBounds = BOUNDS) -> None:
        self.bounds = bounds

    def load_context(self, context: Any) -> None:
        """Checks and loads the bundle."""
        folder = Path(context.artifacts["bundle"])
        self.load(folder, _runtime(folder))

    def load(self, folder: Path, runtime: Any) -> None:
        """Checks and loads a bundle by a loader."""
        self.thread = ThreadPoolExecutor(1)
        self.bundle = self.thread.submit(runtime.LoadedBundle, folder).result()

    # Unannotated: MLflow takes annotations of a model's inputs for its signature.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """The network's output, an array, for any number of rows of each input; several by name."""
        wanted = self.bundle.manifest["inputs"]
        values = [
            _rows(model_input[f"input_{i}"], **spec, bounds=self.bounds)
            for i, spec in enumerate(wanted)
        ]
        outputs = self.bundle.manifest.get("outputs", ())
        try:
            found = self.thread.submit(self.bundle.run, values).result()
        except Exception as error:
            if hasattr(error, "parts"):  # a BundleError: the request is to blame
                raise _refused(str(error)) from error
            raise
        if len(outputs) < 2:
            return found
        return {output["name"]: of for output, of in zip(outputs, found, strict=True)}


class TooLarge(MlflowException):
    """A request over a bound."""

    def get_http_status_code(self) -> int:
        """What MLflow answers with."""
        return 413


def _runtime(folder: Path) -> ModuleType:
    """The bundle's own loader; importing it would leave compiled code in the bundle.

    Where signatures are asked for, the installed one: a bundle cannot vouch for its own code.
    """
    if os.environ.get(PUBLIC_KEY):
        try:
            from hetfeat.deploy import runtime
        except ImportError:
            raise MlflowException(
                f"{PUBLIC_KEY} without hetfeat; expected the installed hetfeat, which verifies "
                f"signatures; install it and use `hetfeat serve`, or unset {PUBLIC_KEY}"
            ) from None
        return runtime
    module, path = ModuleType("bundle_runtime"), folder / "run.py"
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module


def _rows(given: Any, shape: list[int], dtype: str, bounds: RequestBounds = BOUNDS) -> Array:
    """An input of the network from what a request holds."""
    if np.ndim(given) and len(given) > bounds.rows:
        raise _too_large(f"{len(given)} rows; expected at most {bounds.rows}")
    try:
        texts = np.ravel(given)
        if len(texts) and all(isinstance(text, str) for text in texts):
            return np.stack([_decoded(text, shape[1:], dtype, bounds) for text in texts])
        return np.asarray(given).astype(dtype)
    except MlflowException:
        raise
    except Exception as error:  # of NumPy's and Pillow's parsers, which raise many kinds
        raise _refused(f"an input ({error}); expected {dtype} {[-1, *shape[1:]]}") from error


def _decoded(text: str, shape: list[int], dtype: str, bounds: RequestBounds) -> Array:
    """One row from base64."""
    data = base64.b64decode(text, validate=True)
    if data.startswith(NPY):
        return _of_npy(data).astype(dtype)
    if len(shape) != 3 or shape[0] != len(MEAN):
        raise ValueError("an image for a network that takes none")
    with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
        _bound(image, shape, data, bounds)
        fitted = ImageOps.fit(image.convert("RGB"), (shape[2], shape[1]))
    colours = (np.asarray(fitted, np.float32) / 255 - MEAN) / DEVIATION
    made: Array = colours.transpose(2, 0, 1).astype(dtype)
    return made


def _of_npy(data: bytes) -> Array:
    """The array of a `.npy` file, in these bytes: what a header claims allocates nothing."""
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) == (1, 0):
        shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, by_column, dtype = np.lib.format.read_array_header_2_0(file)
    flat: Array = np.frombuffer(data, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if by_column else "C")


def _bound(image: Any, shape: list[int], data: bytes, bounds: RequestBounds) -> None:
    """Refuses an image that takes too long to decode; asks for a large JPEG at a smaller scale."""
    most = max(bounds.pixels, bounds.times_the_input * shape[1] * shape[2])
    if data.count(b"\xff\xda") > bounds.scans:
        raise _too_large(f"a JPEG of over {bounds.scans} scans")
    is_large = most < image.width * image.height <= bounds.times_the_input * most
    if is_large and not image.info.get("progressive"):
        image.draft("RGB", (2 * shape[2], 2 * shape[1]))
    if image.width * image.height > most:
        raise _too_large(
            f"an image of {image.width} x {image.height}; expected at most {most} pixels"
        )


def _too_large(message: str) -> MlflowException:
    from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

    return TooLarge(message, INVALID_PARAMETER_VALUE)


def _refused(message: str) -> MlflowException:
    refused: MlflowException = MlflowException.invalid_parameter_value(message)
    return refused


set_model(BundleFunction())
