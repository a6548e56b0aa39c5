"""Networks of float32 that a deployment quantises, and keeps in its journal."""

import dataclasses
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from hetfeat.deploy.accuracy import Accuracy, KeptAccuracy, as_accuracy, compare_networks
from hetfeat.deploy.calibration import CalibrationData, batches_of, split
from hetfeat.deploy.precision import INT8, QUANTISED, slug_in
from hetfeat.deploy.request import DeployRequest, Imported
from hetfeat.deploy.stages import Stopwatch
from hetfeat.errors import DataError
from hetfeat.parsing import decode
from hetfeat.workloads.example_inputs import exercised
from hetfeat.workloads.files import load_file
from hetfeat.workloads.library_errors import refusals
from hetfeat.workloads.onnx_files import OnnxModel
from hetfeat.workloads.outputs import with_outputs
from hetfeat.workloads.quantise import float_model, quantised_model, worst_layers

if TYPE_CHECKING:
    from hetfeat.workloads.network import Network

log = logging.getLogger(__name__)

_ACCURACY = "hetfeat.accuracy"
"""Key of the metadata in which a quantised network says how accurate it is."""


def import_in_precision(
    batch: int, network: "Network", calibration: CalibrationData | None = None
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
        made, accuracy = quantised_network(network, calibration)
    imported = Imported.of(batch, made, accuracy)
    return dataclasses.replace(imported, seconds=watch.total_s)


def quantised_network(
    network: "Network", calibration: CalibrationData
) -> "tuple[Network, Accuracy]":
    """A network of float32 in integers of 8 bits, and how far it is from what it was.

    Raises:
        DataError: The calibration data is not what the network takes.
        RequestError: It cannot be quantised.
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
    made = dataclasses.replace(
        network,
        name=slug_in(network.name, INT8),
        module=OnnxModel(model),
        onnx=model,
        kind="ONNX",
    )
    layers = worst_layers(prepared, model, held_out[:1])
    accuracy = compare_networks(network, made, held_out, layers)
    log.info("%s; furthest off: %s", accuracy.described(), accuracy.described_layers() or "nothing")
    entry = model.metadata_props.add()
    entry.key, entry.value = _ACCURACY, json.dumps(dataclasses.asdict(accuracy))
    return made, accuracy


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
