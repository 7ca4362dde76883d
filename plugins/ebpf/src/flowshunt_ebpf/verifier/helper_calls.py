"""Calls of helpers: what their arguments must be, what they leave in r0, and what they change.

The rules are those of `check_helper_call` and `check_func_arg` of the kernel's kernel/bpf/verifier.c; what each helper
takes stands in `prototypes`.
"""

from typing import TYPE_CHECKING, Final

import attrs

from flowshunt_ebpf.native.machine import MAX_CPUS
from flowshunt_ebpf.program import MapType
from flowshunt_ebpf.program.helper_calls import helper_name
from flowshunt_ebpf.verifier import memory
from flowshunt_ebpf.verifier.context_fields import Socket
from flowshunt_ebpf.verifier.map_facts import MapFacts
from flowshunt_ebpf.verifier.prototypes import (
    FIXED,
    NULLABLE,
    PROTOTYPES,
    SIZED,
    SIZES,
    WRITTEN,
    Arg,
    Prototype,
    Returns,
    why_not,
)
from flowshunt_ebpf.verifier.rejection import UnsafeError
from flowshunt_ebpf.verifier.scalar import signed_range, unsigned_range
from flowshunt_ebpf.verifier.values import (
    CONTEXT,
    FUNCTION,
    MAP,
    MAP_KEY,
    MAP_VALUE,
    MEMORY,
    NUMBER,
    PACKET,
    PACKET_END,
    PACKET_META,
    SCALAR,
    SOCKET,
    STACK,
    Value,
    describe,
    number,
)

if TYPE_CHECKING:
    from flowshunt_ebpf.verifier.analysis import Analysis
    from flowshunt_ebpf.verifier.state import State

TAIL_CALL: Final = 12
SPIN_LOCK: Final = 93
SPIN_UNLOCK: Final = 94

_MEMORY_KINDS: Final = frozenset({STACK, PACKET, PACKET_META, MAP_VALUE, MAP_KEY, MEMORY})
_PACKET_KINDS: Final = frozenset({PACKET, PACKET_META})
_LOST: Final = frozenset({PACKET, PACKET_META, PACKET_END})
_RETURNED: Final = {
    Returns.INTEGER: NUMBER,
    Returns.PROCESSOR: number(unsigned_range(0, MAX_CPUS - 1)),
}
_WRITERS: Final = frozenset({TAIL_CALL, 97, 190})
"""Helpers that write to the packet and leave pointers to it as they are: tail calls (whatever the other program does),
skb_ecn_set_ce, xdp_store_bytes."""
_LOOKUP: Final = 1
_INDEX_BYTES: Final = 4
_ARRAYS: Final = frozenset({MapType.ARRAY, MapType.PERCPU_ARRAY})
"""Maps that have every value from the start: a lookup of a known index inside them gives one."""
_OF_MAPS: Final = frozenset({MapType.ARRAY_OF_MAPS, MapType.HASH_OF_MAPS})


@attrs.define(slots=True)
class Call:
    """What is learned of a call while its arguments are looked at.

    Attributes:
        map: the map among them.
        length: the greatest value of the last size argument.
        function: the number of the subprogram that is given.
        reference: what is released.
        key: the number that a key of 4 bytes on the stack holds; None: not known.
    """

    prototype: Prototype
    name: str
    map: MapFacts | None = None
    length: int = 0
    function: int = -1
    reference: int = 0
    key: int | None = None


def prototype_of(run: "Analysis", number_: int) -> Prototype:
    """A helper's prototype. Raises UnsafeError where the program may not call it."""
    wrong = why_not(number_, run.program_type, run.program.license)
    if wrong is not None:
        raise UnsafeError("helper", wrong, "", "use another helper")
    return PROTOTYPES[number_]


def check_call(run: "Analysis", state: "State", number_: int) -> Call:
    """Check a call's arguments, and give what is learned of it. Raises UnsafeError."""
    prototype = prototype_of(run, number_)
    call = Call(prototype, helper_name(number_) or f"helper {number_}")
    registers = state.frames[-1].registers
    if state.lock is not None and number_ != SPIN_UNLOCK:
        raise UnsafeError(
            "lock", "no helper but bpf_spin_unlock is called while a lock is held", call.name, "unlock before the call"
        )
    for position, arg in enumerate(prototype.args):
        value = registers[position + 1]
        if value is None:
            raise UnsafeError(
                "uninitialised",
                f"{call.name} reads r{position + 1}",
                f"r{position + 1} is not initialised",
                "set all arguments before the call",
            )
        _check_argument(run, state, call, position, arg, value)
    _check_map(call)
    return call


