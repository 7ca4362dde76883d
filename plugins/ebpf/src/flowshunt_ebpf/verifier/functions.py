"""Calls of the program's own functions: local calls, callbacks of helpers, global functions, and their ends."""

from typing import TYPE_CHECKING, Final

import attrs

from flowshunt_ebpf.program import AttachType, ProgramType
from flowshunt_ebpf.verifier.globals import Parameter, ParameterKind, check_parameters
from flowshunt_ebpf.verifier.helper_calls import Call, lose_packet
from flowshunt_ebpf.verifier.prototypes import CallbackArg
from flowshunt_ebpf.verifier.rejection import UnsafeError
from flowshunt_ebpf.verifier.scalar import unsigned_range
from flowshunt_ebpf.verifier.stack import Stack
from flowshunt_ebpf.verifier.state import Frame, Registers, State
from flowshunt_ebpf.verifier.values import (
    MAP,
    MAP_KEY,
    MAP_VALUE,
    NUMBER,
    PACKET,
    PACKET_META,
    SCALAR,
    STACK,
    Value,
    describe,
    number,
)

if TYPE_CHECKING:
    from flowshunt_ebpf.verifier.analysis import Analysis

_LOOP_LIMIT: Final = 1 << 23
"""Turns of bpf_loop (BPF_MAX_LOOPS)."""
_EGRESS: Final = 3
_RESULTS: Final = {ProgramType.CGROUP_SKB: 1}
"""The greatest result of program types whose result is checked (`check_return_code` of the kernel's verifier)."""


def result_limit(type_: ProgramType, attach_type: AttachType | None) -> int | None:
    """The greatest result that a program may have; None: any."""
    limit = _RESULTS.get(type_)
    if limit is not None and attach_type == AttachType.CGROUP_INET_EGRESS:
        return _EGRESS
    return limit


@attrs.frozen
class GlobalFunction:
    """A function that is verified by itself, and what its callers are to know.

    Attributes:
        name: for messages.
        parameters: what it is verified with.
        changes_packet: whether packet pointers are lost with a call.
        returns: whether it gives a number.
    """

    name: str
    parameters: tuple[Parameter, ...]
    changes_packet: bool
    returns: bool


def stack_pointer(frame: int) -> Value:
    """r10 of a frame."""
    return Value(STACK, of=frame)


def enter(run: "Analysis", state: State, subprogram: int) -> None:
    """A local call of a static function."""
    caller = state.frames[-1]
    registers = caller.registers
    arguments = registers[1:6]
    _push(run, state, subprogram, [None, *arguments, None, None, None, None])
    registers[0:6] = [None] * 6


def _push(
    run: "Analysis", state: State, subprogram: int, registers: Registers, callback: int = 0, most: int = 0
) -> None:
    number_ = len(state.frames)
    if number_ >= run.limits.frames:
        raise UnsafeError(
            "call-depth",
            f"calls may be {run.limits.frames} functions deep, the program included",
            f"function {run.name_of(subprogram)} would be the next one",
            "call less deep; functions may not call themselves",
        )
    registers.append(stack_pointer(number_))
    frame = Frame(number_, subprogram, state.index, registers, Stack(), callback, most)
    frame.entered = (state.references, state.lock)
    state.frames.append(frame)
    run.note_call(state)
    state.index = run.start_of(subprogram)


def call_global(run: "Analysis", state: State, function: GlobalFunction) -> None:
    """A call of a global function: its arguments are checked, its body by itself."""
    if state.lock is not None:
        raise UnsafeError("lock", "no global function is called while a lock is held", function.name, "unlock before")
    check_parameters(run, state, function.name, function.parameters)
    registers = state.frames[-1].registers
    if function.changes_packet:
        for n, p in enumerate(function.parameters, 1):
            value = registers[n]
            if p.kind is ParameterKind.MEMORY and value is not None and value.kind in (PACKET, PACKET_META):
                # To the function it is memory like any other, which nothing takes away.
                raise UnsafeError(
                    "global-function",
                    f"argument {n} of global function {function.name}, which may move the packet, is not in it",
                    f"r{n} is {describe(value)}",
                    "copy it to the stack first, or make the function static",
                )
        lose_packet(state)
    registers[0:6] = [NUMBER if function.returns else None, *[None] * 5]
    state.index += 1


