"""Small extended operations, to test with what surrounds operations. No plugin offers them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from flowshunt.host_registers import BY_ARCHITECTURE, HostRegisters
from flowshunt.insn import (
    ALU64,
    JGT,
    JMP,
    LSH,
    MOV,
    OR,
    RSH,
    Instruction,
    X,
    alu32,
    alu32_imm,
    alu64,
    alu64_imm,
    ja,
    jmp,
    mov32,
    mov64,
)
from flowshunt.operation import Disjoint, ExtendedOperation, NativeEmit
from flowshunt.payload import Layout, Values, number, result, source, temporary
from flowshunt.recognition import Computed, Match, View, alu, constant, find, value
from flowshunt_ebpf.kops.proving import Native, Unproved
from flowshunt_ebpf.native.assembler import assemble
from flowshunt_ebpf.program import NativeForm, proof_token

_SPIN: Final = Layout(result("dst"), source("src"), temporary("tmp"), number("amount", 6, 1, 63), number("wide", 1))


def _rotation(bits: int) -> Computed:
    left = alu(LSH, value("x"), constant("left"), bits=bits)
    return alu(OR, left, alu(RSH, value("x"), constant("right"), bits=bits), bits=bits)


_ROTATIONS: Final = {bits: _rotation(bits) for bits in (32, 64)}


def _spin_proof(v: Values) -> Sequence[Instruction]:
    move, shift, either = (mov64, alu64_imm, alu64) if v.wide else (mov32, alu32_imm, alu32)
    width = 64 if v.wide else 32
    if v.tmp == v.src:  # the source is not read any more: it serves as the temporary
        start: tuple[Instruction, ...] = (move(v.dst, v.src), shift(LSH, v.tmp, v.amount))
    else:
        copy = () if v.dst == v.src else (move(v.dst, v.src),)
        start = (move(v.tmp, v.src), shift(LSH, v.tmp, v.amount), *copy)
    return (*start, shift(RSH, v.dst, width - v.amount), either(OR, v.dst, v.tmp))


def _spin_recognizer(view: View) -> Iterator[Match]:
    for bits, pattern in _ROTATIONS.items():
        for found in find(view, pattern):
            left, right = found.numbers["left"], found.numbers["right"]
            others = [r for r in found.temporaries if r != found.dst]
            if left + right == bits and left and others and others[0] != found.dst:
                yield found.match(
                    _SPIN.encode(
                        dst=found.dst, src=found.registers["x"], tmp=others[0], amount=left, wide=int(bits == 64)
                    )
                )


def _spin_admissible(v: Values) -> str | None:
    if v.tmp > 9:
        return "it needs a temporary"
    if not v.wide and v.amount > 31:
        return "32 bits can't be turned that far"
    return None


def _spin_bmi2(v: Values, register: HostRegisters) -> str:
    bits = 64 if v.wide else 32
    return f"rorx {register(v.dst, bits)}, {register(v.src, bits)}, {bits - v.amount}"


def _spin_plain(v: Values, register: HostRegisters) -> str:
    bits = 64 if v.wide else 32
    dst = register(v.dst, bits)
    move = "" if v.dst == v.src and v.wide else f"mov {dst}, {register(v.src, bits)}\n"
    return f"{move}rol {dst}, {v.amount}"


def _spin_arm64(v: Values, register: HostRegisters) -> str:
    bits = 64 if v.wide else 32
    return f"ror {register(v.dst, bits)}, {register(v.src, bits)}, #{bits - v.amount}"


SPIN: Final = ExtendedOperation(
    name="spin",
    summary="turn a register's bits by a constant",
    layout=_SPIN,
    proof=_spin_proof,
    recognizer=_spin_recognizer,
    emits={
        "x86_64": (NativeEmit(_spin_bmi2, frozenset({"bmi2"})), NativeEmit(_spin_plain, cost=2.0)),
        "arm64": (NativeEmit(_spin_arm64),),
    },
    max_instructions=5,
    max_bytes=12,
    admissible=_spin_admissible,
)
"""Rotate by a constant, 32 or 64 bits."""

_LEAST: Final = Layout(result("dst"), source("other"))


def _least_recognizer(view: View) -> Iterator[Match]:
    for at in view.having(JMP | JGT | X):
        i = view.instructions[at]
        if view.targets[at] != at + 2 or i.dst == i.src:
            continue
        move = view.instructions[at + 1]
        if move == Instruction(ALU64 | MOV | X, i.src, i.dst) and i.src < 10:
            yield Match((at, at + 1), _LEAST.encode(dst=i.src, other=i.dst))


LEAST: Final = ExtendedOperation(
    name="least",
    summary="the smaller of two registers, unsigned",
    layout=_LEAST,
    proof=lambda v: (jmp(JGT, v.other, v.dst, 1), mov64(v.dst, v.other)),
    recognizer=_least_recognizer,
    emits={
        "x86_64": (
            NativeEmit(lambda v, r: f"cmp {r(v.other)}, {r(v.dst)}\ncmovbe {r(v.dst)}, {r(v.other)}", cost=2.0),
        ),
        "arm64": (
            NativeEmit(lambda v, r: f"cmp {r(v.other)}, {r(v.dst)}\ncsel {r(v.dst)}, {r(v.other)}, {r(v.dst)}, ls"),
        ),
    },
    max_instructions=2,
    max_bytes=8,
    admissible=lambda v: "one register is no choice" if v.dst == v.other else None,
    cost=lambda architecture, v: 6.0,
)
"""`if other > dst goto +1; dst = other`: it has a jump inside."""

_HINT: Final = Layout(source("base"))

HINT: Final = ExtendedOperation(
    name="hint",
    summary="a hint before each 8-byte load",
    layout=_HINT,
    proof=lambda v: (ja(0),),
    recognizer=lambda view: (
        Match((), _HINT.encode(base=view.instructions[at].src), at=at) for at in view.having(0x79)
    ),
    emits={
        "x86_64": (NativeEmit(lambda v, r: f"prefetcht0 [{r(v.base)}]", cost=0.5),),
        "arm64": (NativeEmit(lambda v, r: f"prfm pldl1keep, [{r(v.base)}]", cost=0.5),),
    },
    max_instructions=1,
    max_bytes=8,
)
"""An operation that replaces nothing."""

SAMPLES: Final = {operation.name: operation for operation in (SPIN, LEAST, HINT)}


class Believer:
    """A prover that believes everything, for tests of what does not depend on proofs.

    `doubts`: rewrites and payloads that it refuses, by the operation's name.
    """

    def __init__(self, doubts: Sequence[str] = ()) -> None:
        self.doubts = doubts
        self.rewrites: list[tuple[tuple[Instruction, ...], tuple[Instruction, ...], int]] = []

    def rewrite(
        self,
        original: Sequence[Instruction],
        rewritten: Sequence[Instruction],
        live_out: int,
        lost: Mapping[int, int],
        context: Sequence[Instruction],
        disjoint: Sequence[Disjoint],
    ) -> Unproved | None:
        """Believe it, and note it in `rewrites`."""
        self.rewrites.append((tuple(original), tuple(rewritten), live_out))
        return Unproved("doubted") if "rewrite" in self.doubts else None

    def native(
        self, operation: ExtendedOperation, payload: int, architecture: str, features: frozenset[str]
    ) -> Native | Unproved:
        """Assemble the form and believe it."""
        if operation.name in self.doubts:
            return Unproved("doubted")
        found = operation.emit(architecture, payload, features, BY_ARCHITECTURE[architecture])
        if found is None:
            return Unproved("there is none")
        use, code = operation.use(payload), assemble(architecture, found[1])
        changes = use.writes | use.clobbers
        token = proof_token(operation.proof_sequence(payload), changes, architecture, code)
        form = NativeForm(architecture, found[0].features, code, token)
        return Native(form, tuple(operation.assumes(operation.layout.decode(payload))))
