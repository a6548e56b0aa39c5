"""Small recorded spaces whose times follow from the parameters."""

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hetfeat.dataset.importers.kernel_tuner import read_recording
from hetfeat.search.recorded import RecordedSpace
from hetfeat.search.space import gemm_space

LEVELS = {
    "BM": (8, 16, 32, 64, 128),
    "BN": (8, 16, 32, 64),
    "V": (1, 2, 4),
    "S": (0, 1),
    "K": (32,),
}


def time_ms(values: Sequence[int], best: Sequence[int] = (32, 16, 2, 1)) -> float | None:
    """Fastest at `best`, a third slower with each step away from it; the largest tiles fail."""
    if values[0] * values[1] > 4096:
        return None
    steps = sum(
        abs(math.log2(a + 1) - math.log2(b + 1)) for a, b in zip(values, best, strict=False)
    )
    return 1.3**steps


def cache(configurations: Mapping[str, float | str | None], **others: Any) -> dict[str, Any]:
    """A cache as Kernel Tuner writes it, of milliseconds by configuration; None fails."""
    return {
        "device_name": "made up",
        "kernel_name": "tiles",
        "tune_params_keys": list(LEVELS),
        "cache": {
            key: {"time": "RuntimeFailedConfig" if time is None else time}
            for key, time in configurations.items()
        },
    } | others


def whole(best: Sequence[int] = (32, 16, 2, 1)) -> dict[str, Any]:
    """A cache of every configuration of `LEVELS`."""
    values = product(*LEVELS.values())
    return cache({",".join(map(str, v)): time_ms(v, best) for v in values})


def write(path: Path, content: object) -> Path:
    """Writes text, or what becomes JSON."""
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def recorded(folder: Path, content: Mapping[str, Any] | None = None) -> RecordedSpace:
    """The space of a cache, by default of `whole`."""
    return RecordedSpace(read_recording(write(folder / "cache.json", content or whole())))


def islands(folder: Path) -> RecordedSpace:
    """Two parts that no move connects."""
    keys = ["8,8,1,0,32", "16,8,1,0,32", "64,32,4,1,32", "64,64,4,1,32"]
    return recorded(folder, cache({key: 1.0 + i for i, key in enumerate(keys)}))


class TimedTiles:
    """A tile space with times, as a live one would have."""

    def __init__(self, m: int, n: int, k: int, slots: tuple[int, int, int] = (3, 2, 2)) -> None:
        self.space = gemm_space(m, n, k, slots)

    def time_s(self, state: tuple[int, ...]) -> float | None:
        """Fastest with innermost tiles near 4; the largest fails."""
        if state[2] == max(self.space.levels[2]):
            return None
        return 1e-3 * (1 + sum(abs(math.log2(state[at]) - 2) for at in (2, -1)))
