"""Networks of float32 that a deployment quantises, and keeps in its journal."""

import bisect
import dataclasses
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hetfeat.deploy.accuracy import Accuracy, KeptAccuracy, as_accuracy, compare_networks
from hetfeat.deploy.calibration import CalibrationData, batches_of, split
from hetfeat.deploy.precision import INT8, QUANTISED, slug_in
from hetfeat.deploy.request import DeployRequest, Imported
from hetfeat.deploy.stages import Stopwatch
from hetfeat.errors import DataError, RequestError
from hetfeat.parsing import decode, printable
from hetfeat.workloads.example_inputs import exercised
from hetfeat.workloads.files import load_file
from hetfeat.workloads.float_layers import in_float, quantised_products
from hetfeat.workloads.library_errors import refusals
from hetfeat.workloads.onnx_files import OnnxModel
from hetfeat.workloads.outputs import with_outputs
from hetfeat.workloads.quantise import Sample, float_model, quantised_model, worst_layers

if TYPE_CHECKING:
    import onnx

    from hetfeat.workloads.network import Network

log = logging.getLogger(__name__)

_ACCURACY = "hetfeat.accuracy"
"""Key of the metadata in which a quantised network says how accurate it is."""


def import_in_precision(
    batch: int,
    network: "Network",
    calibration: CalibrationData | None = None,
    max_loss: float | None = None,
) -> Imported:
    """A network as it is, or quantised where there is calibration data, and imported.

    Raises:
        DataError: The calibration data is not what the network takes.
        RequestError: It cannot be quantised, or not be imported.
    """
    if calibration is None:
        return Imported.of(batch, network)
    watch = Stopwatch()
    with watch.stage("quantising"):
        made, accuracy = quantised_network(network, calibration, max_loss)
    imported = Imported.of(batch, made, accuracy)
    return dataclasses.replace(imported, seconds=watch.total_s)


def quantised_network(
    network: "Network", calibration: CalibrationData, max_loss: float | None = None
) -> "tuple[Network, Accuracy]":
    """A network of float32 in integers of 8 bits, and how far it is from what it was.

    Args:
        network: Network of float32.
        calibration: Inputs that ranges are taken from, and that it is compared on.
        max_loss: Most that may be lost: layers go back to float32 until it is not more. None, the
            default, for no bound.

    Raises:
        DataError: The calibration data is not what the network takes.
        RequestError: It cannot be quantised, or not without losing more.
    """
    calibrating, held_out = split(batches_of(calibration, network))
    log.info(
        "quantising '%s' with '%s': %d batches calibrate, %d are held out",
        network.name,
        calibration.name,
        len(calibrating),
        len(held_out),
    )
    prepared = float_model(network)
    model = quantised_model(network, prepared, calibrating)
    made, floats = _as_network(network, model), list[str]()
    accuracy = compare_networks(network, made, held_out, ())
    if max_loss is not None and accuracy.loss > max_loss:
        floats = layers_in_float(network, model, prepared, held_out, max_loss)
        model = in_float(model, prepared, floats)
        made = _as_network(network, model)
        accuracy = compare_networks(network, made, held_out, ())
    layers = tuple(worst_layers(prepared, model, held_out[:1]))
    accuracy = dataclasses.replace(accuracy, worst_layers=layers, in_float=tuple(floats))
    log.info("%s; furthest off: %s", accuracy.described(), accuracy.described_layers() or "nothing")
    entry = model.metadata_props.add()
    entry.key, entry.value = _ACCURACY, json.dumps(dataclasses.asdict(accuracy))
    return made, accuracy


def layers_in_float(
    network: "Network",
    model: "onnx.ModelProto",
    prepared: "onnx.ModelProto",
    held_out: Sequence[Sample],
    max_loss: float,
) -> list[str]:
    """The fewest layers, of those that quantising hurts most, without which it loses no more.

    What a layer hurts is what the signal-to-noise ratio gains where it alone is of float32.

    Args:
        network: Network of float32.
        model: The same quantised, as `quantised_model` gives it.
        prepared: Model of float32 that it was made of.
        held_out: Inputs that it is compared on; layers are put in order by the first batch.
        max_loss: Most that may be lost (`Accuracy.loss`).

    Raises:
        RequestError: It loses more however many there are.
    """

    def compared(floats: Sequence[str], samples: Sequence[Sample]) -> Accuracy:
        made = _as_network(network, in_float(model, prepared, floats))
        return compare_networks(network, made, samples, ())

    products = quantised_products(model)
    hurts = {name: compared([name], held_out[:1]).snr_db for name in products}
    worst = sorted(products, key=hurts.__getitem__, reverse=True)
    count = bisect.bisect_left(
        range(1, len(worst)), True, key=lambda n: compared(worst[:n], held_out).loss <= max_loss
    )
    floats = worst[: count + 1]
    if len(floats) == len(worst):
        raise RequestError(
            f"--max-loss {max_loss:g} of '{network.name}', with all {len(worst)} layers in float32",
            "a loss that some layers in int8 keep to",
            "say more, calibrate with inputs like those in use, or leave --precision out",
        )
    log.info("in float32, to lose at most %g: %s", max_loss, printable(", ".join(floats), 200))
    return floats


def _as_network(network: "Network", model: "onnx.ModelProto") -> "Network":
    return dataclasses.replace(
        network,
        name=slug_in(network.name, INT8),
        module=OnnxModel(model),
        onnx=model,
        kind="ONNX",
    )


def import_kept(journal: Path, request: DeployRequest) -> Imported:
    """The quantised network that a deployment has left in its journal.

    Args:
        journal: Journal of the deployment, which may have another owner.
        request: Request of the deployment, with the outputs that are wanted now.

    Raises:
        RequestError: There is none.
        DataError: It is none of a deployment.
    """
    file, batch = journal / QUANTISED, request.batches[0]
    with refusals(request.slug):
        network = exercised(load_file(file, request.slug, batch), request.seed)
    texts = {of.key: of.value for of in network.onnx.metadata_props}
    action = "deploy again with the same --out"
    if _ACCURACY not in texts:
        raise DataError(f"'{file}'", "a network that `hetfeat deploy` has quantised", action)
    kept = decode(texts[_ACCURACY], KeptAccuracy, what=f"the accuracy of '{file}'", action=action)
    accuracy = as_accuracy(kept.model_dump())
    if request.outputs:
        network = with_outputs(network, request.outputs)
    return Imported.of(batch, network, accuracy)
