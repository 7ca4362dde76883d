"""Programs made to keep the verifier busy end in a rejection that says which limit was reached."""

import random
import re

import pytest

from flowshunt.insn import decode
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.program import Program, ProgramType
from flowshunt_ebpf.verifier import Limits, verify

FEW = Limits(instructions=20_000, seconds=20)


def explosion(count):
    """Each bit of r6 is decided by a comparison of its own; r7 has the same ones, and their difference is an offset."""
    lines = [".type xdp", "r6 = 0", "r7 = 0"]
    for n in range(count):
        lines += ["call bpf_get_prandom_u32", f"if r0 > {n} goto l{n}", f"r6 |= {1 << n}", f"r7 |= {1 << n}", f"l{n}:"]
    lines += ["r6 -= r7", "r1 = r10", "r1 += -8", "r1 += r6", "r0 = *(u8 *)(r1 + 0)", "r0 = 0", "exit"]
    return "\n".join(lines)


HOSTILE = {
    "paths that double": (explosion(24), FEW),
    "a long loop": (".type xdp\nr1 = 0\nnext:\nr1 += 1\nif r1 < 100000000 goto next\nr0 = 0\nexit", FEW),
    "nested loops": (
        ".type xdp\nr1 = 0\nouter:\nr2 = 0\ninner:\nr2 += 1\nif r2 < 5000 goto inner\n"
        "r1 += 1\nif r1 < 5000 goto outer\nr0 = 0\nexit",
        FEW,
    ),
    "no time": (".type xdp\nr1 = 0\nnext:\nr1 += 1\nif r1 < 100000 goto next\nr0 = 0\nexit", Limits(seconds=0.05)),
    "branches that wait": (
        ".type xdp\nr1 = 0\nnext:\ncall bpf_get_prandom_u32\nif r0 == 7 goto out\nr6 += 1\nif r6 < 90000 goto next\n"
        "out:\nr0 = 0\nexit".replace("r1 = 0", "r6 = 0"),
        Limits(branches=100, seconds=20),
    ),
    "states that are kept": (
        ".type xdp\nr1 = 0\nnext:\nr1 += 1\nif r1 < 100000 goto next\nr0 = 0\nexit",
        Limits(kept_states=500, seconds=20),
    ),
    "too many instructions": (".type xdp\n" + "r0 = 0\n" * 50 + "exit", Limits(size=50)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_limit_ends_it(name):
    text, limits = HOSTILE[name]
    verdict = verify(assemble(text), limits=limits)
    assert not verdict.accepted
    assert verdict.rejection.limit
    assert re.search(r"were looked at|have passed|wait to be|were kept|are allowed", verdict.reason)
    assert verdict.effort.instructions <= 4 * (limits.instructions + 1)


def chain(depth):
    """Functions that call each other, `depth` deep, the program included."""
    parts = [".type xdp\ncall f1\nr0 = 0\nexit" if depth > 1 else ".type xdp\nr0 = 0\nexit"]
    for n in range(1, depth):
        call = f"call f{n + 1}\n" if n + 1 < depth else ""
        parts.append(f".function f{n}\n{call}r0 = 0\nexit")
    return assemble("\n".join(parts))


def test_eight_functions_may_be_nested():
    assert verify(chain(8)).accepted
    assert verify(chain(9)).rejection.rule == "call-depth"


def test_a_function_may_not_call_itself():
    program = assemble(".type xdp\ncall f\nr0 = 0\nexit\n.function f\ncall f\nr0 = 0\nexit")
    assert verify(program).rejection.rule == "call-depth"


ENDLESS = {
    "a jump to itself": "r0 = 0\nl:\nif r0 == 0 goto l\nexit",
    "a loop on what never changes": "call bpf_get_prandom_u32\nl:\nif r0 > 5 goto l\nexit",
    "a loop of two turns": "r6 = 0\nl:\nr6 ^= 1\nif r6 < 5 goto l\nr0 = 0\nexit",
    "round a helper that calls back": (
        "l:\nr1 = 3\nr2 = code_addr(each)\nr3 = 0\nr4 = 0\ncall bpf_loop\ngoto l\n.function each\nr0 = 0\nexit"
    ),
    "a counter that a callback sets back": (
        "*(u64 *)(r10 - 8) = 0\nl:\nr1 = 3\nr2 = code_addr(each)\nr3 = r10\nr3 += -8\nr4 = 0\ncall bpf_loop\n"
        "r1 = *(u64 *)(r10 - 8)\nr1 += 1\n*(u64 *)(r10 - 8) = r1\nif r1 < 5 goto l\nr0 = 0\nexit\n"
        ".function each\n*(u64 *)(r2 + 0) = 0\nr0 = 0\nexit"
    ),
    "a function that counts anew with each call": (
        "l:\ncall f\ngoto l\n.function f\nm:\nmay_goto done\ngoto m\ndone:\nr0 = 0\nexit"
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_loop_is_found(name):
    assert verify(assemble(f".type xdp\n{ENDLESS[name]}")).rejection.rule == "infinite-loop"


ENDING = {
    "a counted loop": "r6 = 0\nl:\nr6 += 1\nif r6 < 1000 goto l\nr0 = 0\nexit",
    "may_goto": "l:\nmay_goto done\ngoto l\ndone:\nr0 = 0\nexit",
    "a callback in a counted loop": (
        "r6 = 0\nl:\nr1 = 3\nr2 = code_addr(each)\nr3 = 0\nr4 = 0\ncall bpf_loop\nr6 += 1\nif r6 < 5 goto l\nr0 = 0\n"
        "exit\n.function each\nr0 = 0\nexit"
    ),
    "a callback in a callback": (
        "r1 = 10\nr2 = code_addr(outer)\nr3 = 0\nr4 = 0\ncall bpf_loop\nr0 = 0\nexit\n"
        ".function outer\nr1 = 10\nr2 = code_addr(inner)\nr3 = 0\nr4 = 0\ncall bpf_loop\nr0 = 0\nexit\n"
        ".function inner\nr0 = 0\nexit"
    ),
}


@pytest.mark.parametrize("name", ENDING)
def test_a_loop_that_ends_is_accepted(name):
    verdict = verify(assemble(f".type xdp\n{ENDING[name]}"))
    assert verdict.accepted, verdict.reason


def test_random_bytes_get_a_verdict():
    rng = random.Random(4)
    codes = (0x07, 0x0F, 0xB7, 0xBF, 0x61, 0x79, 0x63, 0x7B, 0x72, 0x15, 0x2D, 0x05, 0x85, 0x95, 0x18, 0xDB, 0xE5, 0x16)
    for _ in range(400):
        size = rng.randrange(1, 24)
        raw = bytearray(rng.randbytes(8 * size))
        for at in range(0, len(raw), 8):
            if rng.random() < 0.9:
                raw[at] = rng.choice(codes)
                raw[at + 1] = rng.randrange(11) | rng.randrange(11) << 4 if rng.random() < 0.6 else rng.randrange(11)
                raw[at + 2 : at + 4] = rng.randrange(-20, 20).to_bytes(2, "little", signed=True)
                raw[at + 4 : at + 8] = rng.choice((0, 1, 6, 12, 44, 181)).to_bytes(4, "little")
        raw += bytes.fromhex("9500000000000000")
        try:
            instructions = decode(bytes(raw))
        except Exception as error:
            assert type(error).__name__ == "InputError"
            continue
        for kind in (ProgramType.XDP, ProgramType.SCHED_CLS, ProgramType.UNSPEC):
            verdict = verify(Program(instructions, type=kind), limits=FEW)
            assert verdict.accepted == (verdict.rejection is None)


def test_what_only_each_path_by_itself_shows_is_accepted():
    assert verify(assemble(explosion(8))).accepted
