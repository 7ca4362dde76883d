"""The contract of extended operations: an idiom of eBPF, its proof sequence, and its native forms.

Everything that is said of a site is said by its payload. The proof sequence is what a site *means*; native forms and
recognizer are proved against it, site by site, before they are used.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from flowshunt.host_registers import HostRegisters
from flowshunt.insn import Instruction
from flowshunt.insn.registers import ALL_REGISTERS, reads, writes
from flowshunt.payload import PAYLOAD_BITS, Layout, Values
from flowshunt.recognition.match import Match
from flowshunt.recognition.view import View

__all__ = ["CPU_FEATURES", "PAYLOAD_BITS", "Disjoint", "ExtendedOperation", "Match", "NativeEmit", "RegisterUse"]

CPU_FEATURES: Mapping[str, frozenset[str]] = {
    "x86_64": frozenset({"bmi1", "bmi2", "movbe", "popcnt", "abm", "ssse3", "sse4_1", "avx", "avx2", "erms"}),
    "arm64": frozenset({"atomics", "crc32"}),
}
"""By architecture the CPU features that native forms may need, by Linux's names in /proc/cpuinfo."""


@attrs.frozen
class RegisterUse:
    """What a site does to the registers, as sets with one bit each.

    Attributes:
        reads: those whose value before the site counts.
        writes: those that hold a result after it.
        clobbers: those whose value after it is undefined: nothing may read it.
    """

    reads: int
    writes: int
    clobbers: int


@attrs.frozen
class Disjoint:
    """Two ranges of memory that must not overlap for a native form to equal the proof sequence.

    Each is `size` bytes from the value that a register has before the site, plus an offset.
    """

    first: int
    first_offset: int
    second: int
    second_offset: int
    size: int


@attrs.frozen
class NativeEmit:
    """How one architecture carries out an operation.

    Attributes:
        assembly: a payload's values and the registers' names to assembly text, one statement a line (Intel syntax on
            x86-64); "" where this form can't carry out these values. Pure. It changes no register but the site's
            results and temporaries, scratch and vector registers, and flags; it touches no memory that the proof
            sequence doesn't. Its jumps go forward to labels that `HostRegisters.label` names.
        features: CPU features that it needs, of `CPU_FEATURES`. None: every CPU of the architecture.
        cost: its cost in cycles of a present-day core, about, for the profitability policy: a number, or by values.
    """

    assembly: Callable[[Values, HostRegisters], str]
    features: frozenset[str] = frozenset()
    cost: float | Callable[[Values], float] = 1.0

    def cost_of(self, values: Values) -> float:
        """Its cost for a payload's values."""
        return self.cost(values) if callable(self.cost) else self.cost


def _always(values: Values) -> str | None:
    return None


def _nothing(values: Values) -> Sequence[Disjoint]:
    return ()


@attrs.frozen(eq=False)
class ExtendedOperation:
    """What a plugin returns from `flowshunt_extended_operations`.

    Attributes:
        name: lower case.
        summary: one line on what it computes.
        layout: the payload's fields.
        proof: a payload's values to the plain eBPF that says what a site does. Pure, and by the rules of
            `flowshunt.proof_sequence`: no call, no exit, no jump backward; every jump stays inside or lands just past
            the end; 64-bit immediate loads are of numbers alone.
        recognizer: a view of a program to where the idiom stands. Proposals only: none is trusted.
        emits: native forms by architecture ("x86_64", "arm64"), the preferred first; none: the site stays lowered.
        max_instructions: the most instructions that a proof sequence has.
        max_bytes: the most bytes of machine code that a native form has.
        admissible: why values, each in range, don't go together; None where they do.
        assumes: what must hold of memory besides for a native form to equal the proof sequence.
        cost: the cost in cycles of the plain instructions, by architecture and values; None: one for each.
    """

    name: str
    summary: str
    layout: Layout
    proof: Callable[[Values], Sequence[Instruction]]
    recognizer: Callable[[View], Iterable[Match]]
    emits: Mapping[str, Sequence[NativeEmit]]
    max_instructions: int
    max_bytes: int
    admissible: Callable[[Values], str | None] = _always
    assumes: Callable[[Values], Sequence[Disjoint]] = _nothing
    cost: Callable[[str, Values], float] | None = None

    @property
    def id(self) -> int:
        """What a site's call names it by: 31 bits that follow from its name and its payload's layout."""
        text = f"{self.name} {self.layout.fields}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") >> 1

    def check_payload(self, payload: int) -> str | None:
        """Why a payload is not valid; None where it is."""
        return self.layout.check(payload) or self.admissible(self.layout.decode(payload))

    def proof_sequence(self, payload: int) -> tuple[Instruction, ...]:
        """The plain eBPF that says what a site with this valid payload does."""
        return tuple(self.proof(self.layout.decode(payload)))

    def recognize(self, view: View) -> list[Match]:
        """Where the idiom stands in a program."""
        return list(self.recognizer(view))

    def use(self, payload: int) -> RegisterUse:
        """The registers that a site reads, writes and clobbers, as its proof sequence and layout say."""
        temporary = sum(1 << r for r in self.layout.temporaries(self.layout.decode(payload)))
        read = written = defined = 0
        branched = False
        for i in self.proof_sequence(payload):
            read |= reads(i) & ~defined
            changed = writes(i)
            written |= changed
            branched = branched or i.opcode & 7 in (5, 6)
            if not branched:  # what follows a jump may not run: its writes hide no reads
                defined |= changed
        return RegisterUse(read & ALL_REGISTERS, written & ~temporary, temporary)

    def emit(
        self, architecture: str, payload: int, features: frozenset[str], registers: HostRegisters
    ) -> tuple[NativeEmit, str] | None:
        """The native form that a CPU with these features uses for a payload, and its text; None: there is none."""
        values = self.layout.decode(payload)
        for form in self.emits.get(architecture, ()):
            if form.features <= features and (text := form.assembly(values, registers)):
                return form, text
        return None

    def gain(self, architecture: str, payload: int, features: frozenset[str], registers: HostRegisters) -> float:
        """The cycles that a site saves each time it runs, as the cost tables have it; 0 where there is no form."""
        found = self.emit(architecture, payload, features, registers)
        if found is None:
            return 0.0
        values = self.layout.decode(payload)
        before = float(len(self.proof_sequence(payload))) if self.cost is None else self.cost(architecture, values)
        return before - found[0].cost_of(values)
