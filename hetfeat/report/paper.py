"""The papers' own figures, from `paper.yaml`."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def of_table(name: str) -> Mapping[str, Any]:
    """What the file has under a table's name."""
    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("paper.yaml").read_text())
    table: dict[str, Any] = found[name]
    return table


def figure(name: str, *path: str) -> float | None:
    """A figure of a table, or None where the paper has none."""
    at: Any = of_table(name)
    for key in path:
        if not isinstance(at, Mapping) or key not in at:
            return None
        at = at[key]
    return float(at)


def device_for(name: str, device: str, hardware: str) -> str:
    """The paper's device to set beside ours: the same one, else that of its class of hardware.

    Args:
        name: Name of the table.
        device: Name of our device.
        hardware: Class of hardware, `cpu` or `gpu`.
    """
    table = of_table(name)
    return device if device in table["hardware"] else str(table["reference"][hardware])


def shown(name: str, device: str) -> str:
    """What the paper calls a device."""
    return str(of_table(name)["hardware"][device])
