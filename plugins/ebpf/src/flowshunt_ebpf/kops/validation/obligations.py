"""The two obligations, as claims over terms.

Of an operation: after its machine code every register that eBPF's registers live in holds what the proof sequence
gives, but for the declared temporaries; whatever else the code generators rely on is as it was; memory is the same; and
no byte is touched that the proof sequence does not touch. Of a site: after what replaces it, every register that is
live and all of memory are as after the original instructions.

Pointers are 64-bit values of which nothing is known: they may be equal, overlap or wrap around, unless the obligation
says otherwise.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

import attrs

from flowshunt.host_registers import BY_ARCHITECTURE
from flowshunt.insn import ST, STX, Instruction
from flowshunt.operation import Disjoint
from flowshunt_ebpf.kops.validation import (
    arm64_decode,
    arm64_machine,
    arm64_semantics,
    x86_64_decode,
    x86_64_machine,
    x86_64_semantics,
)
from flowshunt_ebpf.kops.validation.decide import Asked, Claim, Obligation
from flowshunt_ebpf.kops.validation.ebpf_semantics import REGISTERS, run_ebpf
from flowshunt_ebpf.kops.validation.forward import MEMORY_KEY, Access, Path, initial
from flowshunt_ebpf.kops.validation.term import MEMORY, Term, signed
from flowshunt_ebpf.kops.validation.terms import Apart, Terms
from flowshunt_ebpf.program import live_set

X86_64: Final = "x86_64"
ARM64: Final = "arm64"

FREE: Final[Mapping[str, frozenset[str]]] = {
    X86_64: frozenset({"r9", "r10", "r11", *x86_64_machine.FLAGS, *x86_64_decode.VECTORS}),
    ARM64: frozenset({*(f"x{n}" for n in range(9, 18)), *"nzcv", *(f"v{n}" for n in range(32) if not 8 <= n < 16)}),
}
"""What machine code may change besides the registers of eBPF: scratch registers, flags, and the vector registers that
the calling conventions give to whoever is called. All else must be as it was."""

Decoded = tuple[x86_64_decode.Decoded, ...] | tuple[arm64_decode.Decoded, ...]


@attrs.frozen
class Emit:
    """What is to be proved of an operation: `code`, machine code, does what `sequence` does.

    Attributes:
        clobbers: registers whose value afterwards does not count, one bit each.
        disjoint: memory that may be taken not to overlap.
    """

    architecture: str
    sequence: tuple[Instruction, ...]
    code: Decoded
    clobbers: int
    disjoint: tuple[Disjoint, ...] = ()


def decode(architecture: str, code: bytes) -> Decoded:
    """Machine code as instructions. Raises NotModelledError."""
    return x86_64_decode.decode(code) if architecture == X86_64 else arm64_decode.decode(code)


def host_names(architecture: str) -> tuple[str, ...]:
    """The names of the registers that r0 to r10 live in."""
    return BY_ARCHITECTURE[architecture].names[64]


def emit_obligation(emit: Emit, asked: Asked, plan: tuple[bool, ...] = ()) -> Obligation:
    """The claims of an operation. Raises NotModelledError.

    Code that branches and writes memory is looked at one way at a time: on each, what its conditions say of pointers
    tells which ranges lie apart.
    """
    terms = asked.terms
    start = initial(terms, dict.fromkeys(REGISTERS, 64))
    inputs = tuple(start[name] for name in REGISTERS)
    assumed, given = _assumed_apart(terms, emit.disjoint, inputs)
    widths = x86_64_machine.WIDTHS if emit.architecture == X86_64 else arm64_machine.WIDTHS
    names = host_names(emit.architecture)
    before = initial(terms, widths, dict(zip(names, inputs, strict=True)))

    def run(path: Path | None) -> tuple[dict[str, Term], list[Access], dict[str, Term], list[Access]]:
        wanted, allowed = run_ebpf(terms, start, emit.sequence)
        if emit.architecture == X86_64:
            return wanted, allowed, *x86_64_semantics.run_x86_64(terms, before, emit.code, path)  # type: ignore[arg-type]
        return wanted, allowed, *arm64_semantics.run_arm64(terms, before, emit.code, path)  # type: ignore[arg-type]

    terms.assume_apart(assumed)
    writes = any(i.cls in (ST, STX) for i in emit.sequence)
    path = Path(plan) if writes else None
    wanted, allowed, after, touched = run(path)
    if writes:
        assert path is not None
        given = terms.and_(given, *path.conditions)
        lemmas = _lemmas(asked, given, [*allowed, *touched])
        if lemmas:
            terms.assume_apart([*assumed, *lemmas])
            wanted, allowed, after, touched = run(Path(plan))

    claims: list[Claim] = []
    for register, (name, host) in enumerate(zip(REGISTERS, names, strict=True)):
        if emit.clobbers >> register & 1:
            continue
        claims += _equal(terms, f"{name} should become {{0}}, the machine code gives {{1}}", wanted[name], after[host])
    for name in widths:
        if name not in names and name not in FREE[emit.architecture]:
            words = f"{name}, which is not its own, was {{0}}, the machine code leaves {{1}}"
            claims += _equal(terms, words, before[name], after[name])
    memories = wanted[MEMORY_KEY], after[MEMORY_KEY], "the machine code"
    equal, by_arrays = _same_memory(terms, *memories)
    claims += equal
    claims += [claim for access in touched for claim in _covered(terms, access, allowed)]
    following = path.following() if path else None
    return Obligation(tuple(claims), given, inputs, memories if by_arrays else None, following)


@attrs.frozen
class Replacement:
    """What is to be proved of a site: `rewritten` does what `original` does, as far as anything reads it afterwards.

    Attributes:
        live_out: what is live where both end: a set as in `program.live_set`, its stack part aside.
        lost: by index in `rewritten`, registers that native code leaves undefined there, one bit each.
        disjoint: memory that may be taken not to overlap, by the registers' values where both start.
        context: instructions that always run straight before either.
    """

    original: tuple[Instruction, ...]
    rewritten: tuple[Instruction, ...]
    live_out: int
    lost: Mapping[int, int] = attrs.field(factory=dict)
    disjoint: tuple[Disjoint, ...] = ()
    context: tuple[Instruction, ...] = ()


def site_obligation(site: Replacement, asked: Asked, plan: tuple[bool, ...] = ()) -> Obligation:
    """The claims of a site. Raises NotModelledError."""
    terms = asked.terms
    start = initial(terms, dict.fromkeys(REGISTERS, 64))
    inputs = tuple(start[name] for name in REGISTERS)
    terms.assume_apart(())
    start, _ = run_ebpf(terms, start, site.context)
    assumed, given = _assumed_apart(terms, site.disjoint, tuple(start[name] for name in REGISTERS))
    terms.assume_apart(assumed)
    wanted, _ = run_ebpf(terms, start, site.original)
    after, _ = run_ebpf(terms, start, site.rewritten, site.lost)
    claims: list[Claim] = []
    for register, name in enumerate(REGISTERS):
        for half, at, words in ((live_set.low(register), 0, "low"), (live_set.upper(register), 32, "upper")):
            if not site.live_out & half:
                continue
            left, right = (terms.extract(values[name], at, 32) for values in (wanted, after))
            text = f"the {words} half of {name} should become {{0}}, what replaces the site gives {{1}}"
            claims += _equal(terms, text, left, right)
    memories = wanted[MEMORY_KEY], after[MEMORY_KEY], "what replaces the site"
    equal, by_arrays = _same_memory(terms, *memories)
    return Obligation((*claims, *equal), given, inputs, memories if by_arrays else None)


def _equal(terms: Terms, words: str, wanted: Term, found: Term) -> list[Claim]:
    """What nothing has touched needs no claim."""
    untouched = wanted is found and wanted.op == "var"
    return [] if untouched else [Claim(terms.not_(terms.eq(wanted, found)), words, (wanted, found))]


def _same_memory(terms: Terms, wanted: Term, found: Term, who: str) -> tuple[list[Claim], bool]:
    """Where both wrote the same addresses in the same order, the bytes written must be equal; else every byte must.

    Gives the claims, and whether they are about arrays.
    """
    assert wanted.width == found.width == MEMORY
    claims: list[Claim] = []
    left, right = wanted, found
    words = f"the byte at {{0}} should become {{1}}, {who} makes it {{2}}"
    while left is not right:
        if left.op != "store" or right.op != "store" or left.args[1] is not right.args[1]:
            address = terms.var("address", 64)
            bytes_there = terms.select(wanted, address), terms.select(found, address)
            return [Claim(terms.not_(terms.eq(*bytes_there)), words, (address, *bytes_there))], True
        if left.args[2] is not right.args[2]:
            fails = terms.not_(terms.eq(left.args[2], right.args[2]))
            claims.append(Claim(fails, words, (left.args[1], left.args[2], right.args[2])))
        left, right = left.args[0], right.args[0]
    return claims, _unresolved(terms, claims)


def _unresolved(terms: Terms, claims: Sequence[Claim]) -> bool:
    """Whether claims load from memory that was stored to, by addresses that may or may not be the same."""
    initial_memory = terms.memory()
    seen: set[int] = set()
    stack = [claim.fails for claim in claims]
    while stack:
        top = stack.pop()
        if top.number not in seen:
            seen.add(top.number)
            if top.op == "select" and top.args[0] is not initial_memory:
                return True
            stack.extend(top.args)
    return False


def _covered(terms: Terms, access: Access, allowed: Sequence[Access]) -> list[Claim]:
    """That every byte of an access is touched by the proof sequence too, in the same case; written, if written.

    Where the proof sequence touches all of them whatever happens, by their distances alone, there is nothing to claim.
    """
    one = terms.const(1, 1)
    missing = set(range(access.size))
    for other in allowed:
        if other.guard is not one or (access.write and not other.write):
            continue
        start = terms.distance(other.address, access.address)
        if start is not None:
            start = signed(start, 64)
            missing -= set(range(max(start, 0), min(start + other.size, access.size)))
    if not missing:
        return []
    distance = terms.var("byte", 64)
    byte = terms.add(access.address, distance)
    inside = terms.and_(access.guard, terms.ult(distance, terms.const(access.size, 64)))
    never = terms.const(0, 1)
    covered = [
        terms.and_(other.guard, terms.ult(terms.sub(byte, other.address), terms.const(other.size, 64)))
        for other in allowed
        if other.write or not access.write
    ]
    fails = terms.and_(inside, terms.not_(terms.or_(never, *covered)))
    verb = "writes" if access.write else "reads"
    return [Claim(fails, f"the machine code {verb} the byte at {{0}}, the proof sequence does not", (byte,))]


def _assumed_apart(terms: Terms, disjoint: Sequence[Disjoint], registers: Sequence[Term]) -> tuple[list[Apart], Term]:
    """Ranges that are taken not to overlap, and that as a term."""
    given = terms.const(1, 1)
    ranges: list[Apart] = []
    for pair in disjoint:
        first = terms.plus(registers[pair.first], pair.first_offset)
        second = terms.plus(registers[pair.second], pair.second_offset)
        ranges.append(Apart(first, pair.size, second, pair.size))
        given = terms.and_(given, terms.not_(_overlap(terms, ranges[-1])))
    return ranges, given


def _overlap(terms: Terms, ranges: Apart) -> Term:
    """Whether two ranges overlap: one starts less than the other's size after the other, around the address space."""
    after, before = terms.sub(ranges.first, ranges.second), terms.sub(ranges.second, ranges.first)
    return terms.or_(
        terms.ult(after, terms.const(ranges.second_bytes, 64)), terms.ult(before, terms.const(ranges.first_bytes, 64))
    )


def _lemmas(asked: Asked, given: Term, accesses: Sequence[Access]) -> list[Apart]:
    """Ranges of memory that lie apart on this way through the code: for each two bases, all that is accessed there."""
    terms = asked.terms
    spans: dict[Term, tuple[int, int, bool]] = {}
    for access in accesses:
        base = access.address.base
        if base is not None:
            offset = signed(access.address.offset, 64)
            low, high, write = spans.get(base, (offset, offset, False))
            spans[base] = min(low, offset), max(high, offset + access.size), write or access.write
    found: list[Apart] = []
    for (one, (low, high, write)), (other, (other_low, other_high, other_write)) in combinations(spans.items(), 2):
        if write or other_write:
            ranges = Apart(terms.plus(one, low), high - low, terms.plus(other, other_low), other_high - other_low)
            if asked.never(terms.and_(given, _overlap(terms, ranges))):
                found.append(ranges)
    return found
