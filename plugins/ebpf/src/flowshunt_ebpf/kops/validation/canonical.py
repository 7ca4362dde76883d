"""What a proof is about, as bytes to hash: exactly, and but for the names of registers.

Renaming. Instructions mean the same whichever registers they name, but for registers that some name implicitly (rcx as
the count of a shift, rsi, rdi, rcx and rax of string instructions). So two obligations that differ by a bijection of
eBPF's registers, and with them of the host registers that they live in, are one, provided that the bijection leaves
the registers alone that are named implicitly. `Renaming` numbers registers in the order in which they first appear;
what it writes for machine code is made from the decoded bytes, and marks implicit registers by their names. So equal
texts mean that there is such a bijection.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from flowshunt.insn import ALU, ALU64, END, JA, JMP, JMP32, LD_IMM64, LDX, NEG, ST, STX, Instruction, X, encode
from flowshunt.operation import Disjoint
from flowshunt_ebpf.kops.validation import arm64_decode, x86_64_decode
from flowshunt_ebpf.kops.validation.obligations import X86_64, Emit, Replacement, host_names

_COUNTED: Final = frozenset({"shl", "sal", "shr", "sar", "rol", "ror", "shld", "shrd"})
_STRING: Final = ("rax", "rcx", "rsi", "rdi")
_GENERAL: Final = {"vector_duplicate": ("n",), "vector_insert": ("n",), "vector_extract": ("d",)}
"""Fields of vector instructions that are general registers."""


def exact_emit(emit: Emit, code: bytes) -> bytes:
    """An operation's obligation, byte by byte."""
    head = f"emit {emit.architecture} {emit.clobbers} {emit.disjoint} {len(emit.sequence)} "
    return head.encode() + encode(emit.sequence) + code


def exact_site(site: Replacement) -> bytes:
    """A site's obligation, byte by byte."""
    lost = sorted(site.lost.items())
    head = (
        f"site {len(site.context)} {site.live_out} {lost} {site.disjoint} {len(site.original)} {len(site.rewritten)} "
    )
    return head.encode() + encode(site.context) + encode(site.original) + encode(site.rewritten)


def renamed_emit(emit: Emit) -> bytes:
    """An operation's obligation, but for the names of registers."""
    names = Renaming(host_names(emit.architecture))
    parts = [f"emit {emit.architecture}", *(names.instruction(i) for i in emit.sequence)]
    for instruction in emit.code:
        if isinstance(instruction, x86_64_decode.Decoded):
            assert emit.architecture == X86_64
            parts.append(names.x86_64(instruction))
        else:
            parts.append(names.arm64(instruction))
    return names.finish(parts, emit.disjoint, {0: emit.clobbers})


def renamed_site(site: Replacement) -> bytes:
    """A site's obligation, but for the names of registers."""
    names = Renaming(())
    parts = ["site", *(names.instruction(i) for i in site.context), "then"]
    parts += [*(names.instruction(i) for i in site.original), "by"]
    parts += [names.instruction(i) for i in site.rewritten]
    live = {half: sum(1 << r for r in range(11) if site.live_out >> (2 * r + half) & 1) for half in range(2)}
    return names.finish(parts, site.disjoint, {**live, **{2 + index: mask for index, mask in site.lost.items()}})


