"""Networks by name: torchvision's, timm's, a BERT, a file, or `module:function` of the user's own.

Torch is imported when a network is loaded, never before.
"""

import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hetfeat.errors import RequestError, not_one_of
from hetfeat.workloads.example_inputs import exercised
from hetfeat.workloads.files import digest, load_file
from hetfeat.workloads.integer_rules import QUANTISED
from hetfeat.workloads.library_errors import refusals
from hetfeat.workloads.network import DIGEST_DIGITS, Network
from hetfeat.workloads.outputs import with_outputs
from hetfeat.workloads.quantised_onnx import stored_types
from hetfeat.workloads.quantised_torch import is_quantised_program

if TYPE_CHECKING:
    import torch

FILES = (".onnx", ".pt2", ".tflite")
"""Endings of names of network files."""
TIMM = "timm/"
"""Text before the names of timm's networks here: some are torchvision's, too."""

OTHER_TYPES = {"float16", "bfloat16", "int8", "uint8"}
"""Types of the tensors of networks that are of half precision, or quantised."""

_FUNCTION = "the function taking the batch size and returning (torch.nn.Module, (tensor, ...))"

INPUT_SIDES = {"inception_v3": 299}
"""Image side in pixels where it is not 224, by network."""


def load_network(name: str, batch: int = 1, seed: int = 0, outputs: Sequence[str] = ()) -> Network:
    """A network by name, with example inputs.

    torchvision's and timm's networks get seeded random weights: latency does not depend on the
    weights, and nothing is fetched. For trained weights pass `module:function`, whose function
    takes the batch size and returns a module and a tuple of example inputs.

    Args:
        name: Name of the network.
        batch: Batch size in rows, default 1.
        seed: Seed of weights and inputs, default 0.
        outputs: Names of its outputs, as `Network.output_names` has them; none, the default, for
            all.

    Raises:
        RequestError: No such network or output, one that is not of float32, or the function does
            not return what it should.
    """
    if batch < 1:
        raise RequestError(f"batch {batch}", "a batch of at least 1", "pass --batch 1 or more")
    with refusals(name):
        network = _loaded(name, batch, seed)
        if not outputs:
            return network
        return with_outputs(network, outputs)


def _loaded(name: str, batch: int, seed: int) -> Network:
    if is_file_name(name):
        network = of_float32(load_file(Path(name), network_slug(name), batch, seed))
        return network if network.kind == "torch" else exercised(network, seed)
    import torch

    torch.manual_seed(seed)
    if is_function(name):
        return of_float32(_from_function(name, batch))
    if name.startswith("bert_"):
        return _bert(name, batch)
    if name.startswith(TIMM):
        return _timm(name, batch)
    check_classifier(name)
    models = _torchvision().models
    options = {"init_weights": True} if name in ("inception_v3", "googlenet") else {}
    module = _drawn(models.get_model(name, weights=None, **options).eval())
    side = INPUT_SIDES.get(name, 224)
    return Network(name, module, (torch.randn(batch, 3, side, side),))


def check_classifier(name: str) -> None:
    """Refuses a name that would be a classifier of torchvision's, and is none.

    Raises:
        RequestError: It is none, with the nearest ones.
    """
    if is_file_name(name) or is_function(name) or name.startswith(("bert_", TIMM)):
        return
    models = _torchvision().models
    classifiers = models.list_models(module=models)
    if name not in classifiers:
        near = difflib.get_close_matches(name, classifiers, n=3)
        raise RequestError(
            f"network '{name}'",
            f"a torchvision classifier{' such as ' + ', '.join(near) if near else ''}, "
            "a BERT such as bert_base, timm/NAME, a FILE of .onnx, .pt2 or .tflite, or "
            "module:function",
            "correct --network",
        )


def split_batch(name: str) -> tuple[str, int]:
    """`resnet18@4` as network and batch size; without `@` the batch is 1.

    Raises:
        RequestError: What follows the `@` is not a positive number.
    """
    network, at, batch = ("", "", "") if is_file_name(name) else name.rpartition("@")
    if not at:
        return name, 1
    if not (batch.isdecimal() and int(batch) > 0):
        raise RequestError(f"network '{name}'", "NETWORK@BATCH, such as resnet18@4", "correct it")
    return network, int(batch)


def network_slug(name: str) -> str:
    """A network's name as it enters names of bundles and records.

    That of a file ends in digits of its digest: two files of one name are two networks. That of
    a `module:function` is its name alone; `exported.function_digest` says what is behind it.

    Raises:
        RequestError: There is no such file.
    """
    if not is_file_name(name):
        return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    path = Path(name)
    return f"{network_slug(path.stem) or 'network'}_{digest(path)[:DIGEST_DIGITS]}"


