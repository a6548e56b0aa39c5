"""Which programs are known: a set that costs eight bytes a program, whatever their number."""

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]


class KeySet:
    """The first 64 bits of each program's key, in sorted runs that are merged as they grow.

    Two of TenSet's 51.6 million programs share them with probability 7e-5.
    """

    def __init__(self) -> None:
        self._runs: list[Keys] = []

    def add(self, programs: list[str]) -> npt.NDArray[np.bool_]:
        """Adds program keys; returns for each whether it is new, here and among those before."""
        return self.add_keys(np.array([int(program[:16], 16) for program in programs], np.uint64))

    def add_keys(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Adds keys; returns for each whether it is new, here and among those before."""
        run, first = np.unique(keys, return_index=True)
        for known in self._runs:
            at = np.minimum(np.searchsorted(known, run), len(known) - 1)
            fresh = known[at] != run
            run, first = run[fresh], first[fresh]
        new = np.zeros(len(keys), bool)
        new[first] = True
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]))
        if len(run):
            self._runs.append(run)
        return new