def callback(run: "Analysis", state: State, call: Call) -> State | None:
    """The state in which a helper calls the function that it was given; None where it never does."""
    described = call.prototype.callback
    assert described is not None
    caller = state.frames[-1].registers
    registers: Registers = [None] * 10
    for position, kind in enumerate(described.arguments, 1):
        if kind is CallbackArg.INDEX:
            count = caller[1]
            if count is None or count.kind != SCALAR:
                raise UnsafeError("argument", f"argument 1 of {call.name} must be a number", f"r1 is {describe(count)}")
            turns = min(count.scalar.u32_max, _LOOP_LIMIT)
            if not turns:
                return None
            registers[position] = number(unsigned_range(0, turns - 1))
        elif kind is CallbackArg.CONTEXT:
            registers[position] = caller[3]
        else:
            assert call.map is not None
            if kind is CallbackArg.MAP:
                registers[position] = Value(MAP, of=call.map)
            elif kind is CallbackArg.KEY:
                registers[position] = Value(MAP_KEY, of=call.map, range=call.map.key_size)
            else:
                registers[position] = Value(MAP_VALUE, of=call.map, id=run.new_id())
    inner = state.copy(state.index)
    _push(run, inner, call.function, registers, call.prototype.number, described.highest)
    return inner


def leave(run: "Analysis", state: State) -> bool:
    """An exit. Whether the caller goes on; False: the program ended."""
    frame = state.frames[-1]
    result = frame.registers[0]
    if len(state.frames) == 1:
        _end(run, state, result)
        return False
    if result is not None and result.kind == STACK:
        raise UnsafeError(
            "stack-pointer-escapes",
            "a function may not give a stack pointer to its caller",
            f"r0 is {describe(result)}",
            "let the caller give memory",
        )
    if frame.callback:
        _end_callback(state, frame, result)
        state.frames.pop()
        state.index = frame.call  # the helper may call again, or go on
        state.returned = True
        return True
    state.frames.pop()
    state.frames[-1].registers[0] = result
    state.index = frame.call + 1
    return True


def _end_callback(state: State, frame: Frame, result: Value | None) -> None:
    if result is None or result.kind != SCALAR or result.scalar.umax > frame.returns:
        raise UnsafeError(
            "callback-result",
            f"a callback returns 0 to {frame.returns}",
            f"r0 is {describe(result)}",
            "return 0 to go on, 1 to stop",
        )
    if (state.references, state.lock) != frame.entered:
        raise UnsafeError(
            "reference", "a callback releases what it acquires, and nothing else", "", "release it before the exit"
        )


def _end(run: "Analysis", state: State, result: Value | None) -> None:
    check_released(state, "the program's end")
    if result is None:
        if run.result_needed:
            raise UnsafeError("uninitialised", "r0 is read: the program's result", "r0 is not initialised", "set it")
        return
    if run.global_result and result.kind != SCALAR:
        raise UnsafeError("result", "a global function returns a number", f"r0 is {describe(result)}")
    limit = run.result_limit
    if limit is not None and (result.kind != SCALAR or result.scalar.umax > limit):
        raise UnsafeError(
            "result", f"this kind of program returns 0 to {limit}", f"r0 is {describe(result)}", "mask or compare it"
        )


def check_released(state: State, where: str) -> None:
    """Nothing may be left to release or to unlock."""
    if state.lock is not None:
        raise UnsafeError("lock", f"{where} is reached with a lock held", f"of map {state.lock[0].name}", "unlock it")
    if state.references:
        at = state.references[0][1]
        raise UnsafeError(
            "reference",
            f"{where} is reached with something not released",
            f"it was acquired at instruction {at}",
            "release it on every way",
        )


def ended_by_tail_call(state: State) -> State:
    """Where a function's tail call succeeds: the other program ran instead of the rest, with a result of its own."""
    ended = state.copy(state.index)
    lose_packet(ended)
    ended.frames[-1].registers[0] = NUMBER
    return ended
