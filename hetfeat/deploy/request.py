"""What a deployment is asked for, and whether a bundle is that already."""

import dataclasses
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from hetfeat.dataset.store import RecordStore
from hetfeat.deploy import bundle
from hetfeat.deploy.accuracy import Accuracy
from hetfeat.deploy.precision import FLOAT32
from hetfeat.deploy.report import DeployReport, parse_report
from hetfeat.deploy.runtime import MANIFEST
from hetfeat.deploy.stages import Stopwatch
from hetfeat.errors import DataError, RequestError
from hetfeat.models.base import CostModel
from hetfeat.parsing import Count, Digest, PositiveFloat, PositiveInt, Schema, decode, printable
from hetfeat.search.strategies import EVOLUTION

if TYPE_CHECKING:
    from hetfeat.workloads.network import Network

REQUEST = "request.json"
"""Name of the file in a deployment's journal that says what was asked for."""


@dataclass(frozen=True)
class DeployRequest:
    """What was asked for; equal requests give the same bundle.

    Attributes:
        network: Name for `workloads.networks.load_network`.
        slug: Slug of the network from `workloads.networks.network_slug`; of a file, with its
            digest.
        batches: Batch sizes in rows, the one that is compared with peers first.
        device: Name of the device's profile.
        model: URI of the cost model's version, pinned, or None to tune without one.
        effort: `quick`, `standard` or `full`.
        trials: Number of measured programs in all, or None for what the effort allows; 0 leaves the
            choice to the cost model alone.
        seed: Seed of weights, inputs and search.
        search: Strategy that proposes programs, default `evolution`.
        digest: Digest of the network from `workloads.exported.function_digest`, default None.
        outputs: Names of the outputs that are wanted; none, the default, for all.
        minutes: Most minutes of tuning, over all runs with one journal; None, the default, for what
            the effort allows.
        precision: `float32`, the default, `float16`, `bfloat16`, or `int8` for a network quantised
            for it.
        calibration: Digest of the calibration data of `int8`, default None.
        max_loss: Most that `int8` may lose (`accuracy.Accuracy.loss`); None, the default, for no
            bound.
    """

    network: str
    slug: str
    batches: tuple[int, ...]
    device: str
    model: str | None
    effort: str
    trials: int | None
    seed: int
    search: str = EVOLUTION
    digest: str | None = None
    outputs: tuple[str, ...] = ()
    minutes: float | None = None
    precision: str = FLOAT32
    calibration: str | None = None
    max_loss: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The request as a manifest keeps it."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain

    @classmethod
    def of_journal(cls, journal: Path) -> "DeployRequest":
        """What a deployment was asked for, whose journal this is.

        Raises:
            DataError: It is none.
        """
        action = "name the folder that ends in .journal beside a bundle of `hetfeat deploy`"
        try:
            data = (journal / REQUEST).read_bytes()
        except OSError as error:
            given = f"'{journal}'"
            raise DataError(
                given, f"the journal of a deployment, with its {REQUEST}", action
            ) from error
        what = f"'{journal}', the journal of a deployment"
        kept = decode(data, _KeptRequest, what=what, action=action).model_dump()
        return cls(**kept | {key: tuple(kept[key]) for key in ("batches", "outputs")})


class _KeptRequest(Schema):
    """A request as a journal keeps it."""

    network: str
    slug: str
    batches: Annotated[list[PositiveInt], Field(min_length=1)]
    device: str
    model: str | None
    effort: Literal["quick", "standard", "full"]
    trials: Count | None
    seed: int
    search: str = EVOLUTION
    digest: str | None = None
    outputs: list[str] = Field(default_factory=list)
    minutes: PositiveFloat | None = None
    precision: Literal["float32", "float16", "bfloat16", "int8"] = "float32"
    calibration: Digest | None = None
    max_loss: Annotated[float, Field(ge=0, lt=1)] | None = None


