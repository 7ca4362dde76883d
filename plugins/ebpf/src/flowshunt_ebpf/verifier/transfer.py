"""Loads, stores and atomic operations: what must hold, and what they make of a state."""

from typing import TYPE_CHECKING, Final

from flowshunt.insn import (
    CMPXCHG,
    FETCH,
    IND,
    LOAD_ACQ,
    MEMSX,
    PSEUDO_FUNC,
    PSEUDO_MAP_IDX,
    PSEUDO_MAP_IDX_VALUE,
    ST,
    STORE_REL,
    Instruction,
)
from flowshunt_ebpf.program import MapType, ProgramType
from flowshunt_ebpf.verifier import memory
from flowshunt_ebpf.verifier.arithmetic import uninitialised
from flowshunt_ebpf.verifier.context_fields import FieldAccess, FieldKind, Socket, field_access, socket_access
from flowshunt_ebpf.verifier.rejection import UnsafeError
from flowshunt_ebpf.verifier.scalar import const, sign_extend, signed_range
from flowshunt_ebpf.verifier.values import (
    CONTEXT,
    FUNCTION,
    MAP,
    MAP_VALUE,
    MEMORY,
    PACKET,
    PACKET_END,
    PACKET_META,
    SCALAR,
    SOCKET,
    STACK,
    UNKNOWN_BYTES,
    Value,
    constant,
    describe,
    number,
)

if TYPE_CHECKING:
    from flowshunt_ebpf.verifier.analysis import Analysis
    from flowshunt_ebpf.verifier.state import State

_SIGNED_BYTES: Final = {n: number(signed_range(-(1 << 8 * n - 1), (1 << 8 * n - 1) - 1)) for n in (1, 2, 4)}
_POINTERS: Final = {
    FieldKind.PACKET: Value(PACKET),
    FieldKind.PACKET_END: Value(PACKET_END),
    FieldKind.PACKET_META: Value(PACKET_META),
}
_ATOMIC_KINDS: Final = frozenset({STACK, MAP_VALUE, MEMORY})
_LEGACY_TYPES: Final = frozenset({ProgramType.SOCKET_FILTER, ProgramType.SCHED_CLS, ProgramType.SCHED_ACT})


def load(run: "Analysis", state: "State", i: Instruction) -> None:
    """`dst = *(src + offset)`."""
    registers = state.frames[-1].registers
    signed = i.opcode & 0xE0 == MEMSX
    registers[i.dst] = _loaded(run, state, i.src, i.offset, i.size_bytes, "the load", signed=signed)


def _loaded(
    run: "Analysis", state: "State", base: int, offset: int, size: int, use: str, *, signed: bool = False
) -> Value:
    pointer = state.frames[-1].registers[base]
    name = f"r{base}"
    if pointer is None:
        raise uninitialised(base)
    kind = pointer.kind
    if kind == CONTEXT and run.context.structure:
        value = _context_load(run, state, name, pointer, offset, size, signed)
    elif kind == SOCKET:
        memory.not_null(name, pointer, use)
        _unmoved(name, pointer)
        access = socket_access(pointer.of, offset, size)
        if isinstance(access, str):
            raise UnsafeError("socket-access", access, f"{name} is {describe(pointer)}")
        value = UNKNOWN_BYTES[size]
    else:
        first, last = memory.check(name, pointer, offset, size, False, use)
        run.note_access(state.index, False)
        if kind == STACK:
            value = _stack_load(run, state, name, pointer, offset, first, last, size)
        elif kind == MAP_VALUE and pointer.scalar.is_const and pointer.of.constants is not None:
            at = pointer.offset + pointer.scalar.smin + offset
            value = constant(int.from_bytes(pointer.of.constants[at : at + size], "little"))
        else:
            value = UNKNOWN_BYTES[size]
    if signed:
        if value is UNKNOWN_BYTES[size]:
            return _SIGNED_BYTES[size]
        if value.kind != SCALAR:
            return UNKNOWN_BYTES[8]
        return number(sign_extend(value.scalar, 8 * size))
    return value


def _unmoved(name: str, pointer: Value) -> None:
    if pointer.offset or not pointer.scalar.is_const or pointer.scalar.value:
        raise UnsafeError(
            "moved-pointer",
            f"{name} must point to the start",
            f"{name} is {describe(pointer)}",
            "use the pointer as it came, and put the offset into the access",
        )