def _wrong(
    call: Call, position: int, value: Value, needed: str, rule: str = "argument", way_out: str = ""
) -> UnsafeError:
    return UnsafeError(
        rule,
        f"argument {position + 1} of {call.name} must be {needed}",
        f"r{position + 1} is {describe(value)}",
        way_out,
    )


def _is_null(value: Value) -> bool:
    return value.kind == SCALAR and value.scalar.is_const and not value.scalar.value


def _unmoved(value: Value) -> bool:
    return not value.offset and value.scalar.is_const and not value.scalar.value


def _check_argument(run: "Analysis", state: "State", call: Call, position: int, arg: Arg, value: Value) -> None:
    if arg is Arg.ANYTHING:
        return
    if arg in NULLABLE and _is_null(value):
        return
    kind = value.kind
    register = f"r{position + 1}"
    if arg in SIZES:
        _check_size(run, state, call, position, arg, value)
    elif arg in SIZED:
        if kind not in _MEMORY_KINDS:
            raise _wrong(call, position, value, "a pointer to memory")
        _memory_kind(run, call, position, arg, value)
    elif arg in (Arg.MAP_KEY, Arg.MAP_VALUE, Arg.UNINIT_MAP_VALUE):
        assert call.map is not None
        size = call.map.key_size if arg is Arg.MAP_KEY else call.map.value_size
        _check_memory(run, state, call, position, arg, value, size)
        if arg is Arg.MAP_KEY:
            call.key = _known_key(state, value, size)
    elif arg in FIXED:
        size = call.prototype.sizes[position]
        _check_memory(run, state, call, position, arg, value, size)
        if arg is not Arg.FIXED_MEM:
            memory.aligned(register, value, 0, size, call.name)
    elif arg in (Arg.CONTEXT, Arg.CONTEXT_OR_NULL):
        if kind != CONTEXT or not run.context.structure:
            raise _wrong(call, position, value, "the context pointer")
        if not _unmoved(value):
            raise _wrong(call, position, value, "the context pointer as the program was given it", "moved-pointer")
    elif arg is Arg.CONST_MAP:
        if kind != MAP:
            raise _wrong(call, position, value, "a map")
        memory.not_null(register, value, call.name)
        call.map = value.of
    elif arg is Arg.CONST_ALLOC_SIZE_OR_ZERO:
        if kind != SCALAR or not value.scalar.is_const or value.scalar.value >= memory.MAX_OFFSET:
            raise _wrong(call, position, value, "a known number, below 2^29", "size", "use a constant")
        call.length = value.scalar.value
    elif arg is Arg.CONST_STR:
        _check_string(call, position, value)
    elif arg is Arg.RECORD:
        if kind != MEMORY or not value.reference or not _unmoved(value):
            raise _wrong(call, position, value, "a reserved record, from its start", "reference")
        memory.not_null(register, value, call.name)
        call.reference = value.reference
    elif arg in (Arg.SOCK_COMMON, Arg.SOCK_RELEASE):
        _check_socket(call, position, arg, value)
    elif arg is Arg.SPIN_LOCK:
        _check_lock(state, call, position, value)
    elif arg is Arg.FUNC:
        if kind != FUNCTION:
            raise _wrong(call, position, value, "a function of the program")
        call.function = value.of
    elif arg is Arg.STACK_OR_NULL:
        if kind != STACK:
            raise _wrong(call, position, value, "a stack pointer, or 0")
    else:
        raise _wrong(call, position, value, f"{arg.name.lower()}, which this verifier does not know")


def _memory_kind(run: "Analysis", call: Call, position: int, arg: Arg, value: Value) -> None:
    memory.not_null(f"r{position + 1}", value, call.name)
    if value.kind in _PACKET_KINDS and run.context.structure:
        if not call.prototype.packet_access:
            raise _wrong(
                call, position, value, "memory outside the packet", "packet-argument", "copy it to the stack first"
            )
        if arg in WRITTEN and run.context.program_type not in run.packet_writers:
            raise _wrong(call, position, value, "memory that may be written", "read-only")


