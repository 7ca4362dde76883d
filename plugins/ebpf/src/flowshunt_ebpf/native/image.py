"""A program made ready to run: checked for form, references resolved, context accesses rewritten.

The same image feeds every runner, so that they run the same instructions on the same memory.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final
from weakref import WeakSet

import attrs

from flowshunt.errors import InputError
from flowshunt.insn import (
    CALL_K,
    CALL_X,
    DW,
    EXIT_K,
    GOTOL,
    JA_K,
    JMP,
    JMP32,
    LD,
    LD_IMM64,
    LDX,
    MEM,
    PSEUDO_BTF_ID,
    PSEUDO_CALL,
    PSEUDO_FUNC,
    PSEUDO_KFUNC_CALL,
    PSEUDO_MAP_FD,
    PSEUDO_MAP_IDX,
    PSEUDO_MAP_IDX_VALUE,
    PSEUDO_MAP_VALUE,
    R10,
    ST,
    STX,
    Instruction,
    check,
)
from flowshunt_ebpf.contexts.access import context_accesses
from flowshunt_ebpf.contexts.layout import BY_TYPE, CONTEXTS, MEMORY, Context
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.maps.supported import HELPER_KINDS, supported_names
from flowshunt_ebpf.program import MapDefinition, Program, Site
from flowshunt_ebpf.program.helper_calls import helper_name


class Access(IntEnum):
    """What is known of an instruction's access to memory before it runs."""

    NONE = 0  # it has none
    REGION = 1  # nothing: looked up where there is no verdict
    STACK = 2  # inside the frame, whatever happens
    CONTEXT = 3  # a field of the context, if the register is the context pointer
    EITHER = 4  # the same if it is, else as REGION


MAX_INSTRUCTIONS = 1_000_000
"""As in the kernel (BPF_COMPLEXITY_LIMIT_INSNS)."""


@attrs.frozen(eq=False)
class Image:
    """A program ready for every runner. Indices count instructions, not slots.

    Attributes:
        program: where it comes from.
        context: what r1 is.
        maps: the maps that `program.maps` stand for, in that order.
        instructions: as they run: loads of packet pointers from the context are widened.
        targets: where each jump or local call goes, -1 for others.
        functions: the first instruction of each function, the main program's 0 first.
        ends: one past the last instruction of each function.
        callbacks: functions whose address the program takes; the value in a register is this index.
        values: 64-bit immediates, by instruction.
        access: an `Access` for each instruction.
        pointers: for loads that may be of a packet pointer from the context: where the real one lies from r1.
        known_map: the map in r1, for helper calls where the instructions just before say so.
        helpers: numbers of the helpers that it calls.
        sites: those of the program's sites that its native code may be used for.
    """

    program: Program
    context: Context
    maps: tuple[Map, ...]
    instructions: tuple[Instruction, ...]
    targets: tuple[int, ...]
    functions: tuple[int, ...]
    ends: tuple[int, ...]
    callbacks: tuple[int, ...]
    values: Mapping[int, int]
    access: bytes
    pointers: Mapping[int, int]
    known_map: Mapping[int, Map]
    helpers: frozenset[int]
    sites: tuple[Site, ...] = ()

    @property
    def is_prepared(self) -> bool:
        """Whether `prepare` made it just as it is: what runs is what its program says."""
        return self in _PREPARED

    def as_loaded(self) -> Program:
        """The program with the constants of its maps as they stand now, which is what a verifier has to look at.

        Whoever loads it may have set them since the object was read.
        """
        definitions = tuple(m.as_loaded(d) for d, m in zip(self.program.maps, self.maps, strict=True))
        if all(new is old for new, old in zip(definitions, self.program.maps, strict=True)):
            return self.program
        return attrs.evolve(self.program, maps=definitions)

    def freeze(self) -> None:
        """Let nobody change the constants of its maps any more."""
        for m in self.maps:
            m.freeze()


_PREPARED: Final[WeakSet[Image]] = WeakSet()


def checked_context(program: Program, context: Context | None) -> Context:
    """The context that is given, or else that of the program's type. Raises InputError for one that is not ours."""
    if context is None:
        return context_of(program)
    if CONTEXTS.get(context.name) is not context:
        raise InputError(
            f"the context {context.name} is none that programs run in",
            f"program {program.name}",
            f"these are: {', '.join(CONTEXTS)}",
        )
    return context


def context_of(program: Program) -> Context:
    """The context of a program's type. Raises InputError where programs of its type don't run here."""
    context = BY_TYPE.get(program.type)
    if context is None:
        known = ", ".join(sorted({t.name.lower() for t in BY_TYPE if t}))
        raise InputError(
            f"programs of type {program.type.name.lower()} don't run here",
            f"program {program.name}",
            f"these do: {known}",
        )
    return context


