"""What printers call things: labels, functions, maps, helpers; and what both print alike."""

from collections.abc import Callable, Sequence

import attrs

from flowshunt import insn
from flowshunt.insn import Instruction
from flowshunt_ebpf.program.helper_calls import helper_name


@attrs.frozen
class Names:
    """The names that one instruction's text may use.

    Attributes:
        jump: a jump's distance to a label, or to "+2".
        function: a call's distance to the function's name; None: it has none.
        maps: the names of the program's maps, by index.
    """

    jump: Callable[[int], str]
    function: Callable[[int], str | None]
    maps: Sequence[str] = ()


BARE = Names(lambda distance: f"{distance:+}", lambda distance: None)
"""No names: jumps and calls by distance."""


def helper_text(number: int) -> str:
    """A helper as the kernel's tools write it, `bpf_map_lookup_elem#1`; the number alone where it is not known."""
    name = helper_name(number)
    return f"{name}#{number}" if name else str(number)


def raw_text(i: Instruction) -> str:
    """An instruction by its fields."""
    return f".insn {i.opcode:#04x}, {i.dst}, {i.src}, {i.offset}, {i.imm}"


def wide_text(i: Instruction, names: Names) -> str | None:
    """What a 64-bit immediate load loads, where that is a map, a value, a variable or a function; None: a number."""
    first, second = i.imm & 0xFFFFFFFF, i.imm >> 32 & 0xFFFFFFFF
    if i.src == 0:
        return None
    if i.src in (insn.PSEUDO_MAP_IDX, insn.PSEUDO_MAP_IDX_VALUE) and first < len(names.maps):
        value = "" if i.src == insn.PSEUDO_MAP_IDX else f"[0] + {second}"
        return f"map[{names.maps[first]}]{value}"
    if i.src in (insn.PSEUDO_MAP_VALUE, insn.PSEUDO_MAP_IDX_VALUE):
        kind = "map_by_fd" if i.src == insn.PSEUDO_MAP_VALUE else "map_by_idx"
        return f"map_val({kind}({first})) + {second}"
    if i.src == insn.PSEUDO_BTF_ID:
        return f"var_addr({first}, {second})" if second else f"var_addr({first})"
    if i.src == insn.PSEUDO_FUNC:
        distance = (first ^ 0x80000000) - 0x80000000
        return f"code_addr({names.function(distance) or f'{distance:+}'})"
    return f"{'map_by_fd' if i.src == insn.PSEUDO_MAP_FD else 'map_by_idx'}({first})"
