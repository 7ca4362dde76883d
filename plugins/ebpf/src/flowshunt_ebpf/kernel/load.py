"""Loading into the kernel: maps with their contents, programs, and what the kernel tells of them."""

import ctypes
import mmap
import os
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import attrs

from flowshunt.insn import (
    CALL_K,
    LD_IMM64,
    PSEUDO_MAP_FD,
    PSEUDO_MAP_IDX,
    PSEUDO_MAP_IDX_VALUE,
    PSEUDO_MAP_VALUE,
    encode,
)  # fmt: skip
from flowshunt_ebpf.kernel import syscall
from flowshunt_ebpf.kernel.syscall import KernelError, bpf
from flowshunt_ebpf.program import AttachType, MapDefinition, MapFlag, MapType, Program, ProgramType

LOG_BYTES: Final = 1 << 24
_NAME_BYTES: Final = 16


def _name(name: str) -> bytes:
    return re.sub(r"[^A-Za-z0-9_.]", "_", name).encode()[: _NAME_BYTES - 1].ljust(_NAME_BYTES, b"\0")


def load_btf(data: bytes) -> int:
    """Load a BTF; gives its descriptor, 0 where the kernel refuses it or there is none."""
    if not data:
        return 0
    room = ctypes.create_string_buffer(data, len(data))
    try:
        fd, _ = bpf(syscall.BTF_LOAD, struct.pack("<QQIII", ctypes.addressof(room), 0, len(data), 0, 0))
    except KernelError:
        return 0
    return fd


def create_map(definition: MapDefinition, *, inner_fd: int = 0, btf_fd: int = 0) -> int:
    """Create a map in the kernel; gives its descriptor. Raises KernelError.

    `btf_fd`: of the BTF that the definition's type ids are of, which locks in values ask for.
    """
    inner = 0
    if definition.inner is not None and not inner_fd:
        inner = inner_fd = create_map(definition.inner)
    typed = btf_fd if definition.value_type_id and not definition.contents else 0
    try:
        attributes = struct.pack(
            "<7I16sIIIIIQ",
            definition.type,
            definition.key_size,
            definition.value_size,
            definition.max_entries or _implied_entries(definition),
            definition.flags & ~int(MapFlag.INNER_MAP) | _implied_flags(definition),
            inner_fd,
            0,
            _name(definition.name),
            0,
            typed,
            definition.key_type_id if typed else 0,
            definition.value_type_id if typed else 0,
            0,
            definition.map_extra,
        )
        fd, _ = bpf(syscall.MAP_CREATE, attributes)
    except KernelError as error:
        if typed:
            return create_map(definition, inner_fd=inner_fd)
        raise KernelError(error.errno or 0, f"map {definition.name} ({definition.type_name})") from None
    finally:
        if inner:
            os.close(inner)
    if definition.contents:
        value = definition.contents.ljust(definition.value_size, b"\0")
        update(fd, bytes(4), value)
        if definition.flags & MapFlag.RDONLY_PROG:
            bpf(syscall.MAP_FREEZE, struct.pack("<I", fd))
    return fd


def _implied_flags(definition: MapDefinition) -> int:
    return MapFlag.NO_PREALLOC if definition.type == MapType.LPM_TRIE else 0


def _implied_entries(definition: MapDefinition) -> int:
    """As libbpf does: an array of perf events that says nothing has one for each processor."""
    return (os.cpu_count() or 1) if definition.type == MapType.PERF_EVENT_ARRAY else 0


def _element(command: int, fd: int, key: bytes, value: ctypes.Array[ctypes.c_char] | None, flags: int = 0) -> None:
    room = ctypes.create_string_buffer(key, max(len(key), 1))
    place = ctypes.addressof(value) if value is not None else 0
    bpf(command, struct.pack("<IIQQQ", fd, 0, ctypes.addressof(room) if key else 0, place, flags))


def update(fd: int, key: bytes, value: bytes, flags: int = 0) -> None:
    """Put a value into a map in the kernel. An empty key pushes to a queue, stack or bloom filter."""
    _element(syscall.MAP_UPDATE, fd, key, ctypes.create_string_buffer(value, len(value)), flags)


