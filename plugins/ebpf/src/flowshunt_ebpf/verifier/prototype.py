"""What a helper asks of its arguments, what it gives back, and what it does besides: the columns of the helpers' table.

The kinds are the kernel's (`bpf_func_proto`; `check_func_arg` of kernel/bpf/verifier.c).
"""

from enum import Enum, auto
from typing import Final

import attrs

from flowshunt_ebpf.program import MapType, ProgramType


class Arg(Enum):
    """What a helper takes in one of r1 to r5. Every one must be initialised.

    Memory may be on the stack, in the packet (where `Prototype.packet_access` says so), a map's key or value, or memory
    of known size; what is written must be writable.
    """

    ANYTHING = auto()  # a number; also a pointer, since whoever may load programs may see addresses
    CONTEXT = auto()  # the context pointer, unmoved
    CONTEXT_OR_NULL = auto()
    CONST_MAP = auto()  # a map
    MAP_KEY = auto()  # readable memory of the map's key size
    MAP_VALUE = auto()  # readable memory of the map's value size
    UNINIT_MAP_VALUE = auto()  # writable memory of the map's value size; need not be initialised
    MEM = auto()  # readable memory, of the size in the next argument
    MEM_OR_NULL = (
        auto()
    )  # the same, or the constant 0 with the size 0; no pointer that may be null (the kernel takes those)
    MEM_WRITE = auto()  # readable and writable memory, of the size in the next argument
    MEM_WRITE_OR_NULL = auto()
    UNINIT_MEM = auto()  # writable memory, of the size in the next argument; need not be initialised
    FIXED_MEM = auto()  # readable memory of `Prototype.sizes` bytes
    FIXED_MEM_WRITE = auto()  # readable and writable memory of `Prototype.sizes` bytes, aligned to its size
    FIXED_UNINIT_MEM = (
        auto()
    )  # writable memory of `Prototype.sizes` bytes, aligned to its size; need not be initialised
    CONST_SIZE = auto()  # the size of the memory before: 1 to 2^29 - 1
    CONST_SIZE_OR_ZERO = auto()
    CONST_ALLOC_SIZE_OR_ZERO = auto()  # a known constant: the size of the memory that the helper gives
    CONST_STR = auto()  # a zero-terminated string in a frozen read-only map of one value, at a constant offset
    RECORD = auto()  # a reserved record of a ring buffer, unmoved; the helper takes it back
    SPIN_LOCK = auto()  # the bpf_spin_lock of a map value
    SOCK_COMMON = auto()  # any socket pointer that is not null
    SOCK_RELEASE = auto()  # a referenced socket; the helper takes it back
    FUNC = auto()  # a function of the program; see `Prototype.callback`
    STACK_OR_NULL = auto()  # a pointer into the stack, or the constant 0: what the callback gets


SIZES: Final = frozenset({Arg.CONST_SIZE, Arg.CONST_SIZE_OR_ZERO})
"""Arguments that give the size of the memory in the argument before."""

SIZED: Final = frozenset({Arg.MEM, Arg.MEM_OR_NULL, Arg.MEM_WRITE, Arg.MEM_WRITE_OR_NULL, Arg.UNINIT_MEM})
"""Memory arguments whose size is in the next argument."""

FIXED: Final = frozenset({Arg.FIXED_MEM, Arg.FIXED_MEM_WRITE, Arg.FIXED_UNINIT_MEM})
"""Memory arguments of a size that the prototype says."""

NULLABLE: Final = frozenset({Arg.CONTEXT_OR_NULL, Arg.MEM_OR_NULL, Arg.MEM_WRITE_OR_NULL, Arg.STACK_OR_NULL})
"""Arguments that may be the constant 0."""

WRITTEN: Final = frozenset(
    {
        Arg.UNINIT_MAP_VALUE, Arg.MEM_WRITE, Arg.MEM_WRITE_OR_NULL, Arg.UNINIT_MEM, Arg.FIXED_MEM_WRITE,
        Arg.FIXED_UNINIT_MEM,
    }
)  # fmt: skip
"""Memory arguments that the helper writes."""

UNINITIALISED: Final = frozenset({Arg.UNINIT_MAP_VALUE, Arg.UNINIT_MEM, Arg.FIXED_UNINIT_MEM})
"""Memory arguments whose bytes need not be initialised; the helper initialises them all."""


class Returns(Enum):
    """What a helper leaves in r0."""

    INTEGER = auto()
    VOID = auto()  # nothing: r0 may not be read
    PROCESSOR = auto()  # an integer, at least 0 and below the number of processors
    LENGTH = auto()  # a signed integer of at most the size in the size argument
    MAP_VALUE_OR_NULL = auto()  # of the map in r1; an inner map or null where that holds maps
    RECORD_OR_NULL = auto()  # memory of the size in the CONST_ALLOC_SIZE_OR_ZERO argument, to be released
    SOCKET_OR_NULL = auto()  # a full socket
    SOCK_COMMON_OR_NULL = auto()
    TCP_SOCK_OR_NULL = auto()


class CallbackArg(Enum):
    """What a callback finds in one of r1 to r5; the other registers are not initialised."""

    INDEX = auto()  # a number
    MAP = auto()  # the map that the helper was given
    KEY = auto()  # readable memory of the map's key size
    VALUE = auto()  # a value of the map, not null
    CONTEXT = auto()  # what the caller gave as STACK_OR_NULL


@attrs.frozen
class Callback:
    """How a helper calls a function of the program.

    Attributes:
        arguments: what r1, r2, ... hold.
        highest: it returns 0 to this number.
        maps: map types whose elements it can be called for; empty: it is not called for a map's.
    """

    arguments: tuple[CallbackArg, ...]
    highest: int = 1
    maps: frozenset[MapType] = frozenset()


@attrs.frozen
class Prototype:
    """One helper.

    Attributes:
        number, name: the name without `bpf_`.
        args: what it takes in r1, r2, ...; registers behind are not looked at.
        returns: what it leaves in r0; r1 to r5 are not initialised afterwards.
        types: the program types that may call it.
        changes_packet: pointers to packet, packet end and metadata are worth nothing afterwards.
        packet_access: whether memory arguments may lie in the packet.
        gpl_only: only for programs under a licence that agrees with the GPL.
        acquires: what it returns has to be released (unless it is null).
        borrows: what it returns is valid as long as the socket in r1 is held.
        releases: it takes back what is in this argument (from 0); None: nothing.
        sizes: bytes of each fixed-size memory argument, by position.
        callback: how it calls the function in its FUNC argument.
        maps: the map types that its CONST_MAP argument may have; empty: it takes none.
        writes_map: it changes the map, which may then not be read-only for programs.
    """

    number: int
    name: str
    args: tuple[Arg, ...]
    returns: Returns
    types: frozenset[ProgramType]
    changes_packet: bool = False
    packet_access: bool = False
    gpl_only: bool = False
    acquires: bool = False
    borrows: bool = False
    releases: int | None = None
    sizes: tuple[int, ...] = (0, 0, 0, 0, 0)
    callback: Callback | None = None
    maps: frozenset[MapType] = frozenset()
    writes_map: bool = False
