"""The pytest plugin: `claim` is parametrised with the claims of what the marker `flowshunt_contract` names.

    @pytest.mark.flowshunt_contract(MODEL)
    def test_contract(claim):
        claim.check()

It is loaded in every pytest session where flowshunt is installed, so it imports nothing until the marker is used.
"""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "flowshunt_contract(*objects): run the test once for each claim that these NIC models, offload actions, "
        "extended operations or detection engines must hold; the test takes it as `claim`",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a marked test its claims."""
    marker = metafunc.definition.get_closest_marker("flowshunt_contract")
    if marker is None or "claim" not in metafunc.fixturenames:
        return
    from flowshunt.testing import contract

    metafunc.parametrize("claim", [claim for thing in marker.args for claim in contract(thing)], ids=str)
