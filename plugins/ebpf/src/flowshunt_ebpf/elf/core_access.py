"""What a CO-RE relocation points at: an access string ("0:1:2") resolved against a type.

The first number counts whole objects of the root type, each further one a member of a struct or union or an element of
an array. Members without a name are passed through; the path that remains is what is looked for in another BTF.
"""

import re
from typing import Final

import attrs

from flowshunt_ebpf.elf.btf import COMPOSITES, ENUMS, Btf, Kind, Type
from flowshunt_ebpf.elf.error import ObjectError

MOST_STEPS: Final = 64

_FLAVOR = re.compile(r"(?s)(.*[^_])___[^_]")


def essential_name(name: str) -> str:
    """A type's name without its flavor: `task_struct___old` is `task_struct`."""
    found = _FLAVOR.match(name)
    return found.group(1) if found else name


@attrs.frozen
class Step:
    """One step of a path: a named member, or (name None) an array's element or a whole object.

    Attributes:
        container: the type id that is stepped into.
        index: of the member or element.
    """

    container: int
    index: int
    name: str | None = None


@attrs.frozen
class Field:
    """A field found at the end of a path.

    Attributes:
        steps: the path, unnamed members left out.
        bit_offset: from the root object's start.
        bits: of a bit field; 0: none.
        type: its type id.
        element: the path ends at an array's element or a whole object, not at a member.
    """

    btf: Btf
    steps: tuple[Step, ...]
    bit_offset: int
    bits: int
    type: int
    element: bool


def parse_access(access: str, where: str) -> tuple[int, ...]:
    """The numbers of an access string. Raises ObjectError for anything else."""
    parts = access.split(":")
    if len(parts) > MOST_STEPS or not all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts):
        raise ObjectError(f"has the access string {access!r}, not numbers with colons", where, "compile it anew")
    return tuple(int(p) for p in parts)


def resolve_field(btf: Btf, root: int, access: tuple[int, ...], where: str) -> Field:
    """Follow an access through the types that it was compiled with. Raises ObjectError where it does not fit them."""
    first = access[0]
    bit_offset = first * btf.size_of(root) * 8
    steps = [Step(root, first)]
    current = btf.strip(root)
    bits, element, type_ = 0, True, root
    for index in access[1:]:
        if current.kind in COMPOSITES:
            if index >= len(current.members):
                raise _misfit(f"{current.name or 'a struct'} has {len(current.members)} members, no {index}", where)
            member = current.members[index]
            bit_offset += member.offset
            if member.name:
                steps.append(Step(current.id, index, member.name))
            bits, element, type_ = member.bits, False, member.type
        elif current.kind is Kind.ARRAY:
            if index >= current.length and not is_flexible(btf, steps, current):
                raise _misfit(f"an array has {current.length} elements, no {index}", where)
            bit_offset += index * btf.size_of(current.type) * 8
            steps.append(Step(current.id, index))
            bits, element, type_ = 0, True, current.type
        else:
            raise _misfit(f"a {current.kind.name} has no members", where)
        current = btf.strip(type_)
    return Field(btf, tuple(steps), bit_offset, bits, type_, element)


def is_flexible(btf: Btf, steps: list[Step], array: Type) -> bool:
    """Whether an array may be read past its length: it has at most one element and ends its struct."""
    if array.length > 1 or not steps or steps[-1].name is None:
        return False
    container = btf.type(steps[-1].container)
    return steps[-1].index == len(container.members) - 1


def _misfit(what: str, where: str) -> ObjectError:
    return ObjectError(f"does not fit its types: {what}", where, "compile it anew")


def enumerator(btf: Btf, root: int, access: tuple[int, ...], where: str) -> tuple[Type, str, int]:
    """The enum that an access names, and its enumerator's name and value. Raises ObjectError where there is none."""
    enum = btf.strip(root)
    if enum.kind not in ENUMS or len(access) != 1 or access[0] >= len(enum.members):
        raise _misfit(f"no enumerator {access} of a {enum.kind.name}", where)
    member = enum.members[access[0]]
    return enum, member.name, member.value