@dataclass(frozen=True)
class SourceModel:
    """The cost model to tune with, and what is known of it.

    Attributes:
        model: The cost model.
        dataset_digest: Digest of its training records.
    """

    model: CostModel
    dataset_digest: str


@dataclass(frozen=True)
class Imported:
    """A network for one batch size.

    Attributes:
        batch: Batch size in rows.
        network: Network in the framework that it comes from.
        module: Module from `workloads.relax.import_network`.
        accuracy: How far it is from the network of float32 that it was quantised of, default None
            for one that was not.
        seconds: Wall time of importing it, and of quantising it before; default 0.
    """

    batch: int
    network: "Network"
    module: Any
    accuracy: Accuracy | None = None
    seconds: float = 0.0

    @classmethod
    def of(cls, batch: int, network: "Network", accuracy: Accuracy | None = None) -> "Imported":
        """Imports a network for one batch size.

        Raises:
            RequestError: The network has an operator that the importer does not know.
        """
        from hetfeat.workloads.relax import import_network

        watch = Stopwatch()
        with watch.stage("importing"):
            module = import_network(network)
        return cls(batch, network, module, accuracy, watch.total_s)


def existing(request: DeployRequest, out: Path) -> DeployReport | None:
    """The report of the bundle at `out` if it is what is asked for, or None if there is none.

    A bundle whose tuning was interrupted counts as none: deploying goes on from its journal.

    Raises:
        DataError: Something else lies there, or a bundle whose files have changed.
        RequestError: A bundle of another request lies there.
    """
    if not out.exists():
        return None
    manifest = bundle.read_manifest(out)
    # Older bundles do not say how they were searched for, what their function returned, which
    # outputs they have, nor in how many minutes or which precision.
    older: dict[str, Any] = {"search": EVOLUTION, "digest": None, "outputs": [], "minutes": None}
    older |= {"precision": FLOAT32, "calibration": None, "max_loss": None}
    kept = manifest.get("request")
    if not isinstance(kept, dict) or older | kept != request.as_json():
        network = printable(str(manifest.get("network", "a network")))
        raise RequestError(
            f"'{out}', a bundle of {network} from another request",
            "the same network, by what a function returns, and the same device, model version, "
            "effort, minutes, trials, batch, search, seed, outputs, precision and calibration data "
            "and loss",
            "choose another --out, or pass --refresh true to replace it",
        )
    report = parse_report(
        manifest.get("report", {}),
        what=f"the report of '{out}'",
        action="pass --refresh true to replace it",
    )
    if report.interrupted:
        return None
    bundle.check_files(out, manifest)
    return report


def refuse_unguided(request: DeployRequest, guided: bool) -> None:
    """Refuses to measure nothing where there is no cost model either.

    Raises:
        RequestError: That is what is asked for.
    """
    if request.trials == 0 and not guided:
        raise RequestError(
            f"deploying '{request.network}' with --trials 0 and no cost model",
            "a cost model, which chooses the programs that nobody measures",
            "promote one with `hetfeat promote`, or allow some trials",
        )


def refuse_irreplaceable(out: Path) -> None:
    """Raises DataError where something lies at `out` that is no bundle, of whatever format."""
    if out.exists() and not (out / MANIFEST).is_file():
        raise DataError(f"'{out}'", "a bundle, to replace it", "choose another --out")


def discard(out: Path) -> None:
    """Removes a bundle's journal, so that deploying to `out` measures anew.

    The bundle itself stays until the new one takes its place.

    Raises:
        DataError: Something that is no bundle, or no journal, lies there; or a deployment is
            writing the journal.
    """
    refuse_irreplaceable(out)
    journal = journal_path(out)
    if journal.exists():
        with RecordStore.open(journal).writing():
            shutil.rmtree(journal)


def journal_path(out: Path) -> Path:
    """The record store that a deployment to `out` goes on from."""
    return out.with_name(out.name + ".journal")
