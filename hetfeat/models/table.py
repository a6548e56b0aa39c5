"""`load_model` under its old name.

Every model in a registry has a copy of `pyfunc_model.py` from when it was logged: the copies made
before the module was renamed import this one.
"""

from hetfeat.models.registry import load_model

__all__ = ["load_model"]
