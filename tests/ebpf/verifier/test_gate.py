"""The gate: native code runs only of exactly what a verifier accepted, whatever is changed around the verdict."""

import attrs
import pytest

from flowshunt.errors import InputError
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.contexts.layout import XDP, Context, Field
from flowshunt_ebpf.maps import create
from flowshunt_ebpf.maps.arrays import MAX_PROGRAMS
from flowshunt_ebpf.native import HostProgram, Machine, Verdict, Workbench, host, interpret, prepare
from flowshunt_ebpf.program import MapDefinition, MapFlag, MapType
from flowshunt_ebpf.verifier import Limits, verify
from flowshunt_ebpf.verifier.stack_depth import nested

pytest.importorskip("keystone")

VALUE = """
    .type xdp
    .map m hash key=4 value=4096 entries=4
    r2 = r10
    r2 += -4
    *(u32 *)(r10 - 4) = 0
    r1 = map[m]
    call bpf_map_lookup_elem
    if r0 == 0 goto out
    r0 = *(u64 *)(r0 + 4088)
out:
    exit
"""
CALLER = """
    .type xdp
    .map progs prog_array key=4 value=4 entries=4
    r2 = map[progs]
    r3 = 0
    call bpf_tail_call
    r0 = 7
    exit
"""


def accepted(program):
    verdict = verify(program)
    assert verdict.accepted, verdict.reason
    return verdict


@pytest.mark.parametrize(
    "other", [{"value_size": 8}, {"key_size": 8}, {"max_entries": 2}, {"type": MapType.LRU_HASH}, {"flags": 1}]
)
def test_maps_are_what_the_program_says_of_them(other):
    program = assemble(VALUE)
    with pytest.raises(InputError, match="map m has"):
        prepare(program, [create(attrs.evolve(program.maps[0], **other))])


def test_inner_maps_are_what_the_program_says_of_them():
    inner = MapDefinition("inner", MapType.ARRAY, 4, 64, 1)
    outer = MapDefinition("outer", MapType.ARRAY_OF_MAPS, 4, 4, 2, inner=inner)
    program = attrs.evolve(assemble(".type xdp\nr0 = 0\nexit"), maps=(outer,))
    with pytest.raises(InputError, match="map inner has value_size 8, not 64"):
        prepare(program, [create(attrs.evolve(outer, inner=attrs.evolve(inner, value_size=8)))])
    with pytest.raises(InputError, match="what a map of maps holds"):
        prepare(program, [create(attrs.evolve(outer, inner=None))])


def test_a_map_of_maps_holds_no_map_of_maps():
    array = MapDefinition("array", MapType.ARRAY, 4, 64, 1)
    inner = MapDefinition("inner", MapType.ARRAY_OF_MAPS, 4, 4, 1, inner=array)
    outer = create(MapDefinition("outer", MapType.ARRAY_OF_MAPS, 4, 4, 1, inner=inner))
    with pytest.raises(InputError, match="maps of maps do not hold maps of maps"):
        outer.put(0, create(attrs.evolve(inner, inner=attrs.evolve(array, value_size=8))))


def test_another_program_does_not_write_the_constants_that_a_verdict_rests_on():
    reader = assemble(CALLER.replace("r0 = 7", "r1 = map[ro][0] + 0\nr0 = *(u64 *)(r1 + 0)").replace(
        ".map progs", ".map ro array key=4 value=8 entries=1\n.map progs"))  # fmt: skip
    ro = attrs.evolve(reader.maps[0], flags=int(MapFlag.RDONLY_PROG), contents=bytes(8))
    reader = attrs.evolve(reader, maps=(ro, *reader.maps[1:]))
    writer = assemble("""
        .type xdp
        .map ro array key=4 value=8 entries=1
        r1 = map[ro][0] + 0
        *(u64 *)(r1 + 0) = -1
        r0 = 1
        exit
    """)
    bench = Workbench(reader, {"writer": lambda: writer})
    with pytest.raises(InputError, match="map ro has flags 128, not 0"):
        bench.handle("writer")


def test_an_image_is_run_as_it_was_prepared():
    program = assemble(VALUE)
    bench = Workbench(program)
    longer = attrs.evolve(bench.image.instructions[6], offset=8192)
    changed = (*bench.image.instructions[:6], longer, *bench.image.instructions[7:])
    with pytest.raises(InputError, match="changed after it was made ready"):
        host(attrs.evolve(bench.image, instructions=changed), bench.machine, accepted(program))
    for mapping in (bench.image.values, bench.image.pointers, bench.image.known_map):
        with pytest.raises(TypeError):
            mapping[0] = 1


def test_a_context_of_ones_own_is_none():
    own = Context("xdp", "xdp_md", 1 << 16, (Field("far", 1 << 14),), True, True, XDP.program_type)
    program = assemble(".type xdp\nr0 = *(u32 *)(r1 + 16384)\nexit")
    with pytest.raises(InputError, match="none that programs run in"):
        verify(program, context=own)
    with pytest.raises(InputError, match="none that programs run in"):
        prepare(program, context=own)


