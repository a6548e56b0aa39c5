"""Moves of versions between stages, their files read by `registry.files.pull`.

`preview`, `promote` and `rollback` are those of `registry.models`, which know no files: the check
of them is handed in here.
"""

import functools

from registry.files.pull import fetch
from registry.models import rollback as _rollback
from registry.models import stages as _stages

preview = functools.partial(_stages.preview, read_files=fetch)
promote = functools.partial(_stages.promote, read_files=fetch)
rollback = functools.partial(_rollback.rollback, read_files=fetch)