def _context_access(
    run: "Analysis", index: int, name: str, pointer: Value, offset: int, size: int, write: bool, signed: bool
) -> FieldAccess:
    _unmoved(name, pointer)
    access = field_access(
        run.context, offset, size, write=write, sign_extend=signed, attach_type=run.program.attach_type
    )
    if isinstance(access, str):
        raise UnsafeError("context-access", access, f"{name} is the context pointer, the offset is {offset}")
    run.note_access(index, True)
    return access


def _context_load(
    run: "Analysis", state: "State", name: str, pointer: Value, offset: int, size: int, signed: bool
) -> Value:
    access = _context_access(run, state.index, name, pointer, offset, size, False, signed)
    if access.kind is FieldKind.NUMBER:
        return UNKNOWN_BYTES[size]
    if access.kind is FieldKind.SOCK_COMMON_OR_NULL:
        return Value(SOCKET, id=run.new_id(), of=Socket.COMMON, nullable=True)
    return _POINTERS[access.kind]


def _stack_load(
    run: "Analysis", state: "State", name: str, pointer: Value, offset: int, first: int, last: int, size: int
) -> Value:
    memory.aligned(name, pointer, offset, size, "a load from the stack")
    frame = state.frames[pointer.of]
    run.use_stack(frame.subprogram, first)
    if first != last:
        return UNKNOWN_BYTES[size]
    value = frame.stack.load(first, size)
    if value is None:
        raise UnsafeError(
            "partial-pointer",
            "a pointer on the stack is only loaded whole, with 8 bytes",
            f"{memory.bytes_text(first, size)} of the frame belong to one",
            "load all 8 bytes",
        )
    return value


def store(run: "Analysis", state: "State", i: Instruction) -> None:
    """`*(dst + offset) = src`, or an immediate."""
    registers = state.frames[-1].registers
    if i.opcode & 7 == ST:
        value = constant(i.imm & ((1 << 8 * i.size_bytes) - 1) if i.size_bytes < 8 else i.imm)
    else:
        source = registers[i.src]
        if source is None:
            raise uninitialised(i.src)
        value = source
        if value.kind == SCALAR and not value.id and not value.scalar.is_const and registers[i.dst] is not None:
            base = registers[i.dst]
            if base is not None and base.kind == STACK:
                value = run.linked(registers, i.src)
    _stored(run, state, i.dst, i.offset, i.size_bytes, value, "the store")


def _stored(run: "Analysis", state: "State", base: int, offset: int, size: int, value: Value, use: str) -> None:
    pointer = state.frames[-1].registers[base]
    name = f"r{base}"
    if pointer is None:
        raise uninitialised(base)
    if pointer.kind == CONTEXT and run.context.structure:
        _context_access(run, state.index, name, pointer, offset, size, True, False)
        return
    first, last = memory.check(name, pointer, offset, size, True, use)
    run.note_access(state.index, False)
    kind = pointer.kind
    if kind in (PACKET, PACKET_META):
        _packet_writable(run, name, pointer, use)
        run.writes_packet = True
    if kind != STACK:
        return
    memory.aligned(name, pointer, offset, size, "a store to the stack")
    frame = state.frames[pointer.of]
    run.use_stack(frame.subprogram, first)
    if first != last:
        frame.stack.forget(first, last + size)
        return
    if value.kind != SCALAR:
        if size != 8:
            raise UnsafeError(
                "partial-pointer",
                "a pointer is only stored whole on the stack, with 8 bytes",
                f"the value is {describe(value)}",
                "store all 8 bytes",
            )
        if value.kind == STACK and frame is not state.frames[-1]:
            raise UnsafeError(
                "stack-pointer-escapes",
                "a stack pointer is not stored in a caller's frame",
                f"{name} is {describe(pointer)}, the value is {describe(value)}",
                "keep it in the function's own frame",
            )
    frame.stack.store(first, size, value)


def _packet_writable(run: "Analysis", name: str, pointer: Value, use: str) -> None:
    if run.context.program_type not in run.packet_writers:
        raise UnsafeError(
            "read-only",
            f"{use} needs memory that may be written",
            f"{name} is {describe(pointer)}, and this kind of program may not write to packets",
        )


