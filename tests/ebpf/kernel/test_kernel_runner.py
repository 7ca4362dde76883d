"""The kernel runner, and that user space does what the kernel does. Skipped where the kernel can't be asked."""

import struct

import pytest

from flowshunt.errors import InputError
from flowshunt.insn import (
    ADD,
    DW,
    JEQ,
    JNE,
    LD_IMM64,
    PSEUDO_MAP_IDX,
    R0,
    R1,
    R10,
    Instruction,
    W,
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
from flowshunt_ebpf.contexts.layout import CGROUP_SKB, SOCKET_FILTER, TC, XDP
from flowshunt_ebpf.kernel.load import lookup as kernel_lookup
from flowshunt_ebpf.kernel.maps import KernelMaps
from flowshunt_ebpf.kernel.runner import run_in_kernel
from flowshunt_ebpf.kernel.syscall import missing
from flowshunt_ebpf.maps.create import create_all
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import MapDefinition, MapType, Program
from flowshunt_ebpf.testing.checked_code import host_checked

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"the kernel runner can't run here: {missing()}")

PACKET = bytes(range(12)) + b"\x08\x00" + bytes.fromhex("45000032abcd40004011aaaa0a0000017f000001") + bytes(range(30))


def both(context, *instructions, packet=PACKET, maps=(), fill=None):
    """What the kernel and the host leave: r0's low half, the packet, the maps."""
    held = create_all(maps)
    machine = Machine(context, held)
    image = prepare(Program(tuple(instructions), maps=tuple(maps)), held, context=context)
    results = []
    verdict = None
    for load in (run_in_kernel, host):
        for m in held:
            m.clear()
        if fill:
            fill(*held)
        machine.set_packet(packet)
        loaded = load(image, machine) if load is run_in_kernel else load(image, machine, verdict)
        outcome = loaded.run()
        verdict = loaded.verdict
        loaded.close()
        assert outcome.fault is None
        results.append(
            (outcome.value & 0xFFFFFFFF, machine.packet(), machine.meta(), [sorted(m.items()) for m in held])
        )
    return results


def agree(*args, **kwargs):
    in_kernel, on_host = both(*args, **kwargs)
    assert in_kernel == on_host
    return on_host[0]


def stack_pointer(register, distance):
    return (mov64(register, R10), alu64_imm(ADD, register, distance))


def test_all_64_bits_of_a_result_on_bare_memory():
    machine = Machine()
    machine.set_packet(struct.pack("<Q", 0x1122334455667788) + bytes(8))
    loaded = run_in_kernel(prepare(Program((ldx(DW, 0, R1, 0), exit_()))), machine)
    assert loaded.run().value == 0x1122334455667788
    loaded.close()


def test_a_refused_program_says_why():
    with pytest.raises(InputError, match="R2 !read_ok"):
        run_in_kernel(prepare(Program((mov64(0, 2), exit_())), context=XDP), Machine(XDP))


def test_sizes_and_verdict():
    machine = Machine(XDP)
    image = prepare(Program((mov64_imm(0, 2), exit_())), context=XDP)
    loaded = run_in_kernel(image, machine)
    assert loaded.info.translated == 16
    assert loaded.info.native_bytes > 0
    assert loaded.verdict.covers(image)
    assert loaded.verdict.verifier.startswith("Linux")
    machine.set_packet(PACKET)
    assert loaded.time(1000) > 0
    loaded.close()


@pytest.mark.parametrize("delta", [-10, -216, -217, 0, 10, 50, 51, 100])
def test_adjusting_the_head(delta):
    agree(XDP, mov64_imm(2, delta), call(44), exit_())


@pytest.mark.parametrize("delta", [-10, -50, -51, 0, 10, 3400, 3456, 3457])
def test_adjusting_the_tail(delta):
    agree(XDP, mov64_imm(2, delta), call(65), exit_())


@pytest.mark.parametrize("delta", [-4, -8, -32, -3, 4, -252, -256, 0])
def test_adjusting_the_metadata(delta):
    agree(XDP, mov64_imm(2, delta), call(54), exit_())


@pytest.mark.parametrize(("offset", "size"), [(0, 8), (56, 8), (57, 8), (64, 1), (70, 4)])
@pytest.mark.parametrize(("context", "number"), [(XDP, 189), (TC, 26), (SOCKET_FILTER, 26)])
def test_loading_bytes(context, number, offset, size):
    packet = PACKET if context is not SOCKET_FILTER else PACKET[14:] + bytes(14)
    code = (st(DW, R10, -8, -1), *stack_pointer(3, -8), mov64_imm(2, offset), mov64_imm(4, size), call(number))
    agree(context, *code, jmp_imm(JNE, R0, 0, 1), ldx(W, R0, R10, -8), exit_(), packet=packet)


