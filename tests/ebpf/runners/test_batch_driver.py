"""The batch driver: frames in columns, results in columns, the same as one run after another."""

import struct

import numpy as np
import pytest

from flowshunt.errors import InputError
from flowshunt.insn import (
    ADD,
    DW,
    JEQ,
    JGT,
    JMP,
    LD_IMM64,
    PSEUDO_MAP_IDX,
    PSEUDO_MAP_IDX_VALUE,
    R0,
    R1,
    R6,
    R10,
    B,
    Instruction,
    W,
    X,
    alu64_imm,
    call,
    exit_,
    ja,
    jmp_imm,
    ldx,
    mov64,
    mov64_imm,
    st,
    stx,
)
from flowshunt_ebpf.contexts.layout import MEMORY, TC, XDP
from flowshunt_ebpf.maps.create import create_all
from flowshunt_ebpf.native.batch import BatchDriver, Record
from flowshunt_ebpf.native.fault import FaultKind
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import MapDefinition, MapType, Program
from flowshunt_ebpf.testing.checked_code import host_checked, vouched

FRAMES = [bytes([n]) * (14 + 5 * n) for n in range(40)]
DATA = np.frombuffer(b"".join(FRAMES), np.uint8)
LENGTH = np.array([len(f) for f in FRAMES], np.uint32)
OFFSET = np.concatenate([[0], np.cumsum(LENGTH)[:-1]]).astype(np.int64)


def loaded(*instructions, maps=(), context=XDP, verified=False, writes=True):
    held = create_all(maps)
    machine = Machine(context, held)
    image = prepare(Program(tuple(instructions), maps=tuple(maps)), held, context=context)
    if not verified:
        return host_checked(image, machine)
    return host(image, machine, vouched(image, writes_packet=writes))


FIRST_BYTE_AND_LENGTH = (
    ldx(W, 2, R1, 0),
    ldx(W, 3, R1, 4),
    mov64(4, 2),
    alu64_imm(ADD, 4, 1),
    mov64_imm(0, 0),
    Instruction(JMP | JGT | X, 4, 3, 4),
    ldx(B, 0, 2, 0),
    alu64_imm(0x60, 0, 16),
    Instruction(0x1F, 3, 2),
    Instruction(0x0F, 0, 3),
    exit_(),
)


@pytest.mark.parametrize("verified", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_every_frame_is_seen_whole(verified, in_place):
    driver = BatchDriver(loaded(*FIRST_BYTE_AND_LENGTH, verified=verified, writes=False), in_place=in_place)
    outcome = driver.run_columns(DATA, OFFSET, LENGTH)
    assert outcome.value.tolist() == [(n << 16) + len(f) for n, f in enumerate(FRAMES)]
    assert outcome.length.tolist() == LENGTH.tolist()
    assert not outcome.fault.any()


def test_changed_packets_are_given_back():
    code = (
        mov64(R6, R1),
        mov64_imm(2, -4),
        call(44),
        ldx(W, 2, R6, 0),
        ldx(W, 3, R6, 4),
        mov64(4, 2),
        alu64_imm(ADD, 4, 4),
        Instruction(JMP | JGT | X, 4, 3, 1),
        st(W, 2, 0, 0x04030201),
        mov64_imm(0, 2),
        exit_(),
    )
    outcome = BatchDriver(loaded(*code), keep_packets=True).run_columns(DATA, OFFSET, LENGTH)
    assert (outcome.start == -4).all()
    for row, frame in enumerate(FRAMES):
        at = int(outcome.packet_offset[row])
        assert outcome.packets[at : at + int(outcome.length[row])].tobytes() == b"\x01\x02\x03\x04" + frame
    assert DATA.tobytes() == b"".join(FRAMES)


def test_a_record_is_kept_for_each_frame():
    record = MapDefinition("record", MapType.ARRAY, 4, 16, 1)
    code = (
        ldx(W, 2, R1, 0),
        ldx(W, 3, R1, 4),
        Instruction(0x1F, 3, 2),
        Instruction(LD_IMM64, 4, PSEUDO_MAP_IDX_VALUE, 0, 0),
        stx(W, 4, 3, 8),
        ldx(W, 5, R1, 12),
        stx(W, 4, 5, 12),
        mov64_imm(0, 0),
        exit_(),
    )
    program = loaded(*code, maps=(record,))
    driver = BatchDriver(program, record=Record(program.machine.maps[0], 8, 8))
    outcome = driver.run_columns(DATA, OFFSET, LENGTH, np.arange(40, dtype=np.uint16))
    found = outcome.record.copy().view("<u4")
    assert found[:, 0].tolist() == LENGTH.tolist()
    assert found[:, 1].tolist() == list(range(40))


def test_a_frame_that_faults_stops_only_its_own_run():
    code = (ldx(W, 2, R1, 0), ldx(DW, 0, 2, 92), mov64_imm(0, 1), exit_())
    outcome = BatchDriver(loaded(*code)).run_columns(DATA, OFFSET, LENGTH)
    short = LENGTH < 100
    assert ((outcome.fault == FaultKind.ACCESS) == short).all()
    assert ((outcome.value == 1) == ~short).all()


def test_a_program_without_end_is_stopped_at_each_frame():
    outcome = BatchDriver(loaded(mov64_imm(0, 0), ja(-1), exit_()), budget=1000).run_columns(
        DATA, OFFSET[:3], LENGTH[:3]
    )
    assert outcome.fault.tolist() == [FaultKind.BUDGET] * 3


def test_in_place_is_for_readers_only():
    write = (ldx(W, 2, R1, 0), st(B, 2, 0, 1), mov64_imm(0, 0), exit_())
    copy = DATA.copy()
    outcome = BatchDriver(loaded(*write), in_place=True).run_columns(copy, OFFSET, LENGTH)
    assert (outcome.fault == FaultKind.ACCESS).all()
    assert (copy == DATA).all()
    with pytest.raises(InputError, match="nothing says"):
        BatchDriver(loaded(*write, verified=True), in_place=True)
    with pytest.raises(InputError, match="helper 190"):
        code = (mov64(3, R10), alu64_imm(ADD, 3, -8), mov64_imm(2, 0), mov64_imm(4, 4), call(190), exit_())
        BatchDriver(loaded(*code), in_place=True)


def test_records_of_a_ring_reach_their_callback_in_batches():
    ring = MapDefinition("ring", MapType.RINGBUF, 0, 0, 4096)
    code = (
        ldx(W, 2, R1, 12),
        stx(DW, R10, 2, -8),
        mov64(2, R10),
        alu64_imm(ADD, 2, -8),
        mov64_imm(3, 8),
        mov64_imm(4, 0),
        Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 0),
        call(130),
        exit_(),
    )
    program = loaded(*code, maps=(ring,))
    batches = []
    program.machine.maps[0].on_records = batches.append
    count = 5000
    driver = BatchDriver(program)
    outcome = driver.run_columns(
        DATA, np.zeros(count, np.int64), np.full(count, 64, np.uint32), np.arange(count, dtype=np.uint32)
    )
    assert (outcome.value == 0).all()
    assert [struct.unpack("<Q", r)[0] for batch in batches for r in batch] == list(range(count))
    assert 1 < len(batches) < 100