def prepare(program: Program, maps: Sequence[Map] = (), *, context: Context | None = None) -> Image:
    """Make a program ready to run.

    Args:
        program: the program.
        maps: a map for each of `program.maps`, in order.
        context: what r1 is; None: by the program's type.

    Raises InputError, naming the instruction, for one that is not valid or can't run here: a helper that is not known,
    a kernel function, a jump out of its function, an access that the context does not allow.
    """
    instructions = program.instructions
    if not instructions:
        raise InputError("it has no instruction", f"program {program.name}", "add at least exit")
    if len(instructions) > MAX_INSTRUCTIONS:
        raise InputError(
            f"it has {len(instructions)} instructions", f"program {program.name}", f"{MAX_INSTRUCTIONS} are allowed"
        )
    if len(maps) != len(program.maps):
        raise InputError(
            f"it names {len(program.maps)} maps; {len(maps)} are given", f"program {program.name}", "give each"
        )
    for definition, m in zip(program.maps, maps, strict=True):
        _check_map(program, definition, m.definition)
    context = checked_context(program, context)
    for index, i in enumerate(instructions):
        wrong = check(i)
        if wrong:
            raise InputError(wrong, program.where(index), "see RFC 9669")
    targets = [-1] * len(instructions)
    values: dict[int, int] = {}
    pointers: dict[int, int] = {}
    access = bytearray(len(instructions))
    callbacks: set[int] = set()
    helpers: set[int] = set()
    known: dict[int, Map] = {}
    in_register: dict[int, Map] = {}
    leaders = _scan_targets(program, targets)
    for index, i in enumerate(instructions):
        if index in leaders:
            in_register.clear()
        cls = i.opcode & 7
        if cls in (LDX, ST, STX):
            base = i.src if cls == LDX or (i.opcode & 0xE0 == 0xC0 and i.imm == 0x100) else i.dst
            inside = base == R10 and -512 <= i.offset <= -i.size_bytes
            access[index] = Access.STACK if inside else Access.REGION
            if cls == LDX:
                in_register.pop(i.dst, None)
            elif i.opcode & 0xE0 == 0xC0 and in_register:
                in_register.clear()
        elif cls in (JMP, JMP32):
            if i.opcode == CALL_K:
                if index not in program.poisoned:
                    _check_call(program, index, i, helpers)
                if not i.src and 1 in in_register:
                    known[index] = in_register[1]
                for register in range(6):
                    in_register.pop(register, None)
            elif i.opcode == CALL_X:
                raise InputError(
                    "a call to an address in a register (callx)",
                    program.where(index),
                    "no runner can check where it leads: call functions and helpers directly",
                )
        elif i.opcode == LD_IMM64:
            values[index] = _value(program, index, i, maps, callbacks)
            in_register.pop(i.dst, None)
            if i.src == PSEUDO_MAP_IDX:
                in_register[i.dst] = maps[i.imm & 0xFFFFFFFF]
        elif cls == LD:
            if context.structure != "__sk_buff":
                raise InputError("legacy packet loads need an __sk_buff", program.where(index), "use packet pointers")
            access[index] = Access.CONTEXT
            in_register.clear()
        elif i.opcode == 0xBF and not i.offset and i.src in in_register:
            in_register[i.dst] = in_register[i.src]
        else:
            in_register.pop(i.dst, None)
    functions, ends = _functions(program, targets)
    if context is not MEMORY:
        instructions = _rewrite(program, targets, context, access, pointers)
    image = Image(
        program,
        context,
        tuple(maps),
        instructions,
        tuple(targets),
        functions,
        ends,
        tuple(sorted(callbacks)),
        MappingProxyType(values),
        bytes(access),
        MappingProxyType(pointers),
        MappingProxyType(known),
        frozenset(helpers),
        _usable_sites(program, instructions, targets, functions, pointers),
    )
    _PREPARED.add(image)
    return image


_MAP_FACTS: Final = ("type", "key_size", "value_size", "max_entries", "flags", "map_extra")


def _check_map(program: Program, declared: MapDefinition | None, made: MapDefinition | None) -> None:
    """A map must be what the program says of it: verdicts rest on that, inner maps and constants included."""
    while declared is not None and made is not None:
        for fact in (*_MAP_FACTS, "is_constant"):
            here, there = getattr(declared, fact), getattr(made, fact)
            if here != there:
                raise InputError(
                    f"map {declared.name} has {fact} {there}, not {here}",
                    f"program {program.name}",
                    "give it maps as it declares them; maps that differ need different names",
                )
        declared, made = declared.inner, made.inner
    if declared is not made:
        raise InputError(
            "what a map of maps holds is not what the program says",
            f"program {program.name}",
            "give it maps as it declares them",
        )


def _scan_targets(program: Program, targets: list[int]) -> set[int]:
    leaders = {0}
    for index, i in enumerate(program.instructions):
        opcode = i.opcode
        if opcode & 7 not in (JMP, JMP32) or opcode in (EXIT_K, CALL_X):
            continue
        if opcode == CALL_K:
            if i.src == PSEUDO_CALL:
                targets[index] = program.target(index, i.imm)
                leaders.add(targets[index])
            continue
        targets[index] = program.target(index, i.imm if opcode == GOTOL else i.offset)
        leaders.add(targets[index])
    return leaders


