"""A bundle as MLflow serves it, from this very file and the bundle's own `run.py`.

Needs apache-tvm and numpy, and Pillow for images. Each row of an input is nested lists of numbers,
or a text: base64 of a `.npy` file, or of a PNG or JPEG where the input is an image
[3, height, width], which is then cropped, scaled and normalised as torchvision's classifiers want
it.
"""

import base64
import io
from concurrent.futures import ThreadPoolExecutor
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

MAX_PIXELS = 40_000_000
NPY = b"\x93NUMPY"
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's colours, by which torchvision's classifiers normalise."""


class BundleFunction(PythonModel):
    """Runs a bundle for whoever asks, from one thread: TVM's threads belong to their caller."""

    def load_context(self, context: Any) -> None:
        """Checks and loads the bundle."""
        folder = Path(context.artifacts["bundle"])
        self.thread = ThreadPoolExecutor(1)
        self.bundle = self.thread.submit(_runtime(folder).LoadedBundle, folder).result()

    # Unannotated: MLflow takes annotations of a model's inputs for its signature.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """The network's output, an array, for any number of rows of each input."""
        wanted = self.bundle.manifest["inputs"]
        values = [_rows(model_input[f"input_{i}"], **spec) for i, spec in enumerate(wanted)]
        try:
            return self.thread.submit(self.bundle.run, values).result()
        except Exception as error:
            if hasattr(error, "parts"):  # a BundleError: the request is to blame
                raise _refused(str(error)) from error
            raise


def _runtime(folder: Path) -> ModuleType:
    """The bundle's own loader; importing it would leave compiled code in the bundle."""
    module, path = ModuleType("bundle_runtime"), folder / "run.py"
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module


_MALFORMED = (
    *(ValueError, TypeError, OSError, MemoryError),
    *(SyntaxError, Image.DecompressionBombError),  # Pillow's, of a damaged and of a huge image
)


def _rows(given: Any, shape: list[int], dtype: str) -> Array:
    """An input of the network from what a request holds."""
    texts = np.ravel(given)
    try:
        if len(texts) and all(isinstance(text, str) for text in texts):
            return np.stack([_decoded(text, shape[1:], dtype) for text in texts])
        return np.asarray(given).astype(dtype)
    except _MALFORMED as error:
        raise _refused(f"an input ({error}); expected {dtype} {[-1, *shape[1:]]}") from error


def _decoded(text: str, shape: list[int], dtype: str) -> Array:
    """One row from base64."""
    data = base64.b64decode(text, validate=True)
    if data.startswith(NPY):
        stored: Array = np.load(io.BytesIO(data), allow_pickle=False)
        return stored.astype(dtype)
    if len(shape) != 3 or shape[0] != len(MEAN):
        raise ValueError("an image for a network that takes none")
    with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"an image of over {MAX_PIXELS} pixels")
        fitted = ImageOps.fit(image.convert("RGB"), (shape[2], shape[1]))
    colours = (np.asarray(fitted, np.float32) / 255 - MEAN) / DEVIATION
    made: Array = colours.transpose(2, 0, 1).astype(dtype)
    return made


def _refused(message: str) -> MlflowException:
    refused: MlflowException = MlflowException.invalid_parameter_value(message)
    return refused


set_model(BundleFunction())
