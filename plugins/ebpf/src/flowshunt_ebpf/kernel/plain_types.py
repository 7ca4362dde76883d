"""Types for programs that bring none: the kernel asks for those of functions before it allows callbacks and tail calls.

BTF as include/uapi/linux/btf.h lays it out: a header, type records, and strings.
"""

import struct
from typing import Final

import attrs

from flowshunt_ebpf.program import Function, Program

_KIND_INT: Final = 1
_KIND_FUNC: Final = 12
_KIND_FUNC_PROTO: Final = 13
_INT: Final = 1
_PROTO: Final = 2


def with_plain_types(program: Program) -> Program:
    """A program without types, with some: each function is `int name(void)`, static or global as it says."""
    if program.btf:
        return program
    linkages = {f.start: f.linkage for f in program.functions}
    strings = b"\0int\0"
    types = struct.pack("<IIII", 1, _KIND_INT << 24, 4, 1 << 24 | 32)
    types += struct.pack("<III", 0, _KIND_FUNC_PROTO << 24, _INT)
    functions = []
    for number, subprogram in enumerate(program.subprograms):
        linkage = linkages.get(subprogram.start, "static")
        types += struct.pack("<III", len(strings), _KIND_FUNC << 24 | (linkage == "global" or not number), _PROTO)
        strings += f"function_{number}\0".encode()
        functions.append(Function(subprogram.name, subprogram.start, linkage, _PROTO + 1 + number))
    header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    return attrs.evolve(program, btf=header + types + strings, functions=tuple(functions))
