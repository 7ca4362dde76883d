"""The operations that these tests use keep the contract."""

import pytest

from flowshunt.testing import operation_contract
from flowshunt_ebpf.testing.sample_operations import SAMPLES


@pytest.mark.parametrize("claim", [c for o in SAMPLES.values() for c in operation_contract(o)], ids=str)
def test_contract(claim):
    claim.check()
