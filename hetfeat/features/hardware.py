"""A device profile as a feature vector."""

import math

import numpy as np

from hetfeat.devices.profile import DeviceProfile
from hetfeat.features.batch import Floats
from hetfeat.features.columns import HARDWARE


def hardware_vector(profile: DeviceProfile) -> Floats:
    """Features of a device, float32 [len(columns.HARDWARE)]; NaN is "none, or unknown"."""
    values = [getattr(profile, column.name) for column in HARDWARE]
    return np.array([math.log2(v) if v else math.nan for v in values], np.float32)