def _check_memory(
    run: "Analysis", state: "State", call: Call, position: int, arg: Arg, value: Value, size: int
) -> None:
    """The argument must be a pointer to `size` bytes; what is written there is forgotten."""
    register = f"r{position + 1}"
    if value.kind not in _MEMORY_KINDS:
        raise _wrong(call, position, value, f"a pointer to {size} bytes of memory")
    _memory_kind(run, call, position, arg, value)
    written = arg in WRITTEN
    first, last = memory.check(register, value, 0, size, written, call.name)
    if written and value.kind in _PACKET_KINDS:
        run.writes_packet = True
    if value.kind != STACK:
        return
    frame = state.frames[value.of]
    run.use_stack(frame.subprogram, first)
    if written:
        frame.stack.forget(first, last + size)


def _known_key(state: "State", pointer: Value, size: int) -> int | None:
    if pointer.kind != STACK or size != _INDEX_BYTES or not pointer.scalar.is_const:
        return None
    cell = state.frames[pointer.of].stack.cells.get(pointer.offset + pointer.scalar.smin)
    if cell is None or cell[0] != size:  # as in the kernel, which knows a key that was stored as such
        return None
    held = cell[1]
    return held.scalar.value if held.kind == SCALAR and held.scalar.is_const else None


def _check_size(run: "Analysis", state: "State", call: Call, position: int, arg: Arg, value: Value) -> None:
    """The size of the memory in the argument before."""
    if value.kind != SCALAR:
        raise _wrong(call, position, value, "a number: the size of the memory before")
    scalar = value.scalar
    if scalar.smin < 0:
        raise _wrong(call, position, value, "a size that is not negative", "size", "use an unsigned number, or mask it")
    if scalar.umax >= memory.MAX_OFFSET:
        raise _wrong(call, position, value, "a size with an upper bound", "size", "compare it with the bytes there are")
    if not scalar.umin and arg is Arg.CONST_SIZE:
        raise _wrong(call, position, value, "a size above 0", "size", "compare it with 0 first")
    call.length = scalar.umax
    pointer = state.frames[-1].registers[position]
    assert pointer is not None
    before = call.prototype.args[position - 1]
    if _is_null(pointer):
        if scalar.umax:
            raise _wrong(call, position, value, "0, since the memory before it is null", "size")
        return
    _check_memory(run, state, call, position - 1, before, pointer, scalar.umax)


def _check_string(call: Call, position: int, value: Value) -> None:
    if value.kind != MAP_VALUE or value.nullable:
        raise _wrong(call, position, value, "a string in a read-only map", "string")
    facts: MapFacts = value.of
    contents = facts.constants
    if contents is None:
        raise _wrong(call, position, value, "a string in a read-only map of one value", "string", "make it a constant")
    if not value.scalar.is_const:
        raise _wrong(call, position, value, "a string at a known offset", "string")
    at = value.offset + value.scalar.smin
    if not 0 <= at < facts.value_size or 0 not in contents[at:]:
        raise _wrong(call, position, value, "a string that ends with a zero byte", "string")


def _check_socket(call: Call, position: int, arg: Arg, value: Value) -> None:
    if value.kind != SOCKET:
        raise _wrong(call, position, value, "a socket pointer")
    memory.not_null(f"r{position + 1}", value, call.name)
    if not _unmoved(value):
        raise _wrong(call, position, value, "a socket pointer as it came", "moved-pointer")
    if arg is Arg.SOCK_RELEASE:
        if not value.reference:
            raise _wrong(call, position, value, "a socket that was looked up and not released yet", "reference")
        call.reference = value.reference