def is_file_name(name: str) -> bool:
    """Whether a name is that of a network's file."""
    return name.lower().endswith(FILES)


def is_function(name: str) -> bool:
    """Whether a name is `module:function`."""
    return ":" in name and not is_file_name(name)


def is_plain_name(name: str) -> bool:
    """Whether a name stands for code of ours or torchvision's, not for a file or function."""
    return not is_file_name(name) and not is_function(name)


def of_float32(network: Network) -> Network:
    """The network.

    Raises:
        RequestError: It is of half precision, or quantised in a way that is not built yet.
    """
    dtypes = _types_of(network.inputs) - {"uint8"}  # an image may be
    if network.onnx is not None:
        dtypes |= stored_types(network.onnx)
    elif network.kind == "torch":
        dtypes |= _types_of([*network.module.parameters(), *network.module.buffers()])
        if is_quantised_program(network.module):
            dtypes -= set(QUANTISED)
    elif network.kind == "TFLite":
        dtypes -= set(QUANTISED)  # other types were refused where the file was read
    if refused := sorted(dtypes & OTHER_TYPES):
        raise RequestError(
            f"network '{network.name}' of {', '.join(refused)}",
            "float32, or an ONNX file or a program of torch that quantises and dequantises 8 bits: "
            "nothing else is built yet",
            "export it in float32, or quantise it so",
        )
    return network


def _types_of(values: Sequence[Any]) -> set[str]:
    """The types of tensors of torch or arrays, by numpy's names."""
    return {str(value.dtype).removeprefix("torch.") for value in values}


def _bert(name: str, batch: int) -> Network:
    from hetfeat.workloads.transformers import BERTS, bert

    if name not in BERTS:
        raise not_one_of("network", name, BERTS, "correct --network")
    module, inputs = bert(name, batch)
    return Network(name, module.eval(), inputs)


def _timm(name: str, batch: int) -> Network:
    _torchvision()  # timm imports it
    try:
        timm = importlib.import_module("timm")
    except ImportError as error:
        raise RequestError(
            f"network '{name}' without the package timm",
            "timm installed",
            "pip install 'hetfeat[timm]'",
        ) from error
    import torch

    timm_name = name.removeprefix(TIMM)
    if not timm.is_model(timm_name):
        near = difflib.get_close_matches(timm_name, timm.list_models(), n=3)
        raise RequestError(
            f"network '{name}'",
            f"a name of timm's{' such as ' + ', '.join(near) if near else ''}",
            "correct --network",
        )
    module = timm.create_model(timm_name, pretrained=False).eval()
    shape = module.pretrained_cfg["input_size"]
    return Network(network_slug(name), _drawn(module), (torch.randn(batch, *shape),))


def _drawn(module: "torch.nn.Module", std: float = 0.02) -> "torch.nn.Module":
    """Draws the weights that begin as one value each: behind a head of zeros all is right.

    Their standard deviation is that of torchvision's and timm's transformers.
    """
    import torch

    with torch.no_grad():
        for weight in module.parameters():
            if weight.ndim > 1 and weight.min() == weight.max():
                weight.normal_(std=std)
    return module


def _from_function(name: str, batch: int) -> Network:
    return made_by(imported_function(name, _FUNCTION), name, batch)


def imported_function(name: str, what: str) -> Callable[..., Any]:
    """The function of a `module:function`; the module may lie in the working folder.

    Args:
        name: Name of the function.
        what: Words for what it takes and returns, for the error.

    Raises:
        RequestError: There is no such function.
    """
    expected = f"module:function, {what}"
    module_name, _, function_name = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError, TypeError, SyntaxError) as error:
        raise RequestError(f"'{name}' ({error})", expected, "correct the name") from error
    if not inspect.isfunction(function):
        raise RequestError(f"'{name}', not a function", expected, "correct the name")
    return function


def made_by(function: Callable[..., Any], name: str, batch: int) -> Network:
    """The network that a function of the batch size returns.

    Raises:
        RequestError: It returns something else.
    """
    import torch

    made = function(batch)
    match made:
        case (torch.nn.Module() as module, tuple() as inputs) if inputs and all(
            isinstance(value, torch.Tensor) for value in inputs
        ):
            return Network(network_slug(name), module.eval(), inputs)
    raise RequestError(f"network '{name}' returning {type(made)}", _FUNCTION, "change the function")


def _torchvision() -> ModuleType:
    """torchvision, also where its compiled operators do not load.

    torchvision's wheels are built for a CUDA torch. Beside a CPU build its own library stays
    out, and the import fails on two detection operators that no classifier needs: declaring
    them is enough.
    """
    import torch

    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        for name in [n for n in sys.modules if n.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float threshold) -> Tensor")
        _kept_alive.append(library)
        return importlib.import_module("torchvision")


_kept_alive: list[object] = []
