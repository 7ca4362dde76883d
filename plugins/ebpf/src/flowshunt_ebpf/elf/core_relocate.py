"""CO-RE: what an instruction was compiled to know of a type, filled in anew from the BTF that it will run with.

A fact that the target does not have (a missing field's offset, a missing enumerator's value) poisons its instruction: a
call to a helper that does not exist takes its place, so that code behind a check that fails can stay.
"""

from enum import IntEnum
from functools import cached_property
from typing import Final

import attrs

from flowshunt import insn
from flowshunt.insn import Instruction
from flowshunt_ebpf.elf.btf import ENUMS, Btf, Kind
from flowshunt_ebpf.elf.btf_ext import CoreRelocation
from flowshunt_ebpf.elf.core_access import Field, enumerator, essential_name, parse_access, resolve_field
from flowshunt_ebpf.elf.core_match import Comparison, find_field, same_kind
from flowshunt_ebpf.elf.error import ObjectError

POISON: Final = 0xBAD2310
"""The helper number of a poisoned instruction, the one that libbpf uses."""


class Fact(IntEnum):
    """What is asked (`enum bpf_core_relo_kind`)."""

    FIELD_BYTE_OFFSET = 0
    FIELD_BYTE_SIZE = 1
    FIELD_EXISTS = 2
    FIELD_SIGNED = 3
    FIELD_LSHIFT_U64 = 4
    FIELD_RSHIFT_U64 = 5
    TYPE_ID_LOCAL = 6
    TYPE_ID_TARGET = 7
    TYPE_EXISTS = 8
    TYPE_SIZE = 9
    ENUMVAL_EXISTS = 10
    ENUMVAL_VALUE = 11
    TYPE_MATCHES = 12


_FIELD_FACTS = frozenset(f for f in Fact if f <= Fact.FIELD_RSHIFT_U64)
_ENUM_FACTS = frozenset({Fact.ENUMVAL_EXISTS, Fact.ENUMVAL_VALUE})


@attrs.frozen
class Answer:
    """A fact.

    Attributes:
        value: None: the target does not have it.
        checked: what is in the instruction must be the local value.
        size: bytes of the field, where its offset is asked; 0: not known or a bit field.
        type: the field's type id, where its size counts.
        place: bits from the object's start: two candidates must agree on it.
    """

    value: int | None
    checked: bool = True
    size: int = 0
    type: int = 0
    place: int = 0


