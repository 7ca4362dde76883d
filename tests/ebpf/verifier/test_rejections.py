"""What a rejection says: the place, what is known, what is needed, what to do, and the way there."""

import attrs
import pytest

from flowshunt.insn import ja
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.elf import load_object
from flowshunt_ebpf.program import Program, ProgramType
from flowshunt_ebpf.verifier import verify

PACKET = ".type xdp\nr2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr4 = r2\nr4 += 14\nr0 = 0\nif r4 > r3 goto out\n"
COUNTS = (
    ".type xdp\n.map counts array key=4 value=16 entries=4\ncall bpf_get_prandom_u32\n*(u32 *)(r10 - 4) = r0\n"
    "r2 = r10\nr2 += -4\n"
)

WORDS = {
    "too few packet bytes": (
        PACKET + "r5 = *(u32 *)(r2 + 14)\nout:\nexit",
        "packet-bounds",
        "r2 is a packet pointer with 14 bytes proved; the load needs bytes 14 to 17; compare r2+18 with data_end first",
    ),
    "a pointer that may be null": (
        COUNTS + "r1 = map[counts]\ncall bpf_map_lookup_elem\nr0 = *(u64 *)(r0 + 0)\nexit",
        "null",
        "r0 is a pointer to a map value of counts that may be null; the load needs a pointer that is not null; "
        "compare r0 with 0 first, and go on only where it is not equal",
    ),
    "a variable offset": (
        COUNTS + "r1 = map[counts]\ncall bpf_map_lookup_elem\nif r0 == 0 goto out\nr1 = *(u8 *)(r0 + 0)\nr0 += r1\n"
        "r0 = *(u64 *)(r0 + 0)\nout:\nr0 = 0\nexit",
        "bounds",
        "r0 is a pointer to a map value of counts at offset 0..255, which has 16 bytes; the load needs bytes 0 to 262; "
        "compare the offset with the size first, or mask it",
    ),
    "a register that was never set": (
        ".type xdp\nr0 = r7\nexit",
        "uninitialised",
        "r7 is not initialised; r7 is read; set it first",
    ),
    "a number as a pointer": (
        ".type xdp\nr2 = 4096\nr0 = *(u64 *)(r2 + 0)\nexit",
        "not-a-pointer",
        "r2 is the number 4096; the load needs a pointer to memory; use a pointer that was not changed on the way",
    ),
    "the stack's end": (
        ".type xdp\n*(u64 *)(r10 - 520) = 1\nr0 = 0\nexit",
        "stack-bounds",
        "r10 is a pointer into the stack of frame 0; a frame has bytes -512 to -1; the store needs bytes -520 to -513 "
        "of the frame, from r10; keep a smaller frame",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_a_rejection_in_words(name):
    text, rule, words = WORDS[name]
    verdict = verify(assemble(text))
    assert not verdict.accepted
    assert verdict.rejection.rule == rule
    assert verdict.rejection.reason == words


def test_a_rejection_tells_the_way_there():
    program = assemble(
        ".type xdp\nr6 = r1\ncall bpf_get_prandom_u32\nif r0 == 1 goto next\nr0 = 0\nexit\n"
        "next:\ncall f\nr0 = 0\nexit\n"
        ".function f\ncall bpf_get_prandom_u32\nif r0 == 2 goto bad\nr0 = 0\nexit\nbad:\nr0 = *(u64 *)(r0 + 0)\nexit"
    )
    rejection = verify(program).rejection
    assert rejection.index == 12
    assert [(step.index, step.taken) for step in rejection.path] == [(2, True), (9, True)]
    assert rejection.calls == (5,)
    told = rejection.describe(program)
    assert "instruction 12" in told
    assert "instruction 9, taken" in told
    assert "in calls at instructions 5" in told


def test_a_rejection_names_the_source_line(pytestconfig):
    objects = pytestconfig.rootpath / "tests" / "ebpf" / "objects"
    program = load_object(objects / "load_balancer.o").program("encapsulate")
    code = list(program.instructions)
    comparison = next(n for n, i in enumerate(code) if i.opcode == 0x2D)
    code[comparison] = ja(0)
    rejection = verify(attrs.evolve(program, instructions=tuple(code))).rejection
    assert "load_balancer.bpf.c:" in rejection.place


@pytest.mark.parametrize(
    ("code", "index", "rule"),
    [
        (b"", -1, "structure"),
        (bytes.fromhex("b700000000000000"), 0, "structure"),
        (bytes.fromhex("0500050000000000 9500000000000000"), 0, "jump"),
        (bytes.fromhex("0500010000000000 1800000000000000 0000000000000000 9500000000000000"), 0, "jump"),
        (bytes.fromhex("ff00000000000000 9500000000000000"), 0, "instruction"),
        (bytes.fromhex("b70a000000000000 9500000000000000"), 0, "instruction"),
        (bytes.fromhex("b700000000000000 9500000000000000 b700000000000000 9500000000000000"), 2, "unreachable"),
    ],
)
def test_programs_of_wrong_form(code, index, rule):
    rejection = verify(Program.from_bytes(code, type=ProgramType.XDP)).rejection
    assert (rejection.index, rejection.rule) == (index, rule)
