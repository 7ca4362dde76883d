"""The contract tests of extended operations: sound payloads and proof sequences, pure emits, a modest recognizer.

What they can't tell is whether the native forms compute what the proof sequence does: that is proved at load.
"""

import itertools
import random
from collections.abc import Iterable, Sequence
from functools import cached_property

import attrs

from flowshunt.contracts import check_operation
from flowshunt.host_registers import BY_ARCHITECTURE
from flowshunt.insn import (
    ADD,
    ALU64,
    LDX,
    MOV,
    ST,
    STX,
    Instruction,
    W,
    alu64,
    alu64_imm,
    exit_,
    jmp_imm,
    ldx,
    mov64_imm,
)
from flowshunt.operation import PAYLOAD_BITS, ExtendedOperation, Match
from flowshunt.payload import NO_REGISTER, TEMPORARY
from flowshunt.proof_sequence import broken_rule
from flowshunt.recognition import View
from flowshunt.testing.claims import Claim, make_claims, must

MAX_PAYLOADS = 150
"""Valid payloads that each claim is tried with."""


@attrs.frozen(slots=False)
class OperationCase:
    """An operation, and payloads that it is known to take."""

    operation: ExtendedOperation
    known: tuple[int, ...] = ()

    @cached_property
    def found(self) -> list[int]:
        """The valid payloads that a search finds."""
        return _search(self.operation, self.known)

    def payloads(self) -> list[int]:
        """Valid payloads, spread over all that a search found. AssertionError where there is none."""
        found = self.found
        must(found, "no payload was found that check_payload takes")
        return random.Random(1).sample(found, min(len(found), MAX_PAYLOADS))


def operation_contract(operation: ExtendedOperation, payloads: Iterable[int] = ()) -> tuple[Claim, ...]:
    """The claims that an extended operation must hold. `payloads`: valid ones to try beside those that are found."""
    name = getattr(operation, "name", type(operation).__name__)
    return make_claims(f"extended operation {name}", OperationCase(operation, tuple(payloads)), CLAIMS)


def object_holds_the_contract(case: OperationCase) -> None:
    """It is an ExtendedOperation whose attributes are of the right type and in range."""
    check_operation(case.operation)


def payloads_are_judged(case: OperationCase) -> None:
    """`check_payload` gives None or a reason, the same at each call, and refuses what has more than 52 bits."""
    case.payloads()
    for payload in (*case.known, 0, 1, (1 << PAYLOAD_BITS) - 1, *_random_payloads(case.operation, 200)):
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
        wrong = broken_rule(sequence, case.operation.max_instructions)
        must(wrong is None, f"proof_sequence({payload:#x}): {wrong}")


def proof_sequences_are_pure(case: OperationCase) -> None:
    """The same payload gives the same proof sequence."""
    for payload in case.payloads():
        first, second = case.operation.proof_sequence(payload), case.operation.proof_sequence(payload)
        must(tuple(first) == tuple(second), f"proof_sequence({payload:#x}) changes from call to call")


def emits_are_pure_text(case: OperationCase) -> None:
    """Each native form gives text for every valid payload, or "" to decline, the same at each call; each takes some."""
    for architecture, forms in case.operation.emits.items():
        registers = BY_ARCHITECTURE[architecture]
        for number, form in enumerate(forms):
            taken = False
            for payload in case.payloads():
                values = case.operation.layout.decode(payload)
                text = form.assembly(values, registers)
                what = f"{architecture} form {number}, assembly({values})"
                must(isinstance(text, str) and (text == "" or text.strip()), f"{what} is {text!r}, not text")
                must(text == form.assembly(values, registers), f"{what} changes from call to call")
                cost = form.cost_of(values)
                must(isinstance(cost, int | float) and cost >= 0, f"{what}: its cost is {cost!r}")
                taken = taken or bool(text)
            decode = case.operation.layout.decode
            taken = taken or any(form.assembly(decode(payload), registers) for payload in case.found)
            must(taken, f"{architecture} form {number} declines every payload that was tried")