class CoreRelocator:
    """Answers relocations of one object against one target."""

    def __init__(self, local: Btf, target: Btf, *, big_endian: bool) -> None:
        self.local = local
        self.target = target
        self.big_endian = big_endian
        self._comparison = Comparison(local, target)
        self._answered: dict[tuple[int, str, int], tuple[Answer, Answer]] = {}

    @cached_property
    def _flavors(self) -> dict[str, list[int]]:
        """Essential name to the target's types that have a flavor of it."""
        found: dict[str, list[int]] = {}
        for name in self.target.names_with("___"):
            essential = essential_name(name)
            if essential != name:
                found.setdefault(essential, []).extend(self.target.named(name))
        return found

    def _candidates(self, root: int, where: str) -> list[int]:
        """The target's types that may be what a local type is: of its name and kind."""
        type_ = self.local.type(root)
        name = essential_name(type_.name)
        if not name:
            raise ObjectError("is on a type without a name", where, "name the type")
        ids = [*self.target.named(name), *self._flavors.get(name, ())]
        return [id_ for id_ in ids if same_kind(self.target.kind(id_), type_.kind)]

    def answers(self, relocation: CoreRelocation, where: str) -> tuple[Answer, Answer]:
        """The local and the target's answer. Raises ObjectError where the question is broken or ambiguous."""
        key = relocation.type, relocation.access, relocation.kind
        found = self._answered.get(key)
        if found is None:
            found = self._answered[key] = self._answers(relocation, where)
        return found

    def _answers(self, relocation: CoreRelocation, where: str) -> tuple[Answer, Answer]:
        try:
            fact = Fact(relocation.kind)
        except ValueError:
            raise ObjectError(f"asks for the unknown fact {relocation.kind}", where, "use a newer version") from None
        access = parse_access(relocation.access, where)
        root = relocation.type
        if fact in _FIELD_FACTS:
            return self._field(fact, resolve_field(self.local, root, access, where), root, where)
        if fact in _ENUM_FACTS:
            return self._enumerator(fact, root, access, where)
        if access != (0,):
            raise ObjectError(f"has the access string {relocation.access!r}, not '0'", where, "compile it anew")
        return self._type(fact, root, where)

    def _field(self, fact: Fact, local: Field, root: int, where: str) -> tuple[Answer, Answer]:
        mine = self._describe(fact, local, where)
        found = [
            self._describe(fact, field, where)
            for id_ in self._candidates(root, where)
            if (field := find_field(local, self.target, id_)) is not None
        ]
        return mine, _one(found, Answer(0 if fact is Fact.FIELD_EXISTS else None), where)

    def _describe(self, fact: Fact, field: Field, where: str) -> Answer:
        place = field.bit_offset
        if fact is Fact.FIELD_EXISTS:
            return Answer(1, place=place)
        btf = field.btf
        if field.element and fact not in (Fact.FIELD_BYTE_OFFSET, Fact.FIELD_BYTE_SIZE):
            raise ObjectError(f"asks for {fact.name} of an array's element", where, "ask it of a member")
        size = btf.size_of(field.type)
        offset, bits = place // 8, size * 8
        if field.bits:
            offset, size, bits = _word_of(place, field.bits, size, where)
        type_ = btf.strip(field.type)
        if fact is Fact.FIELD_BYTE_OFFSET:
            plain = not field.bits
            return Answer(offset, plain, size if plain else 0, field.type if plain else 0, place)
        if fact is Fact.FIELD_BYTE_SIZE:
            return Answer(size, not field.bits, place=place)
        if fact is Fact.FIELD_SIGNED:
            signed = type_.flag if type_.kind in ENUMS else type_.kind is Kind.INT and type_.encoding & 1
            return Answer(int(signed), place=place)
        if fact is Fact.FIELD_RSHIFT_U64:
            return Answer(64 - bits, place=place)
        within = place - offset * 8
        shift = (8 - size) * 8 + within if self.big_endian else 64 - within - bits
        return Answer(shift, not field.bits, place=place)

    def _enumerator(self, fact: Fact, root: int, access: tuple[int, ...], where: str) -> tuple[Answer, Answer]:
        _, name, value = enumerator(self.local, root, access, where)
        essential = essential_name(name)
        exists = fact is Fact.ENUMVAL_EXISTS
        found = []
        for id_ in self._candidates(root, where):
            for member in self.target.strip(id_).members:
                if essential_name(member.name) == essential:
                    found.append(Answer(1 if exists else member.value))
                    break
        return Answer(1 if exists else value), _one(found, Answer(0 if exists else None), where)

    def _type(self, fact: Fact, root: int, where: str) -> tuple[Answer, Answer]:
        mine = Answer(self._type_value(fact, self.local, root), fact not in (Fact.TYPE_ID_LOCAL, Fact.TYPE_ID_TARGET))
        if fact is Fact.TYPE_ID_LOCAL:
            return mine, mine
        alike = self._comparison.match if fact is Fact.TYPE_MATCHES else self._comparison.alike
        found = [
            Answer(self._type_value(fact, self.target, id_))
            for id_ in self._candidates(root, where)
            if alike(root, id_)
        ]
        return mine, _one(found, Answer(0), where)

    @staticmethod
    def _type_value(fact: Fact, btf: Btf, id_: int) -> int:
        if fact is Fact.TYPE_SIZE:
            return btf.size_of(id_)
        return id_ if fact in (Fact.TYPE_ID_LOCAL, Fact.TYPE_ID_TARGET) else 1

    def apply(self, instruction: Instruction, relocation: CoreRelocation, where: str) -> Instruction | str:
        """The instruction with the target's answer filled in; a text instead: why it is poisoned.

        Raises ObjectError where the instruction does not hold what it was compiled to hold, or can't hold the answer.
        """
        mine, theirs = self.answers(relocation, where)
        if theirs.value is None:
            return self.question(relocation)
        mode = instruction.opcode & 7
        if instruction.opcode == insn.LD_IMM64:
            self._check(instruction.imm, mine, where)
            return Instruction(instruction.opcode, instruction.dst, instruction.src, 0, insn.signed64(theirs.value))
        if mode in (insn.ALU, insn.ALU64) and instruction.source == insn.K:
            self._check(instruction.imm, mine, where)
            if not -(1 << 31) <= theirs.value < 1 << 32:
                raise ObjectError(f"the answer {theirs.value} does not fit an immediate", where, "")
            return attrs.evolve(instruction, imm=insn.signed32(theirs.value, wide=False))
        if mode in (insn.LDX, insn.ST, insn.STX):
            self._check(instruction.offset, mine, where)
            return self._memory(instruction, mine, theirs, where)
        raise ObjectError("is on an instruction that holds no such fact", where, "compile it anew")

    @staticmethod
    def _check(held: int, mine: Answer, where: str) -> None:
        if mine.checked and mine.value is not None and (held - mine.value) & 0xFFFFFFFF:
            raise ObjectError(f"the instruction holds {held}, its own types say {mine.value}", where, "compile it anew")

    def _memory(self, instruction: Instruction, mine: Answer, theirs: Answer, where: str) -> Instruction:
        assert theirs.value is not None
        if theirs.value > 0x7FFF:
            raise ObjectError(f"the offset {theirs.value} does not fit an instruction", where, "")
        opcode = instruction.opcode
        if mine.size and theirs.size and mine.size != theirs.size:
            if not self._may_resize(mine, theirs):
                raise ObjectError(
                    f"the field has {mine.size} bytes in the object, {theirs.size} in the target",
                    where,
                    "read it with BPF_CORE_READ_BITFIELD or bpf_core_read",
                )
            if mine.size == instruction.size_bytes:
                size = next((s for s, bytes_ in insn.SIZE_BYTES.items() if bytes_ == theirs.size), None)
                if size is None:
                    raise ObjectError(f"the field has {theirs.size} bytes in the target", where, "")
                opcode = opcode & ~insn.SIZE_MASK | size
        return attrs.evolve(instruction, opcode=opcode, offset=theirs.value)

    def _may_resize(self, mine: Answer, theirs: Answer) -> bool:
        """Pointers, and unsigned integers, may be loaded with another size."""
        one, other = self.local.strip(mine.type), self.target.strip(theirs.type)
        if one.kind is Kind.PTR and other.kind is Kind.PTR:
            return True
        return one.kind is Kind.INT and other.kind is Kind.INT and not (one.encoding & 1 or other.encoding & 1)

    def question(self, relocation: CoreRelocation) -> str:
        """What a relocation asks, in words."""
        name = self.local.type(relocation.type).name or f"type {relocation.type}"
        fact = Fact(relocation.kind).name.lower().replace("_", " ")
        if Fact(relocation.kind) in _FIELD_FACTS:
            field = resolve_field(self.local, relocation.type, parse_access(relocation.access, ""), "")
            path = "".join(f".{s.name}" if s.name else f"[{s.index}]" for s in field.steps[1:])
            return f"{fact} of {name}{path} is not in {self.target.file}"
        if Fact(relocation.kind) in _ENUM_FACTS:
            _, member, _ = enumerator(self.local, relocation.type, parse_access(relocation.access, ""), "")
            return f"{fact} of {name}'s {member} is not in {self.target.file}"
        return f"{fact} of {name} is not in {self.target.file}"


def _one(found: list[Answer], none: Answer, where: str) -> Answer:
    if not found:
        return none
    if any((a.value, a.place) != (found[0].value, found[0].place) for a in found):
        raise ObjectError(
            f"{len(found)} types of the target have the name and differ in the answer", where, "give the type a flavor"
        )
    return found[0]


def _word_of(place: int, bits: int, size: int, where: str) -> tuple[int, int, int]:
    """The bytes that hold a bit field: offset, size, and its bits."""
    offset = place // 8 // size * size
    while place + bits - offset * 8 > size * 8:
        if size >= 8:
            raise ObjectError("is on a bit field that no load of 8 bytes covers", where, "read it in parts")
        size *= 2
        offset = place // 8 // size * size
    return offset, size, bits