def test_redirects_are_told():
    outcome = BatchDriver(loaded(ldx(W, 1, R1, 12), mov64_imm(2, 0), call(23), exit_())).run_columns(
        DATA, OFFSET, LENGTH, np.arange(40, dtype=np.uint32) % 3
    )
    assert (outcome.value == 4).all()
    assert outcome.redirect.tolist() == [n % 3 for n in range(40)]


def test_a_socket_buffer_has_its_length_and_protocol():
    frames = b"".join(bytes(12) + struct.pack(">H", 0x800 + n) + bytes(n) for n in range(4))
    offset = np.array([0, 14, 29, 45], np.int64)
    length = np.array([14, 15, 16, 17], np.uint32)
    code = (ldx(W, 2, R1, 16), alu64_imm(0x60, 2, 8), ldx(W, 0, R1, 0), Instruction(0x0F, 0, 2), exit_())
    outcome = BatchDriver(loaded(*code, context=TC)).run_columns(np.frombuffer(frames, np.uint8), offset, length)
    swapped = [struct.unpack("<H", struct.pack(">H", 0x800 + n))[0] for n in range(4)]
    assert outcome.value.tolist() == [14 + n + (swapped[n] << 8) for n in range(4)]


@pytest.mark.parametrize(
    ("offset", "length", "message"),
    [
        (-1, 10, "frame 0"),
        (len(DATA) - 5, 6, "frame 0"),
        (0, 0xFFFFFFFF, "frame 0"),
        (1 << 62, 1, "frame 0"),
        (0, 3521, "frame 0"),
    ],
)
def test_frames_outside_the_buffer_are_refused(offset, length, message):
    driver = BatchDriver(loaded(mov64_imm(0, 0), exit_()))
    data = np.zeros(4000, np.uint8) if length == 3521 else DATA
    with pytest.raises(InputError, match=message):
        driver.run_columns(data, np.array([offset]), np.array([length], np.uint32))


def test_what_cannot_be_driven_is_refused():
    with pytest.raises(InputError, match="bare memory"):
        BatchDriver(loaded(mov64_imm(0, 0), exit_(), context=MEMORY))
    program = loaded(mov64_imm(0, 0), exit_(), maps=(MapDefinition("m", MapType.HASH, 4, 8, 2),))
    with pytest.raises(InputError, match="record"):
        BatchDriver(program, record=Record(program.machine.maps[0], 0, 8))
    driver = BatchDriver(loaded(mov64_imm(0, 0), exit_()))
    with pytest.raises(InputError, match="equal length"):
        driver.run_columns(DATA, OFFSET, LENGTH[:-1])
    with pytest.raises(InputError, match="contiguous"):
        driver.run_columns(DATA[::2], OFFSET[:1], LENGTH[:1])
    assert len(driver.run_columns(DATA, OFFSET[:0], LENGTH[:0]).value) == 0


def test_maps_keep_their_contents_from_frame_to_frame():
    counter = MapDefinition("counter", MapType.ARRAY, 4, 8, 1)
    code = (
        st(W, R10, -4, 0),
        mov64(2, R10),
        alu64_imm(ADD, 2, -4),
        Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 0),
        call(1),
        jmp_imm(JEQ, R0, 0, 4),
        mov64_imm(1, 1),
        Instruction(0xDB, 0, 1, 0, 0),
        ldx(DW, 0, 0, 0),
        exit_(),
        mov64_imm(0, 0),
        exit_(),
    )
    outcome = BatchDriver(loaded(*code, maps=(counter,))).run_columns(DATA, OFFSET, LENGTH)
    assert outcome.value.tolist() == list(range(1, 41))
