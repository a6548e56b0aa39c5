"""Moves of versions between stages, their files read by `registry.files.pull`.

`promote` and `rollback` are those of `registry.models`, which know no files: the check of them is
handed in here.
"""

import functools

from registry.files.pull import fetch
from registry.models import rollback as _rollback
from registry.models import stages as _stages

promote = functools.partial(_stages.promote, read_files=fetch)
rollback = functools.partial(_rollback.rollback, read_files=fetch)
