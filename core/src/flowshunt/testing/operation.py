"""The contract tests of extended operations: sound payloads and proof sequences, pure emits, a modest recognizer.

What they can't tell is whether the native forms compute what the proof sequence does: that is proved at load.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from flowshunt.contracts import check_operation
from flowshunt.insn import (
    ADD,
    ALU64,
    CALL,
    DW,
    EXIT,
    IMM,
    JA,
    JCOND,
    JMP,
    JMP32,
    LD,
    LD_IMM64,
    MOV,
    Instruction,
    W,
    alu64,
    alu64_imm,
    exit_,
    jmp_imm,
    ldx,
    mov64_imm,
)
from flowshunt.insn import check as check_instruction
from flowshunt.operation import PAYLOAD_BITS, ExtendedOperation, Site
from flowshunt.testing.claims import Claim, make_claims, must

MAX_PAYLOADS = 150
"""Valid payloads that each claim is tried with."""

_X86_64 = {
    64: ("rax", "rdi", "rsi", "rdx", "rcx", "r8", "rbx", "r13", "r14", "r15", "rbp"),
    32: ("eax", "edi", "esi", "edx", "ecx", "r8d", "ebx", "r13d", "r14d", "r15d", "ebp"),
    16: ("ax", "di", "si", "dx", "cx", "r8w", "bx", "r13w", "r14w", "r15w", "bp"),
    8: ("al", "dil", "sil", "dl", "cl", "r8b", "bl", "r13b", "r14b", "r15b", "bpl"),
}
_ARM64 = {64: tuple(f"x{n}" for n in range(11)), 32: tuple(f"w{n}" for n in range(11))}
_REGISTERS: Mapping[str, Mapping[int, Sequence[str]]] = {"x86_64": _X86_64, "arm64": _ARM64}


@attrs.frozen
class OperationCase:
    """An operation, and payloads that it is known to take."""

    operation: ExtendedOperation
    known: tuple[int, ...] = ()

    def payloads(self) -> list[int]:
        """Valid payloads, spread over all that a search found. AssertionError where there is none."""
        found = _search(self.operation, self.known)
        must(found, "no payload was found that check_payload takes")
        return random.Random(1).sample(found, min(len(found), MAX_PAYLOADS))


def operation_contract(operation: ExtendedOperation, payloads: Iterable[int] = ()) -> tuple[Claim, ...]:
    """The claims that an extended operation must hold. `payloads`: valid ones to try beside those that are found."""
    name = getattr(operation, "name", type(operation).__name__)
    return make_claims(f"extended operation {name}", OperationCase(operation, tuple(payloads)), CLAIMS)


def object_holds_the_contract(case: OperationCase) -> None:
    """It has every attribute of the contract, of the right type and in range."""
    check_operation(case.operation)


def payloads_are_judged(case: OperationCase) -> None:
    """`check_payload` gives None or a reason, the same at each call, and refuses what has more than 52 bits."""
    case.payloads()
    for payload in (*case.known, 0, 1, (1 << PAYLOAD_BITS) - 1, *_random_payloads(200)):
        reason = case.operation.check_payload(payload)
        must(reason is None or (isinstance(reason, str) and reason), f"check_payload({payload:#x}) gave {reason!r}")
        must(reason == case.operation.check_payload(payload), f"check_payload({payload:#x}) changes its mind")
    for payload in (1 << PAYLOAD_BITS, -1):
        must(case.operation.check_payload(payload) is not None, f"check_payload takes {payload:#x}")
    for payload in case.known:
        reason = case.operation.check_payload(payload)
        must(reason is None, f"the payload {payload:#x} is said to be valid, but check_payload says: {reason}")


def proof_sequences_obey_the_rules(case: OperationCase) -> None:
    """A proof sequence is plain eBPF that only goes forward: no call, no exit, jumps stay in it."""
    for payload in case.payloads():
        sequence = case.operation.proof_sequence(payload)
        wrong = _broken_rule(sequence, case.operation.max_instructions)
        must(wrong is None, f"proof_sequence({payload:#x}): {wrong}")


def proof_sequences_are_pure(case: OperationCase) -> None:
    """The same payload gives the same proof sequence."""
    for payload in case.payloads():
        first, second = case.operation.proof_sequence(payload), case.operation.proof_sequence(payload)
        must(tuple(first) == tuple(second), f"proof_sequence({payload:#x}) changes from call to call")


def emits_are_pure_text(case: OperationCase) -> None:
    """Each native form gives assembly text for every valid payload, the same at each call."""
    for architecture, forms in case.operation.emits.items():
        for form in forms:
            for payload in case.payloads():
                text = form.assembly(payload, _namer(architecture))
                what = f"{architecture} assembly({payload:#x})"
                must(isinstance(text, str) and text.strip(), f"{what} is {text!r}, not text")
                must(text == form.assembly(payload, _namer(architecture)), f"{what} changes from call to call")


def the_recognizer_finds_its_own_idiom(case: OperationCase) -> None:
    """In a program that holds a proof sequence, the recognizer proposes that site for most payloads."""
    sequences = {tuple(case.operation.proof_sequence(payload)) for payload in case.payloads()}
    longer = {sequence for sequence in sequences if len(sequence) > 1}
    before = (mov64_imm(0, 7), mov64_imm(1, 9))
    found = [
        sequence
        for sequence in longer or sequences
        if any(
            site.start <= len(before) and site.start + site.length >= len(before) + len(sequence)
            for site in _sites(case.operation, (*before, *sequence, exit_()))
        )
    ]
    share = f"{len(found)} of its {len(longer or sequences)} proof sequences"
    must(2 * len(found) >= len(longer or sequences), f"the recognizer finds only {share}")


def sites_lie_in_the_program(case: OperationCase) -> None:
    """On any program the recognizer raises nothing, and its sites lie in the program and have valid payloads."""
    must(not _sites(case.operation, ()), "it found a site in an empty program")
    sequences = [tuple(case.operation.proof_sequence(payload)) for payload in case.payloads()[:20]]
    chosen = random.Random(3)
    for _ in range(60):
        program: list[Instruction] = []
        for _ in range(chosen.randrange(1, 12)):
            piece = chosen.choice(sequences) if chosen.random() < 0.4 else (_plain(chosen),)
            program += piece[: chosen.randrange(1, len(piece) + 1)] if chosen.random() < 0.3 else piece
        _sites(case.operation, program)
        _sites(case.operation, (*program, exit_()))


CLAIMS = (
    object_holds_the_contract,
    payloads_are_judged,
    proof_sequences_obey_the_rules,
    proof_sequences_are_pure,
    emits_are_pure_text,
    the_recognizer_finds_its_own_idiom,
    sites_lie_in_the_program,
)


def _broken_rule(sequence: Sequence[Instruction], limit: int) -> str | None:
    """Why a sequence is no proof sequence; None where it is one."""
    if not 1 <= len(sequence) <= limit:
        return f"it has {len(sequence)} instructions, 1 to {limit} are declared"
    boundaries, slot = set(), 0
    for instruction in sequence:
        if not isinstance(instruction, Instruction):
            return f"it holds {type(instruction).__name__}, not Instruction"
        boundaries.add(slot)
        slot += instruction.slots
    boundaries.add(slot)
    slot = 0
    for index, instruction in enumerate(sequence):
        slot += instruction.slots
        if wrong := check_instruction(instruction):
            return f"instruction {index} is not plain eBPF: {wrong}"
        if instruction.opcode == LD_IMM64 and instruction.src != 0:
            return f"instruction {index} loads a map, function or BTF id"
        if instruction.cls == LD and (instruction.mode, instruction.size) != (IMM, DW):
            return f"instruction {index} is a legacy packet load, which calls"
        if instruction.cls not in (JMP, JMP32):
            continue
        if instruction.op in (CALL, EXIT, JCOND):
            return f"instruction {index} calls, exits or loops"
        distance = instruction.imm if (instruction.cls, instruction.op) == (JMP32, JA) else instruction.offset
        if distance < 0 or slot + distance not in boundaries:
            return f"instruction {index} jumps by {distance}, not forward to an instruction or just past the end"
    return None


def _sites(operation: ExtendedOperation, program: Sequence[Instruction]) -> Sequence[Site]:
    """What the recognizer proposes, each site checked."""
    sites = operation.recognize(program)
    for site in sites:
        must(isinstance(site, Site), f"recognize gave {type(site).__name__}, not Site")
        inside = site.start >= 0 and site.length >= 1 and site.start + site.length <= len(program)
        must(inside, f"{site} lies outside a program of {len(program)} instructions")
        reason = operation.check_payload(site.payload)
        must(reason is None, f"{site} has a payload that is not valid: {reason}")
    return sites


def _search(operation: ExtendedOperation, known: Iterable[int]) -> list[int]:
    """Valid payloads: those known, small ones, ones with few bits, and what differs from a valid one by little."""
    tried: set[int] = set()
    found: dict[int, None] = {}

    def attempt(payload: int) -> None:
        if payload not in tried:
            tried.add(payload)
            if operation.check_payload(payload) is None:
                found[payload] = None

    for payload in (*known, *range(1 << 12), *_random_payloads(12000)):
        attempt(payload)
    chosen = random.Random(4)
    for _ in range(3000 if found else 0):
        base = chosen.choice(list(found)[-512:])
        attempt(base ^ 1 << chosen.randrange(PAYLOAD_BITS))
        place = chosen.randrange(PAYLOAD_BITS - 3)
        attempt(base & ~(15 << place) | chosen.randrange(16) << place)
    return list(found)


def _random_payloads(count: int) -> list[int]:
    """Random bits of random width at random places, some of them two at once."""
    chosen = random.Random(5)

    def piece() -> int:
        width = chosen.randrange(1, PAYLOAD_BITS + 1)
        return chosen.getrandbits(width) << chosen.randrange(PAYLOAD_BITS - width + 1)

    return [piece() | (piece() if chosen.random() < 0.5 else 0) for _ in range(count)]


def _namer(architecture: str) -> Callable[[int, int], str]:
    """Register names by eBPF register and width in bits."""
    names = _REGISTERS[architecture]

    def name(register: int, width: int) -> str:
        must(width in names, f"it asks for a register of {width} bits; {architecture} has {sorted(names)}")
        must(0 <= register < len(names[width]), f"it asks for the register r{register}")
        return names[width][register]

    return name


def _plain(chosen: random.Random) -> Instruction:
    """One harmless instruction."""
    dst, src = chosen.randrange(10), chosen.randrange(10)
    return chosen.choice(
        (
            alu64(ADD, dst, src),
            alu64_imm(ADD, dst, chosen.randrange(64)),
            Instruction(ALU64 | MOV | 0x08, dst, src),
            ldx(W, dst, src, 4 * chosen.randrange(8)),
            jmp_imm(0x10, dst, 0, 0),
        )
    )