def atomic(run: "Analysis", state: "State", i: Instruction) -> None:
    """Atomic operations, load-acquire and store-release."""
    registers = state.frames[-1].registers
    size = i.size_bytes
    base = i.src if i.imm == LOAD_ACQ else i.dst
    if i.imm != LOAD_ACQ and registers[i.src] is None:
        raise uninitialised(i.src)
    if i.imm == CMPXCHG and registers[0] is None:
        raise uninitialised(0)
    pointer = registers[base]
    name = f"r{base}"
    use = "the atomic operation"
    if pointer is None:
        raise uninitialised(base)
    if pointer.kind not in _ATOMIC_KINDS and pointer.kind != SCALAR:
        raise UnsafeError(
            "atomic", f"{use} needs a pointer to the stack or to a map's value", f"{name} is {describe(pointer)}"
        )
    memory.check(name, pointer, i.offset, size, i.imm != LOAD_ACQ, use)
    memory.aligned(name, pointer, i.offset, size, use)
    if i.imm == LOAD_ACQ:
        registers[i.dst] = _loaded(run, state, i.src, i.offset, size, use)
        return
    if i.imm == STORE_REL:
        source = registers[i.src]
        assert source is not None
        _stored(run, state, i.dst, i.offset, size, source, use)
        return
    old = UNKNOWN_BYTES[size]
    if pointer.kind == STACK:
        loaded = _loaded(run, state, base, i.offset, size, use)
        if loaded.kind == SCALAR:
            old = loaded
    _stored(run, state, base, i.offset, size, UNKNOWN_BYTES[size], use)
    if i.imm == CMPXCHG:
        registers[0] = old
    elif i.imm & FETCH:
        registers[i.src] = old


def load_immediate(run: "Analysis", state: "State", i: Instruction) -> None:
    """The 64-bit immediate load: a number, a map, a map's value or a function."""
    registers = state.frames[-1].registers
    if i.src == 0:
        registers[i.dst] = number(const(i.imm))
    elif i.src == PSEUDO_FUNC:
        registers[i.dst] = Value(FUNCTION, of=run.function_at(state.index, i.imm))
    elif i.src in (PSEUDO_MAP_IDX, PSEUDO_MAP_IDX_VALUE):
        number_ = i.imm & 0xFFFFFFFF
        if number_ >= len(run.maps):
            raise UnsafeError("map", f"the program has {len(run.maps)} maps", f"map {number_} is named")
        facts = run.maps[number_]
        if i.src == PSEUDO_MAP_IDX:
            registers[i.dst] = Value(MAP, of=facts)
            return
        at = i.imm >> 32 & 0xFFFFFFFF
        if facts.type != MapType.ARRAY or facts.definition.max_entries != 1 or at >= facts.value_size:
            raise UnsafeError(
                "map-value",
                "a value that is named directly needs an array map of one entry, and an offset inside its value",
                f"{facts.name} has {facts.definition.max_entries} of {facts.value_size} bytes, the offset is {at}",
            )
        registers[i.dst] = Value(MAP_VALUE, offset=at, of=facts)
    else:
        raise UnsafeError(
            "instruction", "a 64-bit load names a number, a map or a function", "it names something of the kernel's"
        )


def legacy_load(run: "Analysis", state: "State", i: Instruction) -> "State | None":
    """`r0 = packet[imm + src]`, which ends the function with r0 = 0 where that is outside the packet.

    Gives the state at that end where it is a subprogram's; else None.
    """
    frame = state.frames[-1]
    registers = frame.registers
    if run.context.program_type not in _LEGACY_TYPES:
        raise UnsafeError(
            "legacy-load", "this kind of program has no legacy loads from the packet", "", "use packet pointers"
        )
    pointer = registers[6]
    if pointer is None or pointer.kind != CONTEXT:
        raise UnsafeError("legacy-load", "the load needs the context in r6", f"r6 is {describe(pointer)}")
    _unmoved("r6", pointer)
    if i.opcode & 0xE0 == IND and registers[i.src] is None:
        raise uninitialised(i.src)
    if state.references or state.lock is not None:
        raise UnsafeError(
            "legacy-load", "the load may end the function, so nothing may be left to release or unlock before it"
        )
    run.note_access(state.index, True)
    for n in range(1, 6):
        registers[n] = None
    size = i.size_bytes
    ended = None
    if len(state.frames) > 1:
        registers[0] = constant(0)
        ended = state.copy(state.index)
    registers[0] = UNKNOWN_BYTES[size]
    return ended