@pytest.mark.parametrize("flags", [0, 2, 4])
@pytest.mark.parametrize(("old", "new"), [(0x1234, 0xABCD), (0, 0xFFFF), (0xFFFF, 0), (1, 1), (0x7F000001, 0x0100000A)])
def test_replacing_checksums(flags, old, new):
    for number, more in ((10, 0), (11, 0), (11, 0x20), (11, 0x10)):
        given = 0 if flags == 0 else old
        code = (
            mov64(6, 1), mov64_imm(2, 24), Instruction(LD_IMM64, 3, imm=given), Instruction(LD_IMM64, 4, imm=new),
            mov64_imm(5, flags | more), call(number), exit_(),
        )  # fmt: skip
        agree(TC, *code)


@pytest.mark.parametrize(("source", "to"), [(0, 16), (16, 0), (16, 16), (4, 8), (0, 0), (3, 4)])
@pytest.mark.parametrize("seed", [0, 0xFFFF, 0x12345678])
def test_checksum_differences(source, to, seed):
    code = [st(DW, R10, -8 * k, 0x01020304 * k - 0x70000000) for k in range(1, 5)]
    code += [*stack_pointer(1, -16), mov64_imm(2, source), *stack_pointer(3, -32), mov64_imm(4, to)]
    code += [Instruction(LD_IMM64, 5, imm=seed), call(28), exit_()]
    try:
        agree(XDP, *code)
    except InputError as refused:
        assert "zero-sized" in str(refused)  # the kernel's verifier wants a size above 0


@pytest.mark.parametrize("size", [20, 64, 65, 100, 13, 1500])
def test_changing_the_tail_of_a_socket_buffer(size):
    agree(TC, mov64_imm(2, size), mov64_imm(3, 0), call(38), exit_())


def test_fields_of_a_socket_buffer():
    for offset in (0, 16, 8, 68, 160):
        agree(TC, ldx(W, 0, R1, offset), exit_())
    for offset, expected in ((0, 50), (16, 0x0008)):  # a program of this type returns 0 or 1
        code = (ldx(W, 2, R1, offset), mov64_imm(0, 0), jmp_imm(JNE, 2, expected, 1), mov64_imm(0, 1), exit_())
        assert agree(CGROUP_SKB, *code, packet=PACKET[14:]) == 1


def test_a_changed_mark_comes_back():
    machine = Machine(TC)
    machine.set_packet(PACKET)
    machine.set_context({"mark": 5})
    loaded = run_in_kernel(
        prepare(
            Program((ldx(W, 2, R1, 8), alu64_imm(ADD, 2, 1), stx(W, R1, 2, 8), mov64_imm(0, 0), exit_())), context=TC
        ),
        machine,
    )
    loaded.run()
    loaded.close()
    assert machine.context_field("mark") == 6


@pytest.mark.parametrize(
    "kind", [MapType.ARRAY, MapType.HASH, MapType.LRU_HASH, MapType.PERCPU_ARRAY, MapType.PERCPU_HASH]
)
def test_maps_go_in_and_come_back(kind):
    code = (
        st(W, R10, -4, 2),
        *stack_pointer(2, -4),
        Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 0),
        call(1),
        jmp_imm(JEQ, R0, 0, 3),
        ldx(DW, 1, R0, 0),
        alu64_imm(ADD, 1, 5),
        stx(DW, R0, 1, 0),
        st(W, R10, -4, 3),
        st(DW, R10, -16, 9),
        *stack_pointer(2, -4),
        *stack_pointer(3, -16),
        mov64_imm(4, 0),
        Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 0),
        call(2),
        exit_(),
    )
    definition = MapDefinition("m", kind, 4, 8, 4)

    def fill(m):
        m.update(struct.pack("<I", 2), struct.pack("<Q", 37))

    _, on_host = both(XDP, *code, maps=(definition,), fill=fill)
    assert dict(on_host[3][0])[struct.pack("<I", 2)] == struct.pack("<Q", 42)
    agree(XDP, *code, maps=(definition,), fill=fill)


@pytest.mark.parametrize(("kind", "popped", "left"), [(MapType.QUEUE, 1, [2, 3, 7]), (MapType.STACK, 3, [1, 2, 7])])
def test_queues_go_in_and_come_back(kind, popped, left):
    code = (
        *stack_pointer(2, -8), Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 0), call(88), ldx(DW, 6, R10, -8),
        st(DW, R10, -8, 7), *stack_pointer(2, -8), mov64_imm(3, 0), Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 0),
        call(87), mov64(R0, 6), exit_(),
    )  # fmt: skip
    (m,) = create_all((MapDefinition("m", kind, 0, 8, 5),))
    machine = Machine(XDP, (m,))
    image = prepare(Program(code, maps=(m.definition,)), (m,), context=XDP)
    for load in (run_in_kernel, host_checked, run_in_kernel):
        m.clear()
        for value in (1, 2, 3):
            m.push(struct.pack("<Q", value))
        machine.set_packet(PACKET)
        loaded = load(image, machine)
        assert loaded.run().value == popped
        loaded.close()
        assert [int.from_bytes(value, "little") for value in m.values()] == left


