"""Liveness: claims on small programs, and the property that defines it: what is dead may change without effect."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowshunt import insn
from flowshunt.insn import ADD, AND, ARSH, DW, JEQ, JNE, JSET, LSH, MUL, OR, RSH, SUB, XOR, B, H, Instruction, W
from flowshunt_ebpf.program import Program, control_flow, liveness
from flowshunt_ebpf.program.live_set import describe, low, stack, upper, whole

MASK = (1 << 64) - 1


def live(*instructions: Instruction):
    return liveness(control_flow(Program.from_instructions(instructions)))


def test_a_32_bit_use_leaves_the_upper_half_dead():
    found = live(insn.alu64_imm(LSH, 1, 3), insn.mov32(0, 1), insn.exit_())
    assert found.live_out[0] == low(1)
    assert found.live_in[0] == low(1), "low bits of a left shift come from low bits"
    assert found.live_out[1] == whole(0)


def test_shifts_by_a_half_move_between_the_halves():
    found = live(insn.alu64_imm(LSH, 1, 32), insn.alu64_imm(RSH, 1, 32), insn.mov64(0, 1), insn.exit_())
    assert found.live_in[1] == upper(1)
    assert found.live_in[0] == low(1)


def test_and_with_a_positive_mask_needs_no_upper_half():
    found = live(insn.alu64_imm(AND, 0, 0xFF), insn.exit_())
    assert found.live_in[0] == low(0)
    found = live(insn.alu64_imm(AND, 0, -2), insn.exit_())
    assert found.live_in[0] == whole(0)


def test_a_swap_of_64_bits_crosses_the_halves():
    found = live(insn.bswap(1, 64), insn.mov32(0, 1), insn.exit_())
    assert found.live_in[0] == upper(1)


def test_stack_bytes_are_told_apart():
    found = live(
        insn.st(DW, 10, -8, 0),
        insn.st(B, 10, -7, 1),
        insn.ldx(H, 0, 10, -8),
        insn.exit_(),
    )
    assert found.live_out[0] == stack(-8, 1) | whole(10)
    assert found.live_out[1] == stack(-8, 2) | whole(10)
    assert found.live_in[0] == whole(10)


def test_a_pointer_into_the_frame_is_followed_through_arithmetic():
    found = live(
        insn.mov64(2, 10),
        insn.alu64_imm(ADD, 2, -24),
        insn.ldx(DW, 0, 2, 8),
        insn.exit_(),
    )
    assert found.live_in[0] & stack(-512, 512) == stack(-16, 8)


def test_a_pointer_that_is_lost_track_of_reads_the_whole_frame():
    found = live(insn.mov64(2, 10), insn.alu64(ADD, 2, 1), insn.ldx(DW, 0, 2, -8), insn.exit_())
    assert found.live_in[0] & stack(-512, 512) == stack(-512, 512)


def test_a_helper_reads_only_its_arguments_and_the_frame_above_its_pointer():
    found = live(insn.mov64(2, 10), insn.alu64_imm(ADD, 2, -4), insn.call(1), insn.exit_())  # map_lookup_elem
    assert found.live_in[2] & whole(3) == 0
    assert found.live_in[2] == whole(1) | whole(2) | stack(-4, 4)


def test_a_call_reads_what_the_callee_finds_live_and_the_callee_gives_what_the_callers_ask():
    found = live(
        insn.mov64_imm(2, 1),
        insn.call_local(2),
        insn.mov32(0, 0),
        insn.exit_(),
        insn.mov64(0, 1),
        insn.exit_(),
    )
    assert describe(found.live_in[1]) == "w1"
    assert describe(found.live_out[0]) == "w1", "r2 is no argument of the function"
    assert found.live_out[5] == low(0)


def test_registers_six_to_nine_live_through_a_call():
    found = live(
        insn.mov64(6, 1),
        insn.call_local(2),
        insn.mov64(0, 6),
        insn.exit_(),
        insn.mov64_imm(6, 0),
        insn.mov64_imm(0, 0),
        insn.exit_(),
    )
    assert found.live_in[1] == whole(6)
    assert found.live_out[4] == 0, "the callee's own r6 is not the caller's"


def test_an_instruction_that_is_not_ebpf_reads_everything():
    sidecar = Instruction(0xB7, dst=3, src=15, offset=-1, imm=5)
    found = live(insn.mov64_imm(7, 1), sidecar, insn.mov64_imm(0, 0), insn.exit_())
    assert found.live_out[0] & whole(7) == whole(7)
    assert found.live_out[0] & stack(-512, 512) == stack(-512, 512)


def test_a_loop_comes_to_rest():
    found = live(
        insn.mov64_imm(0, 0),
        insn.alu64(ADD, 0, 2),
        insn.alu64_imm(SUB, 1, 1),
        insn.jmp_imm(JNE, 1, 0, -3),
        insn.exit_(),
    )
    assert found.live_in[0] == whole(1) | whole(2)
    assert found.live_out[3] == whole(0) | whole(1) | whole(2)


# The property. A random program of two functions runs twice; in one of the runs everything that is dead is overwritten
# before every instruction. Both must end with the same result.

VALUES = (0, 1, MASK, 1 << 32, 0xFFFFFFFF, 1 << 63)
OPS = (ADD, SUB, MUL, AND, OR, XOR, LSH, RSH, ARSH, 0xB0)


def body(r: random.Random, length: int, call: int | None) -> list[Instruction]:
    out: list[Instruction] = []
    for at in range(length):
        dst, src = r.choice((0, 0, 1, 2, 6)), r.choice((0, 1, 2, 6))
        size, offset = r.choice((B, H, W, DW)), -r.choice((8, 8, 12, 15, 16, 17))
        room = length - at - 1
        kind = r.randrange(14)
        if kind < 3:
            out.append(r.choice((insn.alu64, insn.alu32))(r.choice(OPS), dst, src))
        elif kind < 6:
            immediate = r.choice((0, 1, -1, 31, 32, 33, 63, 0xFF, r.randrange(-(1 << 31), 1 << 31)))
            out.append(r.choice((insn.alu64_imm, insn.alu32_imm))(r.choice(OPS), dst, immediate))
        elif kind == 6:
            out.append(r.choice((insn.bswap, insn.to_be, insn.to_le))(dst, r.choice((16, 32, 64))))
        elif kind == 7:
            out.append(insn.movsx64(dst, src, r.choice((8, 16, 32))))
        elif kind == 8:
            out.append(insn.ldx(size, dst, 10, offset))
        elif kind == 9:
            out.append(insn.stx(size, 10, src, offset))
        elif kind == 10:
            out.append(insn.atomic(r.choice((W, DW)), r.choice((ADD, ADD | 1, 0xE1, 0xF1)), 10, src, offset))
        elif kind == 11:
            out.append(
                r.choice((insn.jmp, insn.jmp32))(r.choice((JEQ, 0x20, 0xC0, JSET)), dst, src, r.randint(0, room))
            )
        elif kind == 12:
            out.append(insn.jmp_imm(r.choice((JEQ, JSET)), dst, r.choice((0, 1, -1, 1 << 20)), r.randint(0, room)))
        elif call is not None and room:
            out.append(insn.call_local(call - (at + 1)))
        else:
            out.append(insn.neg64(dst))
    return [*out, insn.exit_()]


def program(r: random.Random) -> Program:
    length = r.randrange(1, 25)
    return Program.from_instructions(body(r, length, length + 1) + body(r, r.randrange(1, 12), None))


def sign(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def arithmetic(i: Instruction, dst: int, src: int) -> int:
    bits = 64 if i.cls == insn.ALU64 else 32
    mask = (1 << bits) - 1
    other = src if i.source else i.imm
    if i.op == insn.END:
        width = (1 << i.imm) - 1
        swap = bits == 64 or i.source
        value = dst & width
        return int.from_bytes(value.to_bytes(i.imm // 8, "little"), "big") if swap else value
    if i.op == insn.MOV:
        return sign(src, i.offset) & mask if i.offset else other & mask
    by = other & (bits - 1)
    return {
        ADD: lambda: dst + other,
        SUB: lambda: dst - other,
        MUL: lambda: dst * other,
        AND: lambda: dst & other,
        OR: lambda: dst | other,
        XOR: lambda: dst ^ other,
        LSH: lambda: dst << by,
        RSH: lambda: (dst & mask) >> by,
        ARSH: lambda: sign(dst, bits) >> by,
        insn.NEG: lambda: -dst,
    }[i.op]() & mask


def taken(i: Instruction, dst: int, src: int) -> bool:
    bits = 64 if i.cls == insn.JMP else 32
    mask = (1 << bits) - 1
    one, other = dst & mask, (src if i.source else i.imm) & mask
    return {
        JEQ: one == other,
        0x20: one > other,
        0xC0: sign(one, bits) < sign(other, bits),
        JSET: one & other != 0,
    }[i.op]


class Machine:
    """Runs a program; `disturb` is called before every step with the index, registers and frame."""

    def __init__(self, program: Program, disturb) -> None:
        self.program, self.disturb, self.step = program, disturb, 0

    def run(self, start: int, registers: list[int], frame: bytearray) -> int:
        at = start
        while True:
            self.disturb(at, registers, frame)
            self.step += 1
            i = self.program.instructions[at]
            at += 1
            dst, src = registers[i.dst], registers[i.src]
            place = i.offset + 512
            if i.opcode == insn.EXIT_K:
                return registers[0]
            if i.cls in (insn.ALU, insn.ALU64):
                registers[i.dst] = arithmetic(i, dst, src)
            elif i.opcode == insn.CALL_K:
                lost = random.Random(self.step)
                inner = [lost.getrandbits(64), *registers[1:6], *(lost.getrandbits(64) for _ in range(4)), 0]
                result = self.run(at + i.imm, inner, bytearray(lost.randbytes(512)))
                registers[0:6] = [result, *(lost.getrandbits(64) for _ in range(5))]
            elif i.cls in (insn.JMP, insn.JMP32):
                at += i.offset if taken(i, dst, src) else 0
            elif i.cls == insn.LDX:
                registers[i.dst] = int.from_bytes(frame[place : place + i.size_bytes], "little")
            else:
                self.store(i, registers, frame, place)

    @staticmethod
    def store(i: Instruction, registers: list[int], frame: bytearray, place: int) -> None:
        width = i.size_bytes
        old, value = int.from_bytes(frame[place : place + width], "little"), registers[i.src]
        if i.mode == insn.ATOMIC:
            if i.imm == 0xF1:
                equal = old == registers[0] & ((1 << 8 * width) - 1)
                registers[0] = old
                value = value if equal else old
            else:
                if i.imm & 1:
                    registers[i.src] = old
                value = value if i.imm == 0xE1 else old + value
        frame[place : place + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def test_what_is_dead_may_change():
    outcomes = []

    @settings(max_examples=1200, deadline=None, database=None)
    @given(st.integers(0, 1 << 62))
    def property(seed: int) -> None:
        r = random.Random(seed)
        subject = program(r)
        found = liveness(control_flow(subject))
        start = [r.choice(VALUES) ^ r.choice((0, 0, r.getrandbits(64))) for _ in range(10)] + [0]
        frame = r.choice((bytes(512), r.randbytes(512)))

        def leave(at, registers, memory):
            pass

        def overwrite(at, registers, memory):
            alive = found.live_in[at]
            for register in range(10):
                keep = 0xFFFFFFFF if alive & low(register) else 0
                keep |= 0xFFFFFFFF << 32 if alive & upper(register) else 0
                registers[register] = registers[register] & keep | r.getrandbits(64) & ~keep & MASK
            for offset in range(-40, 0):
                if not alive & stack(offset, 1):
                    memory[offset + 512] = r.getrandbits(8)

        straight = Machine(subject, leave).run(0, start[:], bytearray(frame))
        assert straight == Machine(subject, overwrite).run(0, start[:], bytearray(frame))
        outcomes.append(straight)

    property()
    assert len(set(outcomes)) > 50, "the programs must compute something"


@pytest.mark.parametrize(
    ("set_", "words"),
    [(whole(0) | low(3) | upper(4), "r0 w3 u4"), (stack(-16, 8) | stack(-1, 1), "fp-16..-9 fp-1"), (0, "")],
)
def test_sets_read_well(set_, words):
    assert describe(set_) == words
