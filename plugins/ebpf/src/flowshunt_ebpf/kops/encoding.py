"""The two slots that stand for a site in an encoded program, and the way from there to plain eBPF and back.

A *sidecar* carries the payload, in the fields that a 64-bit move of an immediate has, with a source that no plain move
has; a *call* names the operation, with a source that no plain call has. A loader that knows neither rejects both.

    sidecar | opcode 0xb7 | dst: payload bits 0-3 | src: 3 | offset: bits 4-19 | imm: bits 20-51 |
    call    | opcode 0x85 | dst: 0                | src: 4 | offset: 0         | imm: operation  |
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import attrs

from flowshunt.errors import InputError
from flowshunt.insn import ALU64, CALL_K, MOV, Instruction, K
from flowshunt.operation import ExtendedOperation, RegisterUse
from flowshunt.proof_sequence import broken_rule
from flowshunt_ebpf.kops.splice import Piece, splice
from flowshunt_ebpf.program import Program, Site

SIDECAR: Final = ALU64 | MOV | K
SIDECAR_SOURCE: Final = 3
CALL_SOURCE: Final = 4
SITE_SLOTS: Final = 2


def encode_site(operation: int, payload: int) -> tuple[Instruction, Instruction]:
    """The two slots of a site, by the operation's id."""
    offset = payload >> 4 & 0xFFFF
    imm = payload >> 20
    return (
        Instruction(
            SIDECAR, payload & 15, SIDECAR_SOURCE, offset - ((offset & 0x8000) << 1), imm - ((imm & 0x80000000) << 1)
        ),
        Instruction(CALL_K, 0, CALL_SOURCE, 0, operation),
    )


def sidecar_payload(sidecar: Instruction) -> int:
    """The payload that a sidecar carries."""
    return sidecar.dst | (sidecar.offset & 0xFFFF) << 4 | (sidecar.imm & 0xFFFFFFFF) << 20


def is_sidecar(i: Instruction) -> bool:
    """Whether an instruction is a site's first slot."""
    return i.opcode == SIDECAR and i.src == SIDECAR_SOURCE


def is_site_call(i: Instruction) -> bool:
    """Whether an instruction is a site's second slot."""
    return i.opcode == CALL_K and i.src == CALL_SOURCE


def is_encoded(program: Program) -> bool:
    """Whether a program has a site in its two-slot form."""
    return any(
        i.src in (SIDECAR_SOURCE, CALL_SOURCE) and (is_sidecar(i) or is_site_call(i)) for i in program.instructions
    )


def lower(program: Program, operations: Mapping[int, ExtendedOperation]) -> Program:
    """Put the proof sequence in the place of every site; the sites are kept in `Program.sites`, without native forms.

    Args:
        program: with sites in their two-slot form.
        operations: by id.

    Raises InputError, naming the instruction, for half a site, a jump between its slots, an operation that is not
    known, a payload that it does not take, or a proof sequence against the rules.
    """
    pieces, found = [], []
    instructions = program.instructions
    index = 0
    while index < len(instructions):
        i = instructions[index]
        if is_site_call(i):
            raise InputError("a site's call lacks its sidecar", program.where(index), "put the sidecar before it")
        if not is_sidecar(i):
            index += 1
            continue
        following = instructions[index + 1] if index + 1 < len(instructions) else None
        if following is None or not is_site_call(following) or following.dst or following.offset:
            raise InputError("a site's sidecar lacks its call", program.where(index), "put the call after it")
        operation = operations.get(following.imm)
        if operation is None:
            raise InputError(
                f"it names the extended operation {following.imm:#x}, which is not installed",
                program.where(index + 1),
                f"install the plugin that has it; there are: {', '.join(sorted(o.name for o in operations.values()))}",
            )
        payload = sidecar_payload(i)
        try:
            sequence = meaning(operation, payload).sequence
        except InputError as error:
            raise InputError(error.what, program.where(index), error.way_out) from None
        pieces.append(Piece(index, index + SITE_SLOTS, sequence, (-1,) * len(sequence), (index,) * len(sequence)))
        found.append((operation, payload, len(sequence)))
        index += SITE_SLOTS
    spliced = splice(program, pieces)
    sites = tuple(
        site_of(operation, payload, start, length)
        for start, (operation, payload, length) in zip(spliced.starts, found, strict=True)
    )
    return attrs.evolve(spliced.program, sites=sites)


def restore(program: Program, operations: Mapping[str, ExtendedOperation]) -> Program:
    """The two-slot form of a lowered program: `lower` gives it back, and what `lower` made of a program gives that.

    Raises InputError for a site that is not its operation's proof sequence.
    """
    pieces = []
    for site in program.sites:
        operation = operations.get(site.operation)
        if operation is None:
            raise InputError(
                f"the extended operation {site.operation} is not installed", program.where(site.start), "install it"
            )
        if program.instructions[site.start : site.end] != operation.proof_sequence(site.payload):
            raise InputError(
                f"it is no site of {site.operation} any more", program.where(site.start), "don't change sites"
            )
        slots = encode_site(operation.id, site.payload)
        pieces.append(Piece(site.start, site.end, slots, (-1, -1), (site.start, site.start)))
    return splice(program, pieces).program


@attrs.frozen
class Meaning:
    """What a payload says.

    Attributes:
        sequence: the proof sequence.
        use: the registers that a site reads, writes and clobbers.
    """

    sequence: tuple[Instruction, ...]
    use: RegisterUse


@lru_cache(maxsize=8192)
def meaning(operation: ExtendedOperation, payload: int) -> Meaning:
    """What a payload says. Raises InputError where it, or the proof sequence, is not valid."""
    if why := operation.check_payload(payload):
        raise InputError(f"the payload {payload:#x} is none of {operation.name}: {why}", way_out="recognize it again")
    sequence = operation.proof_sequence(payload)
    if why := broken_rule(sequence, operation.max_instructions):
        raise InputError(f"the proof sequence of {operation.name} is none: {why}", way_out="update the plugin")
    return Meaning(sequence, operation.use(payload))


def site_of(operation: ExtendedOperation, payload: int, start: int, length: int) -> Site:
    """A site of a lowered program, without native forms."""
    use = meaning(operation, payload).use
    return Site(start, length, operation.name, payload, use.writes | use.clobbers)
