"""Helpers as programs call them: the same on every runner, and as the kernel defines them."""

import struct

import pytest

from flowshunt.insn import (
    ADD,
    DW,
    JEQ,
    JNE,
    LD_IMM64,
    PSEUDO_FUNC,
    PSEUDO_MAP_IDX,
    R0,
    R1,
    R10,
    B,
    Instruction,
    W,
    alu64,
    alu64_imm,
    call,
    exit_,
    jmp_imm,
    ldx,
    mov64,
    mov64_imm,
    st,
    stx,
)
from flowshunt_ebpf.contexts.layout import MEMORY, TC, XDP
from flowshunt_ebpf.maps.create import create_all
from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.emulator import emulate
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import MapDefinition, MapType, Program
from flowshunt_ebpf.testing.checked_code import host_checked, vouched

RUNNERS = {
    "interpret": interpret,
    "host": host_checked,
    "host, verified": lambda image, machine: host(image, machine, vouched(image)),
    "unicorn-arm64": lambda image, machine: emulate(image, machine, "arm64"),
}


class Bench:
    def __init__(self, runner, maps, context):
        self.runner = runner
        self.definitions = tuple(maps)
        self.maps = create_all(self.definitions)
        self.machine = Machine(context, self.maps)

    def run(self, *instructions, packet=None):
        if packet is not None:
            self.machine.set_packet(packet)
        program = Program(tuple(instructions), maps=self.definitions)
        loaded = RUNNERS[self.runner](prepare(program, self.maps, context=self.machine.context), self.machine)
        outcome = loaded.run()
        assert outcome.fault is None, outcome.fault
        return outcome.value


@pytest.fixture(params=RUNNERS)
def bench(request):
    return lambda *maps, context=MEMORY: Bench(request.param, maps, context)


def map_pointer(number, register=R1):
    return Instruction(LD_IMM64, register, PSEUDO_MAP_IDX, 0, number)


def stack_pointer(register, distance):
    return (mov64(register, R10), alu64_imm(ADD, register, distance))


def signed(value):
    return value - (1 << 64) if value >> 63 else value


@pytest.mark.parametrize(
    "kind", [MapType.ARRAY, MapType.HASH, MapType.LRU_HASH, MapType.PERCPU_ARRAY, MapType.PERCPU_HASH]
)
def test_a_program_counts_in_a_map(bench, kind):
    b = bench(MapDefinition("m", kind, 4, 8, 4))
    count = (
        st(W, R10, -4, 2),
        st(DW, R10, -16, 5),
        *stack_pointer(2, -4),
        map_pointer(0),
        call(1),
        jmp_imm(JNE, R0, 0, 7),
        *stack_pointer(2, -4),
        *stack_pointer(3, -16),
        mov64_imm(4, 0),
        map_pointer(0),
        call(2),
        exit_(),
        ldx(DW, R1, R0, 0),
        alu64_imm(ADD, R1, 1),
        stx(DW, R0, R1, 0),
        mov64(0, R1),
        exit_(),
    )
    count = list(count)
    count[6] = jmp_imm(JNE, R0, 0, 9)
    results = [b.run(*count) for _ in range(3)]
    assert results == ([1, 2, 3] if "ARRAY" in kind.name else [0, 6, 7])
    assert struct.unpack("<Q", b.maps[0].lookup(struct.pack("<I", 2)))[0] == results[-1]


def test_deleting_from_an_array_is_not_valid(bench):
    b = bench(MapDefinition("m", MapType.ARRAY, 4, 8, 4))
    assert signed(b.run(st(W, R10, -4, 2), *stack_pointer(2, -4), map_pointer(0), call(3), exit_())) == -22


def test_an_update_past_an_array_is_refused(bench):
    b = bench(MapDefinition("m", MapType.ARRAY, 4, 8, 4))
    code = (
        st(W, R10, -4, 4),
        st(DW, R10, -16, 1),
        *stack_pointer(2, -4),
        *stack_pointer(3, -16),
        mov64_imm(4, 0),
        map_pointer(0),
    )
    assert signed(b.run(*code, call(2), exit_())) == -7