class Renaming:
    """Numbers registers by where they first appear. `host`: the names of the host registers that r0 to r10 live in."""

    def __init__(self, host: Sequence[str]) -> None:
        self._number: dict[int, int] = {}
        self._register = {name: register for register, name in enumerate(host)}
        self._implicit: dict[str, int] = {}

    def ebpf(self, register: int) -> str:
        """What a register of eBPF is called."""
        return f"e{self._number.setdefault(register, len(self._number))}"

    def host(self, name: str) -> str:
        """What a host register is called: after the eBPF register in it, or by itself."""
        register = self._register.get(name)
        return name if register is None else self.ebpf(register)

    def instruction(self, i: Instruction) -> str:
        """An eBPF instruction. Fields that are no registers stand as they are."""
        dst, src = registers_of(i)
        left = self.ebpf(i.dst) if dst else str(i.dst)
        return f"{i.opcode} {left} {self.ebpf(i.src) if src else i.src} {i.offset} {i.imm}"

    def x86_64(self, instruction: x86_64_decode.Decoded) -> str:
        """An x86-64 instruction; its place stands too, as jumps go to places."""
        parts = [f"{instruction.at} {instruction.mnemonic}"]
        for operand in instruction.operands:
            if isinstance(operand, x86_64_decode.Register):
                parts.append(f"{self.host(operand.full)}:{operand.width}")
            elif isinstance(operand, x86_64_decode.Place):
                base, index = (self.host(name) if name else "-" for name in (operand.base, operand.index))
                parts.append(f"[{base} {index} {operand.scale} {operand.displacement}]:{operand.size}")
            else:
                parts.append(str(operand.value))
        for name in implicit(instruction):
            self._implicit[name] = self._register.get(name, -1)
            parts.append(f"{name}={self.host(name)}")
        return " ".join(parts)

    def arm64(self, instruction: arm64_decode.Decoded) -> str:
        """An ARM64 instruction, as the fields of its encoding."""
        general = general_fields(instruction)
        parts = [f"{instruction.at} {instruction.kind}"]
        for name, value in instruction.fields:
            parts.append(self.host(f"x{value}") if name in general and value != 31 else f"{name}:{value}")
        return " ".join(parts)

    def finish(self, parts: Iterable[str], disjoint: Sequence[Disjoint], masks: dict[int, int]) -> bytes:
        """The whole, with sets of registers, each as a mask by a number."""
        said = list(parts)
        for pair in disjoint:
            first, second = self.ebpf(pair.first), self.ebpf(pair.second)
            said.append(f"{first} {pair.first_offset} {second} {pair.second_offset} {pair.size}")
        for number, mask in sorted(masks.items()):
            named = sorted(self.ebpf(r) for r in range(11) if mask >> r & 1 and r in self._number)
            rest = sum(1 for r in range(11) if mask >> r & 1 and r not in self._number)
            said.append(f"{number}: {' '.join(named)} and {rest} more")
        return "\n".join(said).encode()


def registers_of(i: Instruction) -> tuple[bool, bool]:
    """Whether the fields dst and src of an instruction are registers."""
    if i.cls in (ALU, ALU64):
        return True, bool(i.opcode & X) and i.op not in (END, NEG)
    if i.cls in (JMP, JMP32):
        return i.op != JA, bool(i.opcode & X) and i.op != JA
    if i.cls in (LDX, STX):
        return True, True
    return i.cls == ST or i.opcode == LD_IMM64, False


def implicit(instruction: x86_64_decode.Decoded) -> tuple[str, ...]:
    """The registers that an x86-64 instruction uses by its own definition, not by an operand that it could choose."""
    if instruction.mnemonic.startswith("rep "):
        return _STRING
    if instruction.mnemonic in _COUNTED and isinstance(instruction.operands[-1], x86_64_decode.Register):
        return ("rcx",)
    return ()


def general_fields(instruction: arm64_decode.Decoded) -> tuple[str, ...]:
    """The fields of an ARM64 instruction that are general registers."""
    fields = arm64_decode.fields_of(instruction)
    kind = instruction.kind
    if kind == "vector_move":
        return ("n",) if fields["opcode"] == 7 else ("d",)
    if kind.startswith("vector_"):
        return _GENERAL.get(kind, ())
    if fields.get("V") or (kind.startswith("transfer_") and (fields["size"], fields["opc"]) == (3, 2)):
        return ("n", "m")  # t is a vector register, or says what to prefetch
    return arm64_decode.REGISTER_FIELDS