def the_recognizer_finds_its_own_idiom(case: OperationCase) -> None:
    """In a program that holds a proof sequence, the recognizer proposes that site for most payloads.

    An operation whose proof sequences do nothing, which is put between instructions, is not asked.
    """
    operation = case.operation
    sequences = {tuple(operation.proof_sequence(payload)) for payload in case.payloads() if _does(operation, payload)}
    if not sequences:
        return
    longer = {sequence for sequence in sequences if len(sequence) > 1}
    before = (mov64_imm(0, 7), mov64_imm(1, 9))
    found = [
        sequence
        for sequence in longer or sequences
        if any(
            match.indices and match.indices[0] <= len(before) and match.indices[-1] >= len(before) + len(sequence) - 1
            for match in _matches(operation, (*before, *sequence, mov64_imm(0, 0), exit_()))
        )
    ]
    share = f"{len(found)} of its {len(longer or sequences)} proof sequences"
    must(2 * len(found) >= len(longer or sequences), f"the recognizer finds only {share}")


def matches_lie_in_the_program(case: OperationCase) -> None:
    """On any program the recognizer raises nothing, and its matches lie in the program and have valid payloads."""
    must(not _matches(case.operation, ()), "it found a site in an empty program")
    sequences = [tuple(case.operation.proof_sequence(payload)) for payload in case.payloads()[:20]]
    chosen = random.Random(3)
    for _ in range(60):
        program: list[Instruction] = []
        for _ in range(chosen.randrange(1, 12)):
            piece = chosen.choice(sequences) if chosen.random() < 0.4 else (_plain(chosen),)
            program += piece[: chosen.randrange(1, len(piece) + 1)] if chosen.random() < 0.3 else piece
        _matches(case.operation, program)
        _matches(case.operation, (*program, exit_()))


CLAIMS = (
    object_holds_the_contract,
    payloads_are_judged,
    proof_sequences_obey_the_rules,
    proof_sequences_are_pure,
    emits_are_pure_text,
    the_recognizer_finds_its_own_idiom,
    matches_lie_in_the_program,
)


def _does(operation: ExtendedOperation, payload: int) -> bool:
    """Whether a site changes anything."""
    stores = any(i.cls in (ST, STX, LDX) for i in operation.proof_sequence(payload))
    return stores or bool(operation.use(payload).writes)


def _matches(operation: ExtendedOperation, program: Sequence[Instruction]) -> list[Match]:
    """What the recognizer proposes, each match checked."""
    matches = operation.recognize(View(program))
    for match in matches:
        must(isinstance(match, Match), f"recognize gave {type(match).__name__}, not Match")
        indices = match.indices
        ascending = all(a < b for a, b in itertools.pairwise(indices))
        must(isinstance(indices, tuple) and ascending, f"{match}: its indices don't ascend")
        inside = indices[0] >= 0 and indices[-1] < len(program) if indices else 0 <= match.at < len(program)
        must(inside, f"{match} lies outside a program of {len(program)} instructions")
        reason = operation.check_payload(match.payload)
        must(reason is None, f"{match} has a payload that is not valid: {reason}")
    return matches


def _search(operation: ExtendedOperation, known: Iterable[int]) -> list[int]:
    """Valid payloads: those known, and those of fields at random and at their ends."""
    found: dict[int, None] = {}
    for payload in (*known, *_random_payloads(operation, 4000)):
        if payload not in found and operation.check_payload(payload) is None:
            found[payload] = None
    return list(found)


def _random_payloads(operation: ExtendedOperation, count: int) -> list[int]:
    """Payloads whose fields are in range, one by one: anywhere in it, near zero, or at its ends."""
    chosen = random.Random(5)
    payloads = []
    for _ in range(count):
        values = {}
        for field in operation.layout.fields:
            middle = chosen.randint(field.low, field.high)
            small = min(max(chosen.randint(-64, 64), field.low), field.high)
            ends = (small, field.low, field.high, NO_REGISTER if field.kind == TEMPORARY else small)
            values[field.name] = middle if chosen.random() < 0.5 else chosen.choice(ends)
        try:
            payloads.append(operation.layout.encode(**values))
        except ValueError:
            continue
    return payloads


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