def test_a_map_from_a_map(bench):
    inner = MapDefinition("inner", MapType.ARRAY, 4, 8, 2)
    b = bench(MapDefinition("outer", MapType.ARRAY_OF_MAPS, 4, 4, 3, inner=inner))
    (held,) = create_all((inner,))
    held.update(struct.pack("<I", 1), struct.pack("<Q", 77))
    b.maps[0].put(2, held)
    code = [
        st(W, R10, -4, 2), st(W, R10, -8, 1), *stack_pointer(2, -4), map_pointer(0), call(1), jmp_imm(JEQ, R0, 0, 6),
        mov64(1, R0), *stack_pointer(2, -8), call(1), jmp_imm(JEQ, R0, 0, 1), ldx(DW, R0, R0, 0), exit_(),
    ]  # fmt: skip
    assert b.run(*code) == 77
    code[0] = st(W, R10, -4, 1)
    assert b.run(*code) == 0


def test_queue_helpers(bench):
    b = bench(MapDefinition("q", MapType.QUEUE, 0, 8, 2))
    push = (st(DW, R10, -8, 9), *stack_pointer(2, -8), mov64_imm(3, 0), map_pointer(0), call(87), exit_())
    assert [signed(b.run(*push)) for _ in range(3)] == [0, 0, -7]
    pop = (*stack_pointer(2, -8), map_pointer(0), call(88), jmp_imm(JNE, R0, 0, 1), ldx(DW, R0, R10, -8), exit_())
    assert [signed(b.run(*pop)) for _ in range(3)] == [9, 9, -2]


def test_a_ring_delivers_records_in_order(bench):
    b = bench(MapDefinition("ring", MapType.RINGBUF, 0, 0, 64))
    output = (
        st(DW, R10, -8, 0x41),
        *stack_pointer(2, -8),
        mov64_imm(3, 8),
        mov64_imm(4, 0),
        map_pointer(0),
        call(130),
        exit_(),
    )
    reserve = (
        map_pointer(0),
        mov64_imm(2, 16),
        mov64_imm(3, 0),
        call(131),
        jmp_imm(JEQ, R0, 0, 5),
        st(DW, R0, 0, 0x42),
        st(DW, R0, 8, 0x43),
        mov64(R1, R0),
        mov64_imm(2, 0),
        call(132),
        exit_(),
    )
    discard = (
        map_pointer(0), mov64_imm(2, 8), mov64_imm(3, 0), call(131), jmp_imm(JEQ, R0, 0, 3),
        mov64(R1, R0), mov64_imm(2, 0), call(133), mov64_imm(0, 0), exit_(),
    )  # fmt: skip
    seen = []
    b.maps[0].on_records = seen.append
    assert [b.run(*output), b.run(*discard), b.run(*reserve)] == [0, 0, 0]
    expected = [struct.pack("<Q", 0x41), struct.pack("<QQ", 0x42, 0x43)]
    assert b.maps[0].drain() == expected
    assert seen == [expected]
    for _ in range(20):  # round and round: records never wrap
        assert b.run(*output) == 0
        assert b.maps[0].drain() == expected[:1]
    assert [signed(b.run(*output)) for _ in range(5)] == [0, 0, 0, 0, -11]
    assert b.maps[0].lost == 1


def test_a_callback_runs_until_it_says_stop(bench):
    b = bench()
    loop = (
        mov64_imm(1, 10),
        Instruction(LD_IMM64, 2, PSEUDO_FUNC, 0, 9),
        *stack_pointer(3, -8),
        mov64_imm(4, 0),
        st(DW, R10, -8, 0),
        call(181),
        ldx(DW, 1, R10, -8),
        alu64(ADD, R0, 1),
        exit_(),
        ldx(DW, 3, 2, 0),
        alu64_imm(ADD, 3, 100),
        stx(DW, 2, 3, 0),
        mov64_imm(0, 0),
        jmp_imm(JNE, 1, 6, 1),
        mov64_imm(0, 1),
        exit_(),
    )
    assert b.run(*loop) == 7 + 700


