"""Whether types of two BTFs are the same thing, by the three measures that CO-RE has: field, type, and exact match.

The rules are those of the kernel's tools/lib/bpf/relo_core.c, stated in its comments: fields of structs may move and
grow; integers may change size and sign; pointers, floats and composites are alike by kind.
"""

from flowshunt_ebpf.elf.btf import COMPOSITES, ENUMS, Btf, Kind, Type
from flowshunt_ebpf.elf.core_access import Field, Step, essential_name, is_flexible

MOST_DEPTH = 32


def same_kind(one: Kind, other: Kind) -> bool:
    """Whether two kinds count as one: enums of 32 and 64 bits do."""
    return one is other or (one in ENUMS and other in ENUMS)


def find_field(local: Field, btf: Btf, root: int) -> Field | None:
    """The field of another BTF's type that a local one stands for; None where there is none."""
    first = local.steps[0]
    bit_offset = first.index * btf.size_of(root) * 8 if first.index else 0
    steps = [Step(root, first.index)]
    current, bits, element, type_ = btf.strip(root), 0, True, root
    for step in local.steps[1:]:
        if step.name is not None:
            found = _find_member(local.btf, step, btf, current, set())
            if found is None:
                return None
            container, index, offset = found
            member = container.members[index]
            bit_offset += offset
            steps.append(Step(container.id, index, member.name))
            bits, element, type_ = member.bits, False, member.type
        else:
            if current.kind is not Kind.ARRAY:
                return None
            if step.index >= current.length and not is_flexible(btf, steps, current):
                return None
            bit_offset += step.index * btf.size_of(current.type) * 8
            steps.append(Step(current.id, step.index))
            bits, element, type_ = 0, True, current.type
        current = btf.strip(type_)
    return Field(btf, tuple(steps), bit_offset, bits, type_, element)


def _find_member(local: Btf, step: Step, btf: Btf, container: Type, searched: set[int]) -> tuple[Type, int, int] | None:
    """A member by name, members without a name searched too: its struct, its index, its offset in bits."""
    if container.kind not in COMPOSITES or container.id in searched or len(searched) > MOST_DEPTH:
        return None
    searched.add(container.id)
    wanted = local.type(step.container).members[step.index].type
    for index, member in enumerate(container.members):
        if not member.name:
            found = _find_member(local, step, btf, btf.strip(member.type), searched)
            if found is not None:
                return found[0], found[1], found[2] + member.offset
        elif member.name == step.name:
            return (container, index, member.offset) if fields_alike(local, wanted, btf, member.type) else None
    return None


def fields_alike(local: Btf, one_id: int, btf: Btf, other_id: int) -> bool:
    """Whether a member of one type can stand for a member of the other."""
    for _ in range(MOST_DEPTH):
        one, other = local.strip(one_id), btf.strip(other_id)
        if one.kind in COMPOSITES and other.kind in COMPOSITES:
            return True
        if not same_kind(one.kind, other.kind):
            return False
        if one.kind in (Kind.PTR, Kind.FLOAT):
            return True
        if one.kind is Kind.FWD or one.kind in ENUMS:
            names = essential_name(one.name), essential_name(other.name)
            return not all(names) or names[0] == names[1]
        if one.kind is Kind.INT:
            return one.bit_offset == 0 and other.bit_offset == 0
        if one.kind is not Kind.ARRAY:
            return False
        one_id, other_id = one.type, other.type
    return False


class Comparison:
    """Compares types of two BTFs. A pair that is met again while it is compared, or later, is not compared anew."""

    def __init__(self, local: Btf, btf: Btf) -> None:
        self.local = local
        self.btf = btf
        self._met: dict[tuple[int, int, bool | None], bool] = {}

    def alike(self, one_id: int, other_id: int, depth: int = 0) -> bool:
        """Whether a type exists in the other BTF as this one: its kind, and through pointers what it points to."""
        one, other = self.local.strip(one_id), self.btf.strip(other_id)
        key = (one.id, other.id, None)
        if key not in self._met and depth <= MOST_DEPTH:
            self._met[key] = True
            self._met[key] = self._alike(one, other, depth)
        return self._met.get(key, False)

    def _alike(self, one: Type, other: Type, depth: int) -> bool:
        if not same_kind(one.kind, other.kind):
            return False
        if one.kind in COMPOSITES or one.kind in ENUMS or one.kind in (Kind.VOID, Kind.FWD):
            return True
        if one.kind is Kind.INT:
            return one.bit_offset == 0 and other.bit_offset == 0
        if one.kind in (Kind.PTR, Kind.ARRAY):
            return self.alike(one.type, other.type, depth + 1)
        if one.kind is Kind.FUNC_PROTO:
            return len(one.members) == len(other.members) and all(
                self.alike(a, b, depth + 1) for a, b in zip(_signature(one), _signature(other), strict=True)
            )
        return False

    def match(self, one_id: int, other_id: int, *, pointed: bool = False, depth: int = 0) -> bool:
        """Whether everything that a local type says holds of the other one: its members, sizes and signs too.

        Behind a pointer, structs are alike by name, and a forward declaration stands for a struct or union.
        """
        one, other = self.local.strip(one_id), self.btf.strip(other_id)
        key = (one.id, other.id, pointed)
        if key not in self._met and depth <= MOST_DEPTH:
            self._met[key] = True
            self._met[key] = self._match(one, other, pointed, depth)
        return self._met.get(key, False)

    def _match(self, one: Type, other: Type, pointed: bool, depth: int) -> bool:
        if one.name and other.name and essential_name(one.name) != essential_name(other.name):
            return False
        if pointed and (one.kind is Kind.FWD) != (other.kind is Kind.FWD):
            forward, whole = (one, other) if one.kind is Kind.FWD else (other, one)
            return whole.kind is (Kind.UNION if forward.flag else Kind.STRUCT)
        if not same_kind(one.kind, other.kind):
            return False
        if one.kind is Kind.VOID:
            return True
        if one.kind is Kind.FWD:
            return one.flag == other.flag
        if one.kind in ENUMS:
            return one.size == other.size and {m.name for m in one.members} <= {m.name for m in other.members}
        if one.kind in COMPOSITES:
            return pointed or self._members_match(one, other, depth)
        if one.kind is Kind.INT:
            return one.size == other.size and (one.encoding & 1) == (other.encoding & 1)
        if one.kind is Kind.PTR:
            return self.match(one.type, other.type, pointed=True, depth=depth + 1)
        if one.kind is Kind.ARRAY:
            return one.length == other.length and self.match(one.type, other.type, pointed=pointed, depth=depth + 1)
        if one.kind is Kind.FUNC_PROTO:
            return len(one.members) == len(other.members) and all(
                self.match(a, b, pointed=pointed, depth=depth + 1)
                for a, b in zip(_signature(one), _signature(other), strict=True)
            )
        return False

    def _members_match(self, one: Type, other: Type, depth: int) -> bool:
        named = {member.name: member.type for member in other.members}
        return one.kind is other.kind and all(
            member.name in named and self.match(member.type, named[member.name], depth=depth + 1)
            for member in one.members
        )


def _signature(proto: Type) -> list[int]:
    return [proto.type, *(m.type for m in proto.members)]