def test_records_of_a_ring_come_back():
    code = [
        *[i for n in range(3) for i in (
            st(DW, R10, -8, n), st(DW, R10, -16, -n), Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 0),
            *stack_pointer(2, -16), mov64_imm(3, 8 + 3 * n), mov64_imm(4, 0), call(130),
        )], mov64_imm(0, 0), exit_(),
    ]  # fmt: skip
    (m,) = create_all((MapDefinition("m", MapType.RINGBUF, 0, 0, 4096),))
    machine = Machine(XDP, (m,))
    image = prepare(Program(tuple(code), maps=(m.definition,)), (m,), context=XDP)
    machine.set_packet(PACKET)
    batches = []
    m.on_records = batches.append
    for load in (host_checked, run_in_kernel):
        loaded = load(image, machine)
        for _ in range(100):  # round the end of the ring several times
            loaded.run()
            m.drain()
        loaded.time(5)
        loaded.run()
        m.drain()
        loaded.close()
    on_host, in_kernel = batches[:100], batches[101:201]
    assert on_host == in_kernel
    assert [len(record) for record in in_kernel[0]] == [8, 11, 14]
    assert len(batches[-1]) == 3  # those of the timed runs are gone


def test_a_redirect_target_that_the_kernel_lacks_is_refused():
    code = (
        Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 0), mov64_imm(2, 1), mov64_imm(3, 1), call(51), exit_(),
    )  # fmt: skip

    def fill(target):
        return lambda m: m.update(struct.pack("<I", 1), struct.pack("<I", target))

    definition = MapDefinition("ports", MapType.DEVMAP, 4, 4, 4)
    assert agree(XDP, *code, maps=(definition,), fill=fill(1)) == 4  # the loopback interface
    with pytest.raises(InputError, match="map ports: the kernel refuses the redirect target 999999"):
        both(XDP, *code, maps=(definition,), fill=fill(999999))


def test_maps_in_the_kernel_serve_several_programs():
    (m,) = create_all((MapDefinition("m", MapType.ARRAY, 4, 8, 1),))
    machine = Machine(XDP, (m,))
    maps = KernelMaps(machine.maps)
    machine.set_packet(PACKET)
    for value in (3, 4):
        code = (
            st(W, R10, -4, 0), *stack_pointer(2, -4), Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 0), call(1),
            jmp_imm(JEQ, R0, 0, 1), st(DW, R0, 0, value), mov64_imm(0, 0), exit_(),
        )  # fmt: skip
        loaded = run_in_kernel(prepare(Program(code, maps=(m.definition,)), (m,), context=XDP), machine, maps)
        loaded.run()
        loaded.close()
        assert kernel_lookup(maps.descriptor(m), bytes(4), 8) == struct.pack("<Q", value)
    maps.close()


@pytest.mark.parametrize(
    ("text", "base"),
    [
        (b"123", 0),
        (b" -42x", 10),
        (b"0x1fz", 0),
        (b"0x", 0),
        (b"017", 0),
        (b"09", 0),
        (b"zz", 10),
        (b"-", 0),
        (b"+5", 10),
        (b"9223372036854775807", 0),
        (b"9223372036854775808", 0),
        (b"-9223372036854775808", 0),
        (b"-9223372036854775809", 0),
        (b"0X1F", 16),
        (b"ffg", 16),
    ],
)
def test_parsing_numbers(text, base):
    for number in (105, 106):
        code = [st(DW, R10, -32 + 8 * k, 0) for k in range(4)]
        code += [st(0x10, R10, -32 + k, byte) for k, byte in enumerate(text)]
        code += [
            *stack_pointer(1, -32),
            mov64_imm(2, len(text)),
            mov64_imm(3, base),
            *stack_pointer(4, -8),
            call(number),
        ]
        code += [
            mov64(6, 0),
            ldx(DW, 7, R10, -8),
            alu64_imm(0x20, 6, 1000003),
            Instruction(0x0F, 6, 7),
            mov64(0, 6),
            exit_(),
        ]
        agree_where_allowed(code)


def agree_where_allowed(code):
    """strtol is for some program types only."""
    try:
        agree(XDP, *code)
    except InputError as refused:
        pytest.skip(f"not for XDP: {refused}")