def test_a_verdict_that_covers_everything_covers_nothing():
    class Sure(Verdict):
        is_issued = True

        def covers(self, image):
            return True

    bench = Workbench(assemble(VALUE))
    for verdict in (Sure(True, b"", "me"), attrs.evolve(accepted(assemble(VALUE)))):
        with pytest.raises(InputError, match="no verifier issued the verdict"):
            host(bench.image, bench.machine, verdict)
    with pytest.raises(InputError, match="no verifier has accepted it"):
        HostProgram(bench.image, bench.machine, None)


def test_handles_lead_to_programs_that_were_loaded_or_nowhere():
    program = assemble(CALLER)
    bench = Workbench(program)
    loaded = host(bench.image, bench.machine, accepted(program))
    array = bench.maps["progs"]
    for handle in (5, MAX_PROGRAMS):
        array.set_handle(0, handle)
        assert loaded.run().value == interpret(bench.image, bench.machine).run().value == 7
    for handle in (-1, MAX_PROGRAMS + 1, 1 << 31, 1 << 63):
        with pytest.raises(InputError, match="take it from Machine"):
            array.set_handle(0, handle)
    late = Workbench(assemble(".type xdp\nr0 = 1\nexit"))
    array.set_handle(0, bench.machine.add_program(late.image))
    assert loaded.run().value == 7


@pytest.mark.parametrize("kind", [MapType.PROG_ARRAY, MapType.ARRAY_OF_MAPS, MapType.HASH_OF_MAPS])
def test_no_bytes_are_put_where_programs_and_maps_are(kind):
    inner = MapDefinition("inner", MapType.ARRAY, 4, 64, 1) if kind != MapType.PROG_ARRAY else None
    m = create(MapDefinition("m", kind, 4, 4, 2, inner=inner))
    with pytest.raises(InputError, match="are no bytes"):
        m.update(bytes(4), b"\x01\x02\x03\x04")
    with pytest.raises(InputError, match="are no bytes"):
        m.write([[0, 0, 0, 0]], [[1, 2, 3, 4]])
    assert kind == MapType.PROG_ARRAY or not hasattr(m, "set_handle")


def test_the_machines_processor_is_one_that_the_verifier_counts_on():
    with pytest.raises(InputError, match="0 to 8191 are possible"):
        Machine(XDP, cpu=8192)


@pytest.mark.parametrize("kind", ["devmap", "devmap_hash", "xskmap"])
def test_redirect_targets_are_not_written_by_programs(kind):
    verdict = verify(
        assemble(f"""
        .type xdp
        .map targets {kind} key=4 value=4 entries=4
        r2 = r10
        r2 += -4
        *(u32 *)(r10 - 4) = 0
        r1 = map[targets]
        call bpf_map_lookup_elem
        if r0 == 0 goto out
        *(u32 *)(r0 + 0) = 77
    out:
        r0 = 2
        exit
    """)
    )
    assert not verdict.accepted
    assert verdict.rejection.rule == "read-only"


def test_no_limit_allows_more_nested_functions_than_machines_have_frames():
    with pytest.raises(InputError, match="programs run with up to 8"):
        Limits(frames=9)


def test_how_deep_global_functions_call_is_counted_once_for_each():
    calls = {n: [(1, n + 1)] * 1000 for n in range(7)}
    assert nested({}, calls, 0, 8) == 8
    assert nested({}, {0: [(1, 0)] * 1000}, 0, 8) > 8


@pytest.mark.parametrize("kind", [MapType.HASH, MapType.LPM_TRIE, MapType.ARRAY])
def test_a_map_that_is_put_in_after_the_program_was_loaded_can_be_looked_into(kind):
    inner = MapDefinition("inner", kind, 4 if kind != MapType.LPM_TRIE else 8, 64, 8)
    outer = MapDefinition("outer", MapType.ARRAY_OF_MAPS, 4, 4, 2, inner=inner)
    program = assemble("""
        .type xdp
        .map outer array key=4 value=4 entries=2
        *(u64 *)(r10 - 8) = 0
        r2 = r10
        r2 += -8
        r1 = map[outer]
        call bpf_map_lookup_elem
        if r0 == 0 goto none
        r2 = r10
        r2 += -8
        r1 = r0
        call bpf_map_lookup_elem
        if r0 == 0 goto none
        r0 = *(u64 *)(r0 + 56)
        exit
    none:
        r0 = 1
        exit
    """)
    program = attrs.evolve(program, maps=(outer,))
    bench = Workbench(program)
    loaded = host(bench.image, bench.machine, accepted(program))
    assert loaded.run().value == 1
    late = create(inner)
    late.update(bytes(inner.key_size), bytes(56) + b"\x09" + bytes(7))
    bench.maps["outer"].put(0, late)
    assert loaded.run().value == interpret(bench.image, bench.machine).run().value == 9
