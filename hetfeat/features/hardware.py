"""A device profile as a feature vector."""

import math
from typing import Any

import numpy as np

from hetfeat.devices.nvidia import multiprocessor
from hetfeat.devices.profile import DeviceProfile
from hetfeat.features.batch import Floats
from hetfeat.features.columns import HARDWARE

_OF_MULTIPROCESSOR = "multiprocessor_"


def hardware_vector(profile: DeviceProfile) -> Floats:
    """Features of a device, float32 [len(columns.HARDWARE)]; NaN is "none, or unknown"."""
    own = multiprocessor(profile.target)

    def value(name: str) -> Any:
        if not name.startswith(_OF_MULTIPROCESSOR):
            return getattr(profile, name)
        return own and getattr(own, name.removeprefix(_OF_MULTIPROCESSOR))

    values = [value(column.name) for column in HARDWARE]
    return np.array([math.log2(v) if v else math.nan for v in values], np.float32)
