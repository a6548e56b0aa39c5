"""A device profile as a feature vector."""

import dataclasses
import math

import numpy as np

from hetfeat.devices.nvidia import multiprocessor
from hetfeat.devices.profile import DeviceProfile
from hetfeat.features.batch import Floats
from hetfeat.features.columns import HARDWARE


def hardware_vector(profile: DeviceProfile) -> Floats:
    """Features of a device, float32 [len(columns.HARDWARE)]; NaN is "none, or unknown"."""
    own = multiprocessor(profile.target)
    told = {f"multiprocessor_{k}": v for k, v in dataclasses.asdict(own).items()} if own else {}
    values = [told.get(column.name, getattr(profile, column.name, None)) for column in HARDWARE]
    return np.array([math.log2(v) if v else math.nan for v in values], np.float32)