def test_bpf_loop_refuses_flags_and_too_many(bench):
    b = bench()
    function = Instruction(LD_IMM64, 2, PSEUDO_FUNC, 0, 5)
    rest = (mov64_imm(3, 0), call(181), exit_(), mov64_imm(0, 0), exit_())
    flags = Instruction(LD_IMM64, 2, PSEUDO_FUNC, 0, 5)
    assert signed(b.run(mov64_imm(1, 1), flags, mov64_imm(4, 1), *rest)) == -22
    assert signed(b.run(mov64_imm(1, (1 << 23) + 1), function, mov64_imm(4, 0), *rest)) == -7


@pytest.mark.parametrize(
    ("text", "base", "expected", "number"),
    [
        (b"123", 0, 3, 123),
        (b" -42x", 10, 4, -42),
        (b"0x1fz", 0, 4, 31),
        (b"017", 0, 3, 15),
        (b"ff", 16, 2, 255),
        (b"0x", 0, 1, 0),
        (b"zz", 10, -22, None),
        (b"-", 0, -22, None),
        (b"9223372036854775807", 0, 19, (1 << 63) - 1),
        (b"9223372036854775808", 0, -34, None),
        (b"-9223372036854775808", 0, 20, -(1 << 63)),
        (b"99999999999999999999999", 0, -34, None),
        (b"12", 3, -22, None),
    ],
)
def test_strtol(bench, text, base, expected, number):
    b = bench()
    padded = text.ljust(24, b"\0")
    code = [st(DW, R10, -32 + 8 * k, 0) for k in range(3)]
    code += [st(B, R10, -32 + k, byte) for k, byte in enumerate(text)]
    code += [
        *stack_pointer(1, -32),
        mov64_imm(2, len(padded.rstrip(b"\0"))),
        mov64_imm(3, base),
        *stack_pointer(4, -8),
        call(105),
    ]
    result = signed(b.run(*code, exit_()))
    assert result == expected
    if number is not None:
        assert struct.unpack_from("<q", b.machine.stack, 4096 - 8)[0] == number


def test_strncmp_compares_up_to_the_zero_byte(bench):
    b = bench()

    def compare(left, right, size):
        code = [st(DW, R10, -16, 0), st(DW, R10, -8, 0)]
        code += [st(B, R10, -16 + k, byte) for k, byte in enumerate(left)] + [
            st(B, R10, -8 + k, byte) for k, byte in enumerate(right)
        ]
        code += [*stack_pointer(1, -16), mov64_imm(2, size), *stack_pointer(3, -8), call(182), exit_()]
        value = b.run(*code) & 0xFFFFFFFF
        return value - (1 << 32) if value >> 31 else value

    assert compare(b"abc", b"abc", 8) == 0
    assert compare(b"abc", b"abd", 8) < 0 < compare(b"abd", b"abc", 8)
    assert compare(b"abc", b"abd", 2) == 0


def test_random_numbers_repeat_with_the_seed(bench):
    draw = (call(7), exit_())
    first = bench()
    numbers = [first.run(*draw) for _ in range(4)]
    second = bench()
    assert [second.run(*draw) for _ in range(4)] == numbers
    assert len(set(numbers)) == 4
    assert all(number < 1 << 32 for number in numbers)


def test_the_clock_goes_on(bench):
    b = bench()
    code = (call(5), mov64(6, 0), call(5), alu64(0x10, 0, 6), exit_())
    assert 0 <= signed(b.run(*code)) < 10_000_000_000


def test_trace_output_is_formatted_in_python(bench):
    b = bench()
    text = b"n=%d x=%llx u=%u\0\0\0\0\0\0\0\0"
    code = [st(W, R10, -24 + 4 * k, int.from_bytes(text[4 * k : 4 * k + 4], "little", signed=True)) for k in range(6)]
    code += [
        *stack_pointer(1, -24),
        mov64_imm(2, 17),
        mov64_imm(3, -5),
        mov64_imm(4, 255),
        mov64_imm(5, 7),
        call(6),
        exit_(),
    ]
    b.run(*code)
    assert b.machine.trace() == ["n=-5 x=ff u=7"]