def lookup(fd: int, key: bytes, size: int) -> bytes | None:
    """A value of `size` bytes from a map in the kernel; None where there is none."""
    room = ctypes.create_string_buffer(size)
    try:
        _element(syscall.MAP_LOOKUP, fd, key, room)
    except KernelError:
        return None
    return room.raw


def pop_all(fd: int, size: int) -> list[bytes]:
    """Take all values of `size` bytes out of a queue or stack in the kernel, in the order in which they come."""
    taken: list[bytes] = []
    room = ctypes.create_string_buffer(size)
    while True:
        try:
            _element(syscall.MAP_LOOKUP_AND_DELETE, fd, b"", room)
        except KernelError:
            return taken
        taken.append(room.raw)


def ring_records(fd: int, size: int) -> list[bytes]:
    """Take the records out of a ring buffer of `size` bytes in the kernel, up to the first that is not complete.

    As linux/bpf.h and the kernel's ringbuf.c lay it out: a page with the consumer's position, one with the producer's,
    and the data twice over. A record has a length, whose upper two bits say busy and discarded, and a page offset.
    """
    page, taken = mmap.PAGESIZE, []
    with (
        mmap.mmap(fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as consumer,
        mmap.mmap(fd, page + 2 * size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page) as producer,
    ):
        at, end = struct.unpack_from("=Q", consumer)[0], struct.unpack_from("=Q", producer)[0]
        while at < end:
            place = page + at % size
            state = struct.unpack_from("=I", producer, place)[0]
            length = state & 0x3FFFFFFF
            if state & 1 << 31:
                break
            if not state & 1 << 30:
                taken.append(producer[place + 8 : place + 8 + length])
            at += (length + 8 + 7) & ~7
        struct.pack_into("=Q", consumer, 0, at)
    return taken


def delete(fd: int, key: bytes) -> None:
    """Take a key out of a map in the kernel."""
    _element(syscall.MAP_DELETE, fd, key, None)


def keys(fd: int, size: int) -> list[bytes]:
    """The keys of a map in the kernel."""
    found: list[bytes] = []
    room = ctypes.create_string_buffer(size)
    following = ctypes.create_string_buffer(size)
    first = True
    while True:
        place = 0 if first else ctypes.addressof(room)
        try:
            bpf(syscall.MAP_GET_NEXT_KEY, struct.pack("<IIQQQ", fd, 0, place, ctypes.addressof(following), 0))
        except KernelError:
            return found
        first = False
        found.append(following.raw)
        room.raw = following.raw


def bytecode(program: Program, map_fds: Sequence[int]) -> bytes:
    """A program's bytes with its maps named by descriptors."""
    bound = []
    for i in program.instructions:
        if i.opcode == LD_IMM64 and i.src in (PSEUDO_MAP_IDX, PSEUDO_MAP_IDX_VALUE):
            source = PSEUDO_MAP_FD if i.src == PSEUDO_MAP_IDX else PSEUDO_MAP_VALUE
            upper = i.imm >> 32 << 32
            bound.append(attrs.evolve(i, src=source, imm=upper | map_fds[i.imm & 0xFFFFFFFF]))
        else:
            bound.append(i)
    return encode(bound)


@attrs.frozen
class Debug:
    """What the kernel wants to know of a program's functions and lines: bpf_func_info and bpf_line_info records."""

    btf_fd: int
    functions: bytes = attrs.field(repr=False)
    lines: bytes = attrs.field(repr=False)


def debug_of(program: Program, btf_fd: int) -> Debug | None:
    """A program's debug information; None where it lacks some: each function needs its type."""
    ids = {f.start: f.btf_id for f in program.functions}
    starts = [s.start for s in program.subprograms]
    if not btf_fd or not all(ids.get(start) for start in starts):
        return None
    slots = program.slot_of
    functions = b"".join(struct.pack("<II", slots[start], ids[start]) for start in starts)
    lines = b"".join(
        struct.pack("<IIII", slots[x.start], x.file_offset, x.text_offset, x.line << 10 | min(x.column, 1023))
        for x in program.lines
    )
    return Debug(btf_fd, functions, lines)


def load_bytes(
    code: bytes,
    *,
    program_type: int,
    attach_type: int = 0,
    license: str = "GPL",
    name: str = "",
    log: ctypes.Array[ctypes.c_char] | None = None,
    log_level: int = 1,
    debug: Debug | None = None,
) -> int:
    """Load a program; gives its descriptor. Raises KernelError."""
    functions = ctypes.create_string_buffer(debug.functions if debug else b"")
    lines = ctypes.create_string_buffer(debug.lines if debug else b"")
    room = ctypes.create_string_buffer(code, len(code))
    terms = ctypes.create_string_buffer(license.encode())
    attributes = struct.pack(
        "<IIQQIIQII16sIIIIQIIQI",
        program_type,
        len(code) // 8,
        ctypes.addressof(room),
        ctypes.addressof(terms),
        log_level if log is not None else 0,
        len(log) if log is not None else 0,
        ctypes.addressof(log) if log is not None else 0,
        0,
        0,
        _name(name),
        0,
        attach_type,
        debug.btf_fd if debug else 0,
        8 if debug else 0,
        ctypes.addressof(functions) if debug else 0,
        len(debug.functions) // 8 if debug else 0,
        16 if debug and debug.lines else 0,
        ctypes.addressof(lines) if debug and debug.lines else 0,
        len(debug.lines) // 16 if debug else 0,
    )
    fd, _ = bpf(syscall.PROG_LOAD, attributes)
    return fd


def load_program(
    program: Program, map_fds: Sequence[int], *, program_type: ProgramType | None = None, btf_fd: int = 0
) -> tuple[int, str]:
    """Load a program; gives its descriptor and the verifier's log (its last lines tell what the analysis took).

    `btf_fd`: of the program's BTF; 0: it goes without debug information.
    Raises KernelError with the verifier's log where the kernel refuses it.
    """
    kind = program.type if program_type is None else program_type
    attach = program.attach_type
    if attach is None:
        attach = AttachType.XDP if kind == ProgramType.XDP else AttachType.CGROUP_INET_INGRESS
    code = bytecode(program, map_fds)
    terms = program.license or "GPL"
    log = ctypes.create_string_buffer(1 << 16)
    load = partial(
        load_bytes, code, program_type=kind, attach_type=attach, license=terms, name=program.name,
        debug=debug_of(program, btf_fd),
    )  # fmt: skip
    try:
        fd = load(log=log, log_level=4)
    except KernelError as error:
        full = ctypes.create_string_buffer(LOG_BYTES)
        with suppress(KernelError):
            os.close(load(log=full))
        text = full.value.decode(errors="replace")
        raise KernelError(error.errno or 0, f"program {program.name} refused by the kernel", text) from None
    return fd, log.value.decode(errors="replace")


@attrs.frozen
class ProgramInfo:
    """What the kernel tells of a loaded program.

    Attributes:
        translated: bytes of the instructions after the verifier's rewriting.
        native: the machine code that its JIT made; empty where it may not be read.
        native_bytes: how many bytes that is.
        verified: instructions that the verifier looked at.
    """

    translated: int
    native_bytes: int
    native: bytes = attrs.field(repr=False)
    verified: int


def _ask(fd: int, native: int, length: int) -> bytes:
    size = 232
    info = ctypes.create_string_buffer(size)
    struct.pack_into("<I", info, 16, length)
    struct.pack_into("<Q", info, 24, native)
    bpf(syscall.GET_INFO, struct.pack("<IIQ", fd, size, ctypes.addressof(info)))
    return info.raw


def program_info(fd: int) -> ProgramInfo:
    """Ask the kernel about a loaded program."""
    first = _ask(fd, 0, 0)
    native_bytes, translated = struct.unpack_from("<II", first, 16)
    verified = struct.unpack_from("<I", first, 216)[0]
    code = ctypes.create_string_buffer(max(1, native_bytes))
    _ask(fd, ctypes.addressof(code), native_bytes)
    return ProgramInfo(translated, native_bytes, code.raw[:native_bytes] if any(code.raw) else b"", verified)


def uses_calls(program: Program) -> bool:
    """Whether a program calls anything."""
    return any(i.opcode == CALL_K for i in program.instructions)
