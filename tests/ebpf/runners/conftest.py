from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def objects() -> Path:
    """The folder of compiled objects."""
    return Path(__file__).parents[1] / "objects"
