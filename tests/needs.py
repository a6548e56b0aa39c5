"""What a machine must have for some tests."""

import os
from typing import NoReturn

import pytest


def cannot(why: str) -> NoReturn:
    """Passes a test over that this machine cannot make; what `.ci/run` installs must be there."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
