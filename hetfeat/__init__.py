"""Cost models that know the hardware, and what is built on them.

Importing this loads nothing but the standard library; each public name is imported when it is
first asked for. Nothing here prints: hetfeat logs below the logger `hetfeat`.
"""

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetfeat.api.bundles import Bundle, load_bundle
    from hetfeat.api.deploying import deploy_network
    from hetfeat.api.devices import probe
    from hetfeat.api.models import load_model, train_cost_model
    from hetfeat.api.networks import load_network
    from hetfeat.dataset.store import RecordStore
    from hetfeat.devices.profile import DeviceProfile, Route, Target
    from hetfeat.errors import HetfeatError
    from hetfeat.progress import Progress
    from hetfeat.workloads.network import Network

__version__ = "0.2.0"
__all__ = [
    "Bundle",
    "CostModel",
    "DeviceProfile",
    "HetfeatError",
    "Network",
    "Progress",
    "RecordStore",
    "Route",
    "Target",
    "__version__",
    "deploy_network",
    "load_bundle",
    "load_model",
    "load_network",
    "probe",
    "train_cost_model",
]

_MODULES = {
    "Bundle": "hetfeat.api.bundles",
    "CostModel": "hetfeat.models.base",
    "DeviceProfile": "hetfeat.devices.profile",
    "HetfeatError": "hetfeat.errors",
    "Network": "hetfeat.workloads.network",
    "Progress": "hetfeat.progress",
    "RecordStore": "hetfeat.dataset.store",
    "Route": "hetfeat.devices.profile",
    "Target": "hetfeat.devices.profile",
    "deploy_network": "hetfeat.api.deploying",
    "load_bundle": "hetfeat.api.bundles",
    "load_model": "hetfeat.api.models",
    "load_network": "hetfeat.api.networks",
    "probe": "hetfeat.api.devices",
    "train_cost_model": "hetfeat.api.models",
}
"""Public name -> the module that has it."""

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
