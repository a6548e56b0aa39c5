"""What a report is about: which records, at which effort, and which runs therefore count."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hetfeat.dataset.splits import TENSET
from hetfeat.devices.profile import DeviceProfile
from hetfeat.report.run import Run, latest_by_seed

DEVICE, PROFILE, UNKNOWN = "device", "profile of one CPU", "device without a profile"
CLASSES = ("cpu", "gpu")
MODELS = ("xgb", "mlp", "lgbm")
"""Models of the paper's tables, in their order."""
TUNERS = (*MODELS, "attention")
SPLITS = ("within_task", "by_task", "by_target")
"""Splits of the paper's tables, in their order."""
MEASURED_SPLITS = (*SPLITS, TENSET)
BATCHES = (1, 2, 4, 8)
NETWORKS = ("resnet50", "mobilenet_v3_large", "inception_v3")
STRATEGIES = ("gbfs", "na2c", "xgb", "rnn")


@dataclass(frozen=True)
class Size:
    """What an effort runs; docs/report.md has the reasons.

    Attributes:
        tuners: Models trained for figure 2 on by_task; the first three are trained on every split.
        splits: Splits of the trainings.
        seeds: Number of seeds of each training and search.
        every_holdout: Whether by_target holds out each device in turn, not only the first by name.
        gemm: Shape `M,N,K` of the searches.
        gemm_share: Share of its space that each search measures.
        table7: Effort of the deployments of table 7; None deploys nothing.
        without: Effort of table 8's deployments that tune from scratch; None deploys nothing.
        with_model: Effort of table 8's deployments that tune with a cost model; None deploys
            nothing.
    """

    tuners: tuple[str, ...]
    splits: tuple[str, ...]
    seeds: int
    every_holdout: bool
    gemm: str
    gemm_share: str
    table7: str | None
    without: str | None
    with_model: str | None


SIZES = {
    "quick": Size(MODELS, ("by_task",), 1, False, "128,128,128", "0.001", None, None, None),
    "standard": Size(
        TUNERS, MEASURED_SPLITS, 3, False, "512,512,512", "0.001", "quick", "standard", "quick"
    ),
    "full": Size(
        TUNERS, MEASURED_SPLITS, 5, True, "1024,1024,1024", "0.001", "standard", "full", "standard"
    ),
}


@dataclass(frozen=True)
class Device:
    """Hardware that a report names.

    Attributes:
        name: Name of its profile.
        hardware: Class of hardware, `cpu` or `gpu`; empty for `UNKNOWN`.
        kind: `DEVICE`, `PROFILE` where others here are profiles of the same processor, `UNKNOWN`.
    """

    name: str
    hardware: str
    kind: str


def devices_of(profiles: Mapping[str, DeviceProfile]) -> dict[str, Device]:
    """Which of the profiles are hardware of their own, by what they say they come from."""
    origin = {name: p.source.partition(", tvm ")[0].strip() for name, p in profiles.items()}
    sources = list(origin.values())
    return {
        name: Device(
            name,
            profile.family.partition("-")[0],
            PROFILE if origin[name] and sources.count(origin[name]) > 1 else DEVICE,
        )
        for name, profile in sorted(profiles.items())
    }


@dataclass(frozen=True)
class Scope:
    """Whose runs count.

    Attributes:
        digest: Digest of the record store.
        features: Version of the feature columns.
        effort: Name of the effort in `SIZES`.
        size: Size that says what is run for the effort.
        devices: Devices of the records, and others that runs are about, by name.
        measured: Names of the devices of the records, by class of hardware.
        families: Family that a training on a class's records names, by class of hardware.
    """

    digest: str
    features: str
    effort: str
    size: Size
    devices: Mapping[str, Device]
    measured: Mapping[str, tuple[str, ...]]
    families: Mapping[str, str]

    def holdouts(self, hardware: str) -> tuple[str, ...]:
        """Devices that by_target holds out; none where no other would be left to train on."""
        names = sorted(self.measured.get(hardware, ()))
        if len(names) < 2:
            return ()
        return tuple(names if self.size.every_holdout else names[:1])

    def trainings(
        self,
        runs: Iterable[Run],
        hardware: str,
        *,
        model: str,
        split: str,
        pruned: bool,
        holdout: str = "",
    ) -> list[Run]:
        """The newest training of each seed on these records, of this effort and these features."""
        wanted = {
            "family": self.families.get(hardware, "-"),
            "model": model,
            "split": split,
            "pruned": str(pruned),
            "holdout": holdout,
        }
        return latest_by_seed(run for run in runs if self.is_training(run, **wanted))

    def is_training(self, run: Run, **wanted: str) -> bool:
        """Whether a run trained on these records, with this effort, these features and settings.

        One whose hyperparameters are not the defaults did not.
        """
        return (
            run.command == "train"
            and run.tags.get("dataset_digest") == self.digest
            and run.tags.get("feature_version") == self.features
            and run.setting("effort") == self.effort
            and not run.setting("set")
            and all(run.setting(key) == value for key, value in wanted.items())
        )

    def tested_on(self, hardware: str, split: str) -> Sequence[str]:
        """Values of holdout that trainings of a split may have."""
        return self.holdouts(hardware) if split == "by_target" else ("",)


def say(hardware: str) -> str:
    """`cpu` as people write it."""
    return hardware.upper()
