"""Lets the tests of this folder import the modules that stand beside them."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def shared():
    """The folder of captures with known answers; skips where it is not there."""
    folder = Path(os.environ.get("FLOWSHUNT_SHARED", Path(__file__).parents[3] / "shared")) / "data"
    if not (folder / "alerts.json").exists():
        pytest.skip("the captures with known answers are not here")
    return folder
