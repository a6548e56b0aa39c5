"""The 164 per-store features of TVM's cost-model interface."""

import numpy as np
import numpy.typing as npt
import tvm.s_tir.meta_schedule as ms


class StoreFeatures:
    """Extracts per-store features of scheduled programs of one task.

    Args:
        context: Tuning context of the task.
        cache_line_bytes: Cache line of the device in bytes; the only hardware input there is.
    """

    def __init__(self, context: ms.TuneContext, cache_line_bytes: int) -> None:
        self._context = context
        self._extractor = ms.feature_extractor.PerStoreFeature(
            buffers_per_store=5,
            arith_intensity_curve_num_samples=10,
            cache_line_bytes=cache_line_bytes,
            extract_workload=False,
        )

    def __call__(self, candidate: ms.MeasureCandidate) -> npt.NDArray[np.float32]:
        """Features of one program, float32 [stores, 164]."""
        (values,) = self._extractor.extract_from(self._context, [candidate])
        return np.asarray(values.numpy(), np.float32)