def _check_call(program: Program, index: int, i: Instruction, helpers: set[int]) -> None:
    if i.src == PSEUDO_KFUNC_CALL:
        function = program.externals.get(index, f"BTF id {i.imm}")
        raise InputError(
            f"a call to the kernel function {function}", program.where(index), "only the kernel runner has those"
        )
    if i.src == PSEUDO_CALL:
        return
    if i.imm not in HELPER_KINDS:
        name = helper_name(i.imm)
        known = f"helper {i.imm} ({name})" if name else f"helper {i.imm}"
        raise InputError(
            f"{known} is not known here" if name is None else f"{known} is not there in user space",
            program.where(index),
            f"these are: {supported_names()}" if name is None else "only the kernel runner has it",
        )
    helpers.add(i.imm)


def _value(program: Program, index: int, i: Instruction, maps: Sequence[Map], callbacks: set[int]) -> int:
    if i.src == 0:
        return i.imm & 0xFFFFFFFFFFFFFFFF
    low, high = i.imm & 0xFFFFFFFF, i.imm >> 32 & 0xFFFFFFFF
    if i.src == PSEUDO_FUNC:
        target = program.target(index, low - (1 << 32) if low >> 31 else low)
        callbacks.add(target)
        return target
    if i.src in (PSEUDO_MAP_FD, PSEUDO_MAP_VALUE):
        raise InputError(
            "it names a map by a file descriptor", program.where(index), "name it by its index in the program"
        )
    if i.src in (PSEUDO_MAP_IDX, PSEUDO_MAP_IDX_VALUE):
        if low >= len(maps):
            raise InputError(f"it names map {low} of {len(maps)}", program.where(index), "give the map")
        chosen = maps[low]
        if i.src == PSEUDO_MAP_IDX:
            return chosen.address
        place = chosen.value_address
        if place is None or high >= chosen.values_bytes:
            raise InputError(
                f"map {chosen.name} has no value at byte {high} that can be named directly",
                program.where(index),
                "only array maps have",
            )
        return place + high
    assert i.src == PSEUDO_BTF_ID
    variable = program.externals.get(index, f"BTF id {low}")
    raise InputError(
        f"it names the kernel variable {variable}", program.where(index), "only the kernel runner has those"
    )


def _functions(program: Program, targets: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    subprograms = program.subprograms
    for sub in subprograms:
        last = program.instructions[sub.end - 1]
        if last.opcode not in (EXIT_K, JA_K, GOTOL):
            raise InputError(
                f"function {sub.name} can run past its end", program.where(sub.end - 1), "end it with exit or a jump"
            )
        for index in range(sub.start, sub.end):
            target = targets[index]
            if target >= 0 and not sub.start <= target < sub.end and program.instructions[index].opcode != CALL_K:
                raise InputError(f"a jump out of function {sub.name}", program.where(index), "jump inside it, or call")
    return tuple(s.start for s in subprograms), tuple(s.end for s in subprograms)


def _usable_sites(
    program: Program,
    instructions: tuple[Instruction, ...],
    targets: list[int],
    functions: tuple[int, ...],
    pointers: Mapping[int, int],
) -> tuple[Site, ...]:
    """The sites that are entered at their start alone, left at their end alone, and not touched by the rewriting."""
    usable: list[Site] = []
    if not program.sites:
        return ()
    landed: dict[int, list[int]] = {}
    for index, target in enumerate(targets):
        if target >= 0:
            landed.setdefault(target, []).append(index)
    end = 0
    for site in program.sites:
        inside = range(site.start, site.end)
        if site.start < end or site.length < 1 or site.end >= len(instructions):
            continue
        if any(start in inside[1:] for start in functions) or any(index in pointers for index in inside):
            continue
        if instructions[site.start : site.end] != program.instructions[site.start : site.end]:
            continue
        if any(by not in inside for index in inside[1:] for by in landed.get(index, ())):
            continue
        if any(targets[index] >= 0 and not index < targets[index] <= site.end for index in inside):
            continue
        usable.append(site)
        end = site.end
    return tuple(usable)


def _rewrite(
    program: Program, targets: list[int], context: Context, access: bytearray, pointers: dict[int, int]
) -> tuple[Instruction, ...]:
    rewritten = list(program.instructions)
    for found in context_accesses(program.instructions, targets, context, program.where):
        if not found.sure:
            access[found.index] = Access.EITHER
            if found.field.pointer is not None:
                pointers[found.index] = found.field.pointer
            continue
        access[found.index] = Access.CONTEXT
        if found.field.pointer is not None:
            i = rewritten[found.index]
            rewritten[found.index] = attrs.evolve(i, opcode=LDX | MEM | DW, offset=found.field.pointer)
    return tuple(rewritten)
