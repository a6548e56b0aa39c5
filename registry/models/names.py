"""How things are called in the registry."""

import re

from hetfeat.errors import RequestError

LOCK_PREFIX = "lock--"
_PART = re.compile(r"[a-z0-9][a-z0-9._-]*")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MAX_CHARACTERS = 200
"""Most characters of a name: MLflow's own limit is 256; the name of a lock is longer than that of
its model."""


def cost_model_name(family: str, device: str | None = None) -> str:
    """Registered model of a family's source models, or of a device's transfer-tuned ones."""
    parts = [family] if device is None else [family, device]
    return ".".join(["costmodel", *(_checked(part) for part in parts)])


def bundle_name(network: str, device: str) -> str:
    """Registered model of a network compiled for a device."""
    return ".".join(["network", _checked(network), _checked(device)])


def is_lock(name: str) -> bool:
    """Whether a registered model is one of our locks and no model."""
    return name.startswith(LOCK_PREFIX)


def is_model_name(name: str) -> bool:
    """Whether a registered model of ours can have a name."""
    return bool(_MODEL.fullmatch(name)) and not is_lock(name) and len(name) <= _MAX_CHARACTERS


def check_model_name(name: str) -> str:
    """The name itself, if a registered model of ours can have it.

    Raises:
        RequestError: It cannot.
    """
    if not is_model_name(name):
        raise RequestError(
            f"model name {name!r}",
            f"letters, digits, dots and dashes, at most {_MAX_CHARACTERS}, "
            "such as costmodel.cpu-x86",
            "correct it; `hetfeat versions` lists the names there are",
        )
    return name


def _checked(part: str) -> str:
    if not _PART.fullmatch(part):
        raise RequestError(
            f"{part!r} as part of a model's name",
            "lower-case letters, digits, dots, dashes",
            "choose another name",
        )
    return part
