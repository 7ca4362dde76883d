"""What the verifier knows after some code: each case is a precondition, code, and what registers hold at its end."""

import pytest

from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.verifier import verify

ANY = "call bpf_get_prandom_u32\n"
PACKET = "r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr4 = r2\nr4 += 14\nr0 = 0\nif r4 > r3 goto out\n"
STACK_VALUE = f"{ANY}r0 &= 63\n*(u64 *)(r10 - 8) = r0\n"

CASES = {
    "a constant is known": ("", "r1 = 7\nr1 *= 6", {1: (42, 42)}),
    "a byte is a byte": (PACKET, "r5 = *(u8 *)(r2 + 13)", {5: (0, 255)}),
    "sign extension is known": (PACKET, "r5 = *(s8 *)(r2 + 13)\nr5 += 128", {5: (0, 255)}),
    "a mask bounds": (ANY, "r0 &= 15\nr0 += 1", {0: (1, 16)}),
    "32-bit arithmetic clears the upper half": (ANY, "r0 <<= 40\nw0 += 0", {0: (0, 0)}),
    "a comparison bounds": (ANY, "if r0 > 9 goto out", {0: (0, 9)}),
    "a signed comparison bounds": (ANY, "if r0 s> 9 goto out\nif r0 s< 3 goto out", {0: (3, 9)}),
    "a 32-bit comparison bounds": (ANY, "if w0 >= 10 goto out\nw0 = w0", {0: (0, 9)}),
    "equality makes known": (ANY, "if r0 != 77 goto out", {0: (77, 77)}),
    "a copy learns what its origin learns": (ANY, "r6 = r0\nif r0 > 9 goto out", {6: (0, 9)}),
    "an origin learns what its copy learns": (ANY, "r6 = r0\nif r6 > 9 goto out", {0: (0, 9)}),
    "a spilled value learns what the register learns": (
        f"{ANY}*(u64 *)(r10 - 8) = r0\n",
        "if r0 > 9 goto out\nr6 = *(u64 *)(r10 - 8)",
        {6: (0, 9)},
    ),
    "the register learns what the spilled value learns": (
        f"{ANY}*(u64 *)(r10 - 8) = r0\n",
        "r6 = *(u64 *)(r10 - 8)\nif r6 > 9 goto out",
        {0: (0, 9)},
    ),
    "a spilled number comes back": (STACK_VALUE, "r6 = *(u64 *)(r10 - 8)", {6: (0, 63)}),
    "the low bytes of a spilled number come back": (STACK_VALUE, "r6 = *(u8 *)(r10 - 8)", {6: (0, 63)}),
    "the high bytes of a spilled number come back": (STACK_VALUE, "r6 = *(u32 *)(r10 - 4)", {6: (0, 0)}),
    "zeros written apart are read together": (
        "",
        "*(u32 *)(r10 - 8) = 0\n*(u16 *)(r10 - 4) = 1\n*(u16 *)(r10 - 2) = 0\nr6 = *(u64 *)(r10 - 8)",
        {6: (1 << 32, 1 << 32)},
    ),
    "what a byte does not touch stays known": (
        f"{ANY}*(u64 *)(r10 - 8) = 0\n",
        "*(u8 *)(r10 - 8) = r0\nr6 = *(u32 *)(r10 - 4)",
        {6: (0, 0)},
    ),
    "a variable store to the stack forgets what it may touch": (
        f"{ANY}r0 &= 7\n*(u64 *)(r10 - 8) = 0\n*(u64 *)(r10 - 16) = 5\n",
        "r7 = r10\nr7 += -8\nr7 += r0\n*(u8 *)(r7 + 0) = 1\nr6 = *(u64 *)(r10 - 16)\nr8 = *(u32 *)(r10 - 8)",
        {6: (5, 5), 8: (0, (1 << 32) - 1)},
    ),
    "a helper that writes to the stack is believed": (
        "r6 = r1\n*(u64 *)(r10 - 8) = 3\n*(u64 *)(r10 - 16) = 4\n",
        "r1 = r6\nr2 = 0\nr3 = r10\nr3 += -8\nr4 = 8\ncall bpf_xdp_load_bytes\n"
        "r7 = *(u16 *)(r10 - 8)\nr8 = *(u64 *)(r10 - 16)",
        {7: (0, 0xFFFF), 8: (4, 4)},
    ),
    "an atomic operation gives back what was there": (
        "*(u64 *)(r10 - 8) = 3\n",
        "r6 = 1\nr6 = atomic_fetch_add((u64 *)(r10 - 8), r6)\nr7 = *(u32 *)(r10 - 8)",
        {6: (3, 3), 7: (0, (1 << 32) - 1)},
    ),
    "a loop's counter has its last value": ("", "r6 = 0\nnext:\nr6 += 1\nif r6 < 100 goto next", {6: (100, 100)}),
    "a function's result is known": ("", "call f\nr6 = r0", {6: (0, 7)}),
    "kept registers stay over a call": ("r6 = 5\n", "call f\nr7 = r6", {7: (5, 5)}),
    "a callback's writes are seen": (
        "*(u64 *)(r10 - 8) = 0\n*(u64 *)(r10 - 16) = 9\n",
        "r1 = 4\nr2 = code_addr(count)\nr3 = r10\nr3 += -8\nr4 = 0\ncall bpf_loop\nr7 = *(u64 *)(r10 - 16)",
        {7: (9, 9)},
    ),
}
FUNCTIONS = {
    "call f": ".function f\ncall bpf_get_prandom_u32\nr0 &= 7\nexit\n",
    "code_addr(count)": ".function count\nr1 = *(u64 *)(r2 + 0)\nr1 += 1\n*(u64 *)(r2 + 0) = r1\nr0 = 0\nexit\n",
}


