"""Prefetches: put where an address is known, ahead of its first use."""

import pytest

from flowshunt.operation import Match
from flowshunt.recognition import View
from flowshunt.testing import Claim, operation_contract
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.testing.operation_sites import proved_sites
from flowshunt_einsn_prefetch.operation import LAYOUT, OPERATION

WORK = "\n".join(f"r{2 + n % 3} += {n}" for n in range(8))
MAP_VALUE = f"call 1\nif r0 == 0 goto +10\n{WORK}\nr1 = *(u64 *)(r0 + 8)\nr0 = r1"


@pytest.mark.parametrize("claim", operation_contract(OPERATION), ids=str)
def test_contract(claim: Claim):
    claim.check()


@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_a_map_value_that_is_read_later_is_asked_for_after_its_null_check(architecture):
    assert proved_sites(MAP_VALUE, OPERATION, architecture) == ["base=0, offset=8"]
    view = View(assemble(f"{MAP_VALUE}\nexit").instructions)
    assert OPERATION.recognize(view) == [Match((), LAYOUT.encode(base=0, offset=8), at=2)]


def test_packet_data_is_asked_for_once_a_cache_line():
    text = f"r6 = *(u32 *)(r1 + 0)\n{WORK}\nr2 = *(u8 *)(r6 + 12)\nr3 = *(u8 *)(r6 + 13)\nr0 = *(u8 *)(r6 + 70)"
    view = View(assemble(f"{text}\nexit").instructions)
    offsets = [LAYOUT.decode(match.payload).offset for match in OPERATION.recognize(view)]
    assert offsets == [12, 70]


@pytest.mark.parametrize(
    "text",
    [
        "r6 = *(u32 *)(r1 + 0)\nr0 = *(u8 *)(r6 + 12)",
        f"r2 = r10\nr2 += -64\n{WORK.replace('r2', 'r5')}\nr0 = *(u64 *)(r2 + 0)",
        f"{WORK}\nr0 = *(u32 *)(r1 + 4)",
        f"{WORK}\nr0 = *(u64 *)(r10 - 8)",
    ],
    ids=["used at once", "address of the stack", "context", "stack"],
)
def test_what_is_near_or_warm_is_left(text):
    assert OPERATION.recognize(View(assemble(f"{text}\nexit").instructions)) == []
