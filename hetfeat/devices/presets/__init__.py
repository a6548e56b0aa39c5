"""Profiles of known devices, a YAML file each: the paper's and those of public records."""

from pathlib import Path

from hetfeat.devices.profile import DeviceProfile, load_profile


def preset_names() -> list[str]:
    """Names of all presets, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def preset(name: str) -> DeviceProfile | None:
    """The preset of a name, or None."""
    return load_profile(_FOLDER / f"{name}.yaml") if name in preset_names() else None


_FOLDER = Path(__file__).parent