def test_a_spin_lock_is_taken_and_given_back(bench):
    b = bench(MapDefinition("m", MapType.ARRAY, 4, 8, 1))
    code = (
        st(W, R10, -4, 0), *stack_pointer(2, -4), map_pointer(0), call(1), jmp_imm(JEQ, R0, 0, 7),
        mov64(6, 0), mov64(1, 6), call(93), ldx(W, 7, 6, 0), mov64(1, 6), call(94), mov64(0, 7), exit_(),
    )  # fmt: skip
    assert b.run(*code) == 1
    assert b.maps[0].lookup(bytes(4)) == bytes(8)


def xdp(*rest):
    return (mov64(6, 1), *rest)


def test_heads_tails_and_metadata_move(bench):
    b = bench(context=XDP)
    packet = bytes(range(64))
    head = xdp(mov64_imm(2, -10), call(44), exit_())
    assert b.run(*head, packet=packet) == 0
    assert b.machine.packet()[10:] == packet
    assert len(b.machine.packet()) == 74
    tail = xdp(mov64_imm(2, -4), call(65), exit_())
    assert b.run(*tail, packet=packet) == 0
    assert b.machine.packet() == packet[:60]
    grown = xdp(mov64_imm(2, 6), call(65), exit_())
    assert b.run(*grown, packet=packet) == 0
    assert b.machine.packet() == packet + bytes(6)
    meta = xdp(mov64_imm(2, -8), call(54), ldx(W, 2, 6, 8), st(DW, 2, 0, 0x55), mov64_imm(0, 0), exit_())
    assert b.run(*meta, packet=packet) == 0
    assert b.machine.meta() == struct.pack("<Q", 0x55)
    assert b.machine.packet() == packet
    for number, delta in ((44, 51), (44, -300), (65, -51), (65, 5000), (54, 4), (54, -3)):
        result = signed(b.run(*xdp(mov64_imm(2, delta), call(number), exit_()), packet=packet))
        assert result in (-22, -13), (number, delta)
        assert b.machine.packet() == packet


def test_bytes_of_the_packet_are_copied(bench):
    packet = bytes(range(64))
    for context, loads, stores in ((XDP, 189, 190), (TC, 26, 9)):
        b = bench(context=context)
        code = (
            *stack_pointer(3, -8),
            mov64_imm(2, 20),
            mov64_imm(4, 8),
            call(loads),
            jmp_imm(JNE, 0, 0, 1),
            ldx(DW, 0, R10, -8),
            exit_(),
        )
        assert b.run(*code, packet=packet) == int.from_bytes(packet[20:28], "little")
        beyond = (st(DW, R10, -8, 1), *stack_pointer(3, -8), mov64_imm(2, 57), mov64_imm(4, 8), call(loads), exit_())
        assert signed(b.run(*beyond, packet=packet)) in (-22, -14)
        store = (
            st(DW, R10, -8, -1),
            *stack_pointer(3, -8),
            mov64_imm(2, 30),
            mov64_imm(4, 2),
            mov64_imm(5, 0),
            call(stores),
            exit_(),
        )
        assert b.run(*store, packet=packet) == 0
        assert b.machine.packet() == packet[:30] + b"\xff\xff" + packet[32:]


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def test_checksums_stay_right(bench):
    """An address in an IPv4 header changes: by csum_diff and l3_csum_replace, by l3_csum_replace alone."""
    header = bytearray(bytes.fromhex("45000054abcd40004001 0000 0a0000017f000001"))
    header[10:12] = checksum(bytes(header)).to_bytes(2, "big")
    frame = bytes(12) + b"\x08\x00" + bytes(header) + bytes(20)
    old, new = int.from_bytes(header[12:16], "little"), int.from_bytes(b"\xc0\xa8\x17\x2a", "little")
    wanted = bytearray(header)
    wanted[12:16], wanted[10:12] = b"\xc0\xa8\x17\x2a", b"\0\0"
    wanted[10:12] = checksum(bytes(wanted)).to_bytes(2, "big")
    b = bench(context=TC)
    store = (mov64(6, 1), st(W, R10, -4, _signed32(old)), st(W, R10, -8, _signed32(new)))
    write = (mov64(1, 6), mov64_imm(2, 26), *stack_pointer(3, -8), mov64_imm(4, 4), mov64_imm(5, 0), call(9), exit_())
    difference = (
        *stack_pointer(1, -4), mov64_imm(2, 4), *stack_pointer(3, -8), mov64_imm(4, 4), mov64_imm(5, 0), call(28),
        mov64(1, 6), mov64_imm(2, 24), mov64_imm(3, 0), mov64(4, 0), mov64_imm(5, 0), call(10),
    )  # fmt: skip
    b.run(*store, *difference, *write, packet=frame)
    assert b.machine.packet()[14:34] == bytes(wanted)
    replace = (mov64(1, 6), mov64_imm(2, 24), ldx(W, 3, R10, -4), ldx(W, 4, R10, -8), mov64_imm(5, 4), call(10))
    b.run(*store, *replace, *write, packet=frame)
    assert b.machine.packet()[14:34] == bytes(wanted)


