"""What a deployment came to, as the manifest of its bundle and `--json` tell it."""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from hetfeat.deploy.accuracy import Accuracy, KeptAccuracy, as_accuracy
from hetfeat.deploy.precision import FLOAT32
from hetfeat.parsing import Count, Digest, PositiveFloat, Schema, parse


@dataclass(frozen=True)
class DeployReport:
    """What a deployment came to; None for a latency of what did not run.

    Attributes:
        network: Slug of the network.
        device: Name of the device's profile.
        latency_ms: Median latency of the first batch size, in milliseconds.
        latency_range_ms: Medians of its fastest and of its slowest turn, in milliseconds.
        peers_ms: Median latency of the network in other engines, in milliseconds, by engine.
        untuned_ms: Median latency of the network compiled without tuning, in milliseconds.
        picked_ms: Median latency of the network of the model's picks before anything was measured,
            in milliseconds; default None.
        batches_ms: Median latency of the other batch sizes, in milliseconds, by batch size in rows,
            as text.
        tuning_s: Wall time of tuning in seconds, that of earlier runs included.
        build_s: Wall time of compiling and writing the bundle, in seconds.
        total_s: Wall time of the deployment in seconds, tuning in earlier runs included.
        trials: Number of programs measured, in earlier runs, too.
        failed: Number of programs measured in this run that have no latency.
        resumed: Number of programs that earlier runs had measured.
        interrupted: Whether there is more to find than was found: tuning ended before its budget.
        stopped: Whether the user ended the tuning.
        max_abs_error: Largest error over all inputs, of the output that is furthest off, in its
            units.
        tolerance: Largest error that was allowed there.
        model_version: URI of the cost model's version, None if there was no model.
        leaked_records: Number of the model's training records that are this device's, of these
            tasks.
        seconds: Wall time in seconds, of this run, by stage: importing the network, lowering it,
            what its framework computes for reference, the first check before tuning, choosing
            programs (tuning included), building, verifying and timing; default none.
        precision: `float32`, the default, or `int8` for a network that was quantised for it.
        calibration: Digest of the calibration data of `int8`, default None.
        accuracy: How far `int8` is from float32, default None.
        left_out: Reasons why engines of `peers_ms` have no latency, by engine; default none.
        peers_error: How far, at most, the outputs of other engines are from exact integers, by
            engine; default none, as for a network that is not computed in exact integers.
    """

    network: str
    device: str
    latency_ms: float
    latency_range_ms: tuple[float, float]
    peers_ms: dict[str, float | None]
    untuned_ms: float | None
    batches_ms: dict[str, float | None]
    tuning_s: float
    build_s: float
    total_s: float
    trials: int
    failed: int
    resumed: int
    interrupted: bool
    stopped: bool
    max_abs_error: float
    tolerance: float
    model_version: str | None
    leaked_records: int
    seconds: dict[str, float] = field(default_factory=dict)
    precision: str = FLOAT32
    calibration: str | None = None
    accuracy: Accuracy | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    peers_error: dict[str, float] = field(default_factory=dict)
    picked_ms: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The report as a manifest keeps it."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain


class _KeptReport(Schema):
    """A report as a manifest keeps it."""

    network: str
    device: str
    latency_ms: PositiveFloat
    latency_range_ms: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)]
    peers_ms: dict[str, PositiveFloat | None]
    untuned_ms: PositiveFloat | None
    batches_ms: dict[str, PositiveFloat | None]
    tuning_s: float
    build_s: float
    total_s: float
    trials: Count
    failed: Count
    resumed: Count
    interrupted: bool
    stopped: bool = False  # older bundles do not say it
    max_abs_error: float
    tolerance: float
    model_version: str | None
    leaked_records: Count
    seconds: dict[str, float] = Field(default_factory=dict)  # older bundles do not say it
    precision: str = FLOAT32  # older bundles do not say it
    calibration: Digest | None = None
    accuracy: KeptAccuracy | None = None
    left_out: dict[str, str] = Field(default_factory=dict)  # older bundles do not say it
    peers_error: dict[str, float] = Field(default_factory=dict)  # older bundles do not say it
    picked_ms: PositiveFloat | None = None  # older bundles do not say it


def parse_report(value: object, *, what: str, action: str) -> DeployReport:
    """The report that a manifest, or the result of another process, holds.

    Args:
        value: JSON of the report; keys beside those of `DeployReport` are passed over.
        what: Words for the report in the error.
        action: Words for what to do where it is none.

    Raises:
        DataError: It is no report.
    """
    kept = parse(value, _KeptReport, what=what, action=action).model_dump()
    accuracy = as_accuracy(kept["accuracy"]) if kept["accuracy"] else None
    latencies_ms = tuple(kept["latency_range_ms"])
    return DeployReport(**kept | {"latency_range_ms": latencies_ms, "accuracy": accuracy})
