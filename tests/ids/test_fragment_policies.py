"""Overlapping IP fragments by the receiver's policy. The figures are those of the literature on target-based
defragmentation (Novak, "Target-Based Fragmentation Reassembly", 2005), which Suricata's policies follow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowshunt.errors import InputError
from flowshunt_ids.fragment_policies import OF_SYSTEM, Fragment, insert, join
from flowshunt_ids.host_policies import HostPolicies
from flowshunt_ids.layout import POLICIES

# offset and length in units of 8 bytes, in the order of arrival; fragment n carries the digit n
NOVAK = [(0, 3), (4, 2), (6, 3), (1, 4), (6, 3), (9, 3)]
KEPT = {
    "bsd": "111442333666",
    "linux": "111442555666",
    "first": "111422333666",
    "last": "144442555666",
}


def assembled(places, policy):
    parts, starts = [], []
    last = max(start + count for start, count in places)
    for number, (start, count) in enumerate(places, 1):
        new = Fragment(8 * start, str(number).encode() * 8 * count, start + count < last)
        insert(parts, starts, new, policy)
    return join(parts)[::8].decode()


@pytest.mark.parametrize("policy", sorted(KEPT))
def test_policies_keep_what_their_systems_keep(policy):
    assert assembled(NOVAK, policy) == KEPT[policy]


@given(st.permutations(list(range(9))), st.sampled_from(sorted(set(OF_SYSTEM.values()))))
def test_without_overlaps_every_policy_and_order_gives_the_datagram(order, policy):
    text = assembled([(3 * place, 3) for place in order], policy)
    assert text == "".join(str(order.index(place) + 1) * 3 for place in range(9))


def test_a_host_has_the_policy_of_its_narrowest_network():
    policies = HostPolicies({"windows": "[0.0.0.0/0,::/0]", "linux": "[10.0.0.0/8]", "bsd-right": "[10.1.0.0/16]"})
    assert policies.of(bytes((192, 0, 2, 1))) == "windows"
    assert policies.of(bytes((10, 2, 0, 1))) == "linux"
    assert policies.for_fragments(bytes((10, 1, 0, 1))) == "bsd-right"
    assert POLICIES[policies.for_streams(bytes((10, 1, 0, 1)))] == "bsd"
    assert policies.of(bytes(16)) == "windows"
    assert HostPolicies({}).of(bytes(4)) == "bsd"


@pytest.mark.parametrize("groups", [{"windoze": "[10.0.0.0/8]"}, {"bsd": "[10.0.0.0/99]"}])
def test_policies_that_there_are_not_are_refused(groups):
    with pytest.raises(InputError):
        HostPolicies(groups)