def _signed32(value):
    return value - (1 << 32) if value >> 31 else value


def test_redirects_are_kept(bench):
    b = bench(MapDefinition("ports", MapType.DEVMAP, 4, 4, 4), context=XDP)
    b.maps[0].update(struct.pack("<I", 2), struct.pack("<I", 17))
    code = (map_pointer(0), mov64_imm(2, 2), mov64_imm(3, 1), call(51), exit_())
    assert b.run(*code, packet=bytes(64)) == 4
    assert b.machine.get32(state.REDIRECT_TARGET) == 17
    miss = (map_pointer(0), mov64_imm(2, 3), mov64_imm(3, 1), call(51), exit_())
    assert b.run(*miss, packet=bytes(64)) == 1
    direct = (mov64_imm(1, 5), mov64_imm(2, 0), call(23), exit_())
    assert b.run(*direct, packet=bytes(64)) == 4
    assert b.machine.get32(state.REDIRECT_TARGET) == 5


def test_events_carry_bytes_of_the_packet(bench):
    b = bench(MapDefinition("events", MapType.PERF_EVENT_ARRAY, 4, 4, 2), context=XDP)
    code = (
        st(W, R10, -4, 0x11223344), map_pointer(0, 2), Instruction(LD_IMM64, 3, 0, 0, (5 << 32) | 0xFFFFFFFF),
        *stack_pointer(4, -4), mov64_imm(5, 4), call(25), exit_(),
    )  # fmt: skip
    assert b.run(*code, packet=b"abcdefgh" * 8) == 0
    assert b.maps[0].drain() == [struct.pack("<I", 0x11223344) + b"abcde"]


def test_the_value_of_the_machines_cpu_is_used():
    definition = MapDefinition("m", MapType.PERCPU_ARRAY, 4, 8, 2)
    maps = create_all((definition,), cpus=3)
    code = (
        st(W, R10, -4, 1),
        *stack_pointer(2, -4),
        map_pointer(0),
        call(1),
        jmp_imm(JEQ, R0, 0, 1),
        st(DW, R0, 0, 7),
        mov64_imm(0, 0),
        exit_(),
    )
    for cpu in (0, 2):
        for load in RUNNERS.values():
            maps[0].clear()
            machine = Machine(MEMORY, maps, cpu=cpu)
            load(prepare(Program(code, maps=(definition,)), maps), machine).run()
            expected = [0, 0, 0]
            expected[cpu] = 7
            assert list(struct.unpack("<3Q", maps[0].lookup(struct.pack("<I", 1)))) == expected
