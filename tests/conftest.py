from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the clone."""
    return Path(__file__).resolve().parent.parent