def _check_lock(state: "State", call: Call, position: int, value: Value) -> None:
    """bpf_spin_lock and bpf_spin_unlock: `process_spin_lock` of the kernel."""
    if value.kind != MAP_VALUE or value.nullable:
        raise _wrong(call, position, value, "the spin lock of a map's value, which is not null", "lock")
    facts: MapFacts = value.of
    if facts.lock is None:
        raise _wrong(
            call,
            position,
            value,
            "the spin lock of a map's value",
            "lock",
            "give the value a struct bpf_spin_lock, and BTF",
        )
    if not value.scalar.is_const or value.offset + value.scalar.smin != facts.lock:
        raise _wrong(call, position, value, f"the spin lock, at byte {facts.lock} of the value", "lock")
    key = (facts, value.id)
    if call.prototype.number == SPIN_LOCK:
        if state.lock is not None:
            raise UnsafeError("lock", "only one lock may be held", "a lock is held already", "unlock it first")
        state.lock = key
    else:
        if state.lock is None:
            raise UnsafeError("lock", "a lock is unlocked that is not held", "", "lock it first")
        if state.lock != key:
            raise UnsafeError("lock", "the lock that is unlocked must be the one that is held")
        state.lock = None


def _check_map(call: Call) -> None:
    facts, prototype = call.map, call.prototype
    if facts is None:
        return
    allowed = prototype.callback.maps if prototype.callback is not None else prototype.maps
    if facts.type not in (allowed or prototype.maps):
        raise UnsafeError(
            "map-type",
            f"{call.name} does not take maps of type {facts.definition.type_name}",
            f"r1 is the map {facts.name}",
            "use a map of another type, or another helper",
        )
    if prototype.writes_map and facts.read_only:
        raise UnsafeError("read-only", f"{call.name} needs a map that programs may write", f"{facts.name} is read-only")


def finish_call(run: "Analysis", state: "State", call: Call) -> None:
    """What a call leaves: r0, lost registers, lost packet pointers, references."""
    prototype = call.prototype
    registers = state.frames[-1].registers
    first = registers[1]
    if call.reference:
        release(state, call.reference, call.name)
    if prototype.changes_packet:
        lose_packet(state)
    if prototype.changes_packet or prototype.number in _WRITERS:
        run.writes_packet = True
    for n in range(1, 6):
        registers[n] = None
    registers[0] = _result(run, state, call, first)


def _result(run: "Analysis", state: "State", call: Call, first: Value | None) -> Value | None:
    prototype = call.prototype
    returns = prototype.returns
    fixed = _RETURNED.get(returns)
    if fixed is not None:
        return fixed
    if returns is Returns.VOID:
        return None
    if returns is Returns.LENGTH:
        return number(signed_range(-4095, max(call.length, 0)))
    id = run.new_id()
    if returns is Returns.MAP_VALUE_OR_NULL:
        facts = call.map
        assert facts is not None
        if facts.type in _OF_MAPS:
            if facts.inner is None:
                raise UnsafeError("map-type", f"{facts.name} says nothing of its inner maps", "", "declare them")
            return Value(MAP, id=id, of=facts.inner, nullable=True)
        known = facts.type in _ARRAYS and call.key is not None and call.key < facts.definition.max_entries
        return Value(MAP_VALUE, id=id, of=facts, nullable=not (known and prototype.number == _LOOKUP))
    reference = 0
    if prototype.acquires:
        reference = id
        state.references = (*state.references, (id, state.index))
    elif prototype.borrows and first is not None:
        reference = first.reference
    if returns is Returns.RECORD_OR_NULL:
        return Value(MEMORY, id=id, range=call.length, of=True, nullable=True, reference=reference)
    kind = {
        Returns.SOCKET_OR_NULL: Socket.FULL,
        Returns.SOCK_COMMON_OR_NULL: Socket.COMMON,
        Returns.TCP_SOCK_OR_NULL: Socket.TCP,
    }[returns]
    return Value(SOCKET, id=id, of=kind, nullable=True, reference=reference)


def release(state: "State", reference: int, name: str) -> None:
    """Give a reference back: every pointer that came with it is worth nothing afterwards."""
    if all(r[0] != reference for r in state.references):
        raise UnsafeError("reference", f"{name} takes back what is to be released once", "it is released already")
    state.references = tuple(r for r in state.references if r[0] != reference)
    state.replace(lambda value: NUMBER if value.reference == reference else value)


def lose_packet(state: "State") -> None:
    """Pointers to the packet are worth nothing after its head or tail was moved."""
    state.replace(lambda value: NUMBER if value.kind in _LOST else value)
