"""With the real provers: right sites are made, wrong operations and recognizers change nothing."""

import attrs
import pytest

from flowshunt.insn import RSH, alu64_imm
from flowshunt.operation import NativeEmit
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.kops.policy import Policy, weight
from flowshunt_ebpf.kops.proving import Validation
from flowshunt_ebpf.kops.rewrite import rewrite
from flowshunt_ebpf.testing.sample_operations import LEAST, SPIN

TEXT = """
    r2 = r1
    r5 = r3
    r2 <<= 13
    r5 += r4
    r1 >>= 51
    r1 |= r2
    if r1 > r5 goto +1
    r5 = r1
    r0 = r5
    exit
"""


def made(*operations, architecture="x86_64"):
    return rewrite(
        assemble(TEXT),
        operations,
        Validation(),
        weight(Policy.ALL),
        architecture=architecture,
        features=frozenset({"bmi2"}) if architecture == "x86_64" else frozenset(),
    )


@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_what_is_right_is_proved_and_made(architecture):
    result = made(SPIN, LEAST, architecture=architecture)
    assert [s.operation for s in result.program.sites] == ["spin", "least"]
    assert all(f.proved is None and f.used for f in result.findings)


WRONG = {
    "a shift by one too many": attrs.evolve(
        SPIN, emits={"x86_64": (NativeEmit(lambda v, r: f"rorx {r(v.dst)}, {r(v.src)}, {63 - v.amount}"),)}
    ),
    "a native form that clobbers": attrs.evolve(
        SPIN,
        emits={"x86_64": (NativeEmit(lambda v, r: f"rorx {r(v.dst)}, {r(v.src)}, {64 - v.amount}\nxor ecx, ecx"),)},
    ),
    "a proof sequence that shifts otherwise": attrs.evolve(
        SPIN, proof=lambda v: tuple(alu64_imm(RSH, v.dst, 50) if i.imm == 51 else i for i in SPIN.proof(v))
    ),
    "text that does not assemble": attrs.evolve(SPIN, emits={"x86_64": (NativeEmit(lambda v, r: "turn it"),)}),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_is_not_used_and_named(fault):
    result = made(WRONG[fault])
    assert result.program.sites == ()
    assert result.program.encode() == assemble(TEXT).encode()
    assert [bool(f.proved) for f in result.findings] == [True]