@pytest.mark.parametrize("name", CASES)
def test_postcondition(name):
    before, code, expected = CASES[name]
    # What is asked for is used afterwards, and reaches an address: elsewhere the verifier keeps no numbers.
    uses = "".join(f"r9 ^= r{register}\n" for register in expected)
    uses += "r9 &= 7\nr5 = r10\nr5 += -8\nr5 += r9\nr5 = *(u8 *)(r5 + 0)\n"
    functions = "".join(text for word, text in FUNCTIONS.items() if word in code)
    program = assemble(f".type xdp\nr9 = 0\n{before}{code}\n{uses}out:\nr0 = 0\nexit\n{functions}")
    verdict = verify(program)
    assert verdict.accepted, verdict.reason
    use = (0xAF, 9, next(iter(expected)))
    end = next(n for n, i in enumerate(program.instructions) if (i.opcode, i.dst, i.src) == use)
    for register, (low, high) in expected.items():
        held = verdict.facts.bounds[end][register]
        assert (held.umin, held.umax) == (low, high), (register, str(held))


def test_what_no_run_reaches_is_told():
    program = assemble(".type xdp\nr6 = 1\nif r6 == 1 goto out\nr6 = 2\nout:\nr0 = 0\nexit")
    assert verify(program).facts.dead == {2}


def test_stack_use_is_told_by_function():
    program = assemble(
        ".type xdp\n*(u64 *)(r10 - 24) = 0\ncall f\nr0 = 0\nexit\n.function f\n*(u8 *)(r10 - 3) = 1\nr0 = 0\nexit"
    )
    facts = verify(program).facts
    assert facts.stack == (24, 3)
    assert facts.frames == 2


@pytest.mark.parametrize(
    ("code", "writes"),
    [
        ("r5 = *(u8 *)(r2 + 0)\n", False),
        ("*(u8 *)(r2 + 0) = 1\n", True),
        ("r2 = 4\ncall bpf_xdp_adjust_head\n", True),
        ("r2 = 0\nr3 = r10\nr3 += -8\nr4 = 8\ncall bpf_xdp_store_bytes\n", True),
    ],
)
def test_whether_the_packet_is_written_is_told(code, writes):
    verdict = verify(assemble(f".type xdp\n{PACKET}{code}r0 = 0\nout:\nexit"))
    assert verdict.accepted, verdict.reason
    assert verdict.writes_packet == verdict.facts.writes_packet == writes


def test_accesses_to_the_context_are_told():
    program = assemble(f".type xdp\n{PACKET}r5 = *(u8 *)(r2 + 0)\nr0 = 0\nout:\nexit")
    assert verify(program).facts.context_accesses == {0, 1}
