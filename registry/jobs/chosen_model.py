"""Which cost model a deployment asks: one of the registry, the packaged one, or none."""

import logging
from dataclasses import dataclass
from pathlib import Path

from hetfeat.devices.profile import DeviceProfile
from hetfeat.errors import DataError, RequestError
from hetfeat.models.packaged import PREFIX, packaged_model
from hetfeat.parsing import printable
from registry.files.pull import pull
from registry.models.names import cost_model_name
from registry.models.version import DATASET_TAG, Version

log = logging.getLogger(__name__)

DEFAULT_STAGE = "production"
FROM_SCRATCH = "none"
"""Word given instead of a cost model's name to tune without one."""


@dataclass(frozen=True)
class ChosenModel:
    """The cost model of a deployment.

    Attributes:
        name: URI of its version, or the name of a packaged model.
        folder: Folder of the model.
        dataset_digest: Digest of its training records; empty where it is not known.
        version: Version that it is, None for a packaged model.
    """

    name: str
    folder: Path
    dataset_digest: str
    version: Version | None

    @property
    def parent_uri(self) -> str | None:
        """URI of its version, None for a packaged model."""
        return self.version.uri if self.version else None


def find_source(
    model: str | None, asked_stage: str | None, profile: DeviceProfile, unrecorded: bool = False
) -> ChosenModel | None:
    """The cost model that was asked for, the staged one, or the packaged one; None for none.

    Args:
        model: Name, pinned version or `FROM_SCRATCH`, as in `DeployJob`; None for the family's.
        asked_stage: Stage of it; None for `DEFAULT_STAGE` if that holds one.
        profile: Profile of the device.
        unrecorded: Whether to follow an alias to where no promotion put it, too; default False.

    Raises:
        RequestError: No such model or stage, or both none and a stage.
    """
    if model == FROM_SCRATCH:
        if asked_stage:
            raise RequestError(
                f"--model {FROM_SCRATCH} with --stage {asked_stage}",
                "one of the two",
                "leave --stage out to tune from scratch",
            )
        return None
    if model and model.startswith(PREFIX):
        return _packaged(model, profile.family)
    name = model or cost_model_name(profile.family)
    pinned = "/" in name or "@" in name
    try:
        stage = asked_stage if pinned else asked_stage or DEFAULT_STAGE
        pulled = pull(name, stage, device=profile.name, unrecorded=unrecorded)
    except RequestError as error:
        if asked_stage or model or isinstance(error, DataError):
            raise
        packaged = _packaged(None, profile.family)
        instead = packaged.name if packaged else "tuning from scratch"
        log.warning("no cost model in the registry (%s): %s", error.given, instead)
        return packaged
    version = pulled.version
    return ChosenModel(version.uri, pulled.folder, version.tags.get(DATASET_TAG, ""), version)


def _packaged(name: str | None, family: str) -> ChosenModel | None:
    """The packaged model of a family; None where there is none.

    Raises:
        RequestError: It is not the one of that name.
    """
    packaged = packaged_model(family)
    if name and (packaged is None or packaged.name != name):
        raise RequestError(
            f"cost model '{printable(name)}'",
            f"the one that comes with this version, {packaged.name if packaged else 'none'}",
            "install the version that it came with, or deploy anew",
        )
    if packaged is None:
        return None
    return ChosenModel(packaged.name, packaged.folder, packaged.dataset_digest, None)
