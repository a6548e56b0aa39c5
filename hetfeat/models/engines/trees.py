"""What both kinds of boosted trees share: the objective over a table."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetfeat.models.aggregate import Table
from hetfeat.models.objective import Objective

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TableObjective:
    """An objective over programs, passed on to the rows whose sum a program is.

    Every row of a program has the program's slope. Trees that move all n rows of a program alike
    move its margin n times as far, hence n times the program's curvature.
    """

    objective: Objective
    table: Table

    def gradient(self, row_margins: npt.NDArray[np.floating]) -> tuple[Floats, Floats]:
        """First and second derivatives by the margin of each row, both float64 [r]."""
        slope, bend = self.objective.gradient(self.table.sums(row_margins))
        program = self.table.program
        rows = np.bincount(program, minlength=self.table.programs)
        return slope[program], (bend * rows)[program]
