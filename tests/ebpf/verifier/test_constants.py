"""What the verifier takes from read-only data stays as it was: for the verdict, and for as long as the program runs."""

import attrs
import pytest

from flowshunt.errors import InputError
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.workbench import Workbench
from flowshunt_ebpf.verifier import verify

# Reads values[settings[1]], whose only bound is the constant.
INDEXED = """
.type xdp
.map settings array key=4 value=8 entries=1 flags=128 contents="0000000008000000"
.map values array key=4 value=16 entries=1
r1 = map[settings][0]
r2 = *(u32 *)(r1 + 4)
r1 = map[values][0]
r1 += r2
r0 = *(u64 *)(r1 + 0)
exit
"""
FIRST = bytes(4)


@pytest.fixture
def bench():
    return Workbench(assemble(INDEXED))


def set_index(bench, index):
    bench.maps["settings"].update(FIRST, bytes(4) + index.to_bytes(4, "little"))


def test_an_index_from_read_only_data_is_known(bench):
    verdict = verify(bench.program)
    assert verdict.accepted
    assert verdict.facts.bounds[2][2].umax == 8


def test_data_that_was_changed_before_loading_is_verified_as_it_is(bench):
    set_index(bench, 9)
    assert not verify(bench.image.as_loaded()).accepted
    set_index(bench, 4)
    assert host(bench.image, bench.machine, verify(bench.image.as_loaded())).run().value == 0


def test_a_verdict_is_not_for_other_constants(bench):
    verdict = verify(bench.program)
    assert verdict.covers(bench.image)
    set_index(bench, 4)
    assert not verdict.covers(bench.image)
    with pytest.raises(InputError, match="is about other bytes, maps or another context"):
        host(bench.image, bench.machine, verdict)


def test_constants_can_not_be_changed_once_a_program_rests_on_them(bench):
    host(bench.image, bench.machine, verify(bench.program))
    with pytest.raises(InputError, match="rests on its constants"):
        set_index(bench, 1000)
    with pytest.raises(InputError, match="rests on its constants"):
        bench.maps["settings"].clear()
    with pytest.raises(InputError, match="rests on its constants"):
        bench.maps["settings"].write([[0]], [[0, 0]])
    bench.maps["values"].update(FIRST, bytes(range(16)))


def test_data_that_programs_may_write_is_not_known(bench):
    settings, values = bench.program.maps
    writable = attrs.evolve(bench.program, maps=(attrs.evolve(settings, flags=0), values))
    assert not verify(writable).accepted
