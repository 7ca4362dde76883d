"""eBPF to ARM64: calls, what stands around functions, and the routines that a program's code shares.

Every function saves the frame pointer and the link register; subprograms also save those of r6 to r9 that they change.
"""

from typing import Final

from flowshunt.insn import PSEUDO_CALL, Instruction
from flowshunt_ebpf.maps.header import MAX_ENTRIES, OPERATIONS, VALUES
from flowshunt_ebpf.maps.supported import INLINE_ARRAYS, MAP_OPERATIONS
from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.emission import CHECK_CALL, LOOP, MAP_LOOKUP, TAIL_CALL, Emission

FORGET: Final = tuple(f"movz x{number}, #0" for number in range(5))
"""What the program's arguments hold after a call, where there is no verdict."""

_PAIRS: Final = (((6, 7), "x19, x20"), ((8, 9), "x21, x22"))
_SAVED: Final = ("x19, x20", "x21, x22", "x23, x24", "x25, x26", "x27, x28")


def _constant(value: int, register: str = "x16") -> list[str]:
    parts = [(value >> at & 0xFFFF, at) for at in range(0, 64, 16)]
    rest = [(part, at) for part, at in parts if part] or [(0, 0)]
    first = f"movz {register}, #{rest[0][0]}, lsl #{rest[0][1]}"
    return [first, *(f"movk {register}, #{part}, lsl #{at}" for part, at in rest[1:])]


def enter(e: Emission) -> None:
    """Emit what a function starts with."""
    e.saved = () if e.main else tuple(pair for registers, pair in _PAIRS if any(e.used(r) for r in registers))
    e.padding = 16 if e.counts() else 0
    e.emit("stp x29, x30, [sp, #-16]!", *(f"stp {pair}, [sp, #-16]!" for pair in e.saved))
    if e.padding:
        e.emit("sub sp, sp, #16", *_constant(state.MAY_GOTO_LIMIT, "x9"), "str x9, [sp]")
    if e.main and e.checked:
        e.emit("movz x7, #0", *(f"movz x{number}, #0" for number in range(19, 23)))


def leave(e: Emission) -> None:
    """Emit the undoing of `enter`."""
    if e.padding:
        e.emit("add sp, sp, #16")
    e.emit(*(f"ldp {pair}, [sp], #16" for pair in reversed(e.saved)), "ldp x29, x30, [sp], #16")


def charge(e: Emission, cost: int) -> None:
    """Emit the charge of a cost to the run's budget."""
    label = f"paid_{e.index}"
    e.emit(*_charge(cost, label))


def _charge(cost: int, label: str) -> list[str]:
    step = f"#{cost}" if cost < 4096 else "x12"
    return [
        *([] if cost < 4096 else _constant(cost, "x12")),
        f"ldr x9, [x28, #{state.BUDGET}]",
        f"subs x9, x9, {step}",
        f"str x9, [x28, #{state.BUDGET}]",
        f"b.pl {label}",
        "bl fault_budget",
        f"{label}:",
    ]


def call(e: Emission, i: Instruction) -> None:
    """Emit a call of a function or helper."""
    if e.index in e.image.program.poisoned:
        e.emit("bl fault_poisoned")
    elif i.src == PSEUDO_CALL:
        if e.budget:
            charge(e, 1)
        e.emit(f"sub x25, x25, #{state.FRAME_BYTES}")
        _check_depth(e, f"pass_{e.index}")
        e.emit(f"bl F{e.image.targets[e.index]}", f"add x25, x25, #{state.FRAME_BYTES}")
    elif i.imm == TAIL_CALL:
        _check_arguments(e, i.imm)
        _tail_call(e)
    elif i.imm == LOOP:
        e.emit("bl loop")
    else:
        _helper(e, i)
    if e.checked:
        e.emit(*FORGET)


def _check_depth(e: Emission, label: str) -> None:
    if e.checked or e.chained:
        e.emit(f"ldr x9, [x28, #{state.STACK_BOTTOM}]", "cmp x25, x9", f"b.hi {label}", "bl fault_depth", f"{label}:")


def _helper(e: Emission, i: Instruction) -> None:
    known = e.image.known_map.get(e.index)
    if not e.checked and i.imm == MAP_LOOKUP and known is not None and known.definition.type in INLINE_ARRAYS:
        _array_lookup(e)
        return
    _check_arguments(e, i.imm)
    operation = MAP_OPERATIONS.get(i.imm) if e.native else None
    if operation is None:
        e.emit(*_constant(e.helper_address(i.imm)))
    elif known is None:  # by the map that r1 points to at run time
        e.emit(f"ldr x16, [x0, #{OPERATIONS + 8 * operation}]")
    else:
        e.emit(*_constant(known.operation(operation)))
    e.emit("mov x5, x28", "blr x16", "mov x7, x0")


def _check_arguments(e: Emission, number: int) -> None:
    if not e.checked:
        return
    e.emit(f"movz w9, #{number}", f"str w9, [x28, #{state.HELPER}]")
    e.emit("stp x0, x1, [sp, #-16]!", "stp x2, x3, [sp, #-16]!", "stp x4, x7, [sp, #-16]!", "mov x5, x28")
    e.emit(*_constant(e.helper_address(CHECK_CALL)), "blr x16", "mov x9, x0")
    e.emit("ldp x4, x7, [sp], #16", "ldp x2, x3, [sp], #16", "ldp x0, x1, [sp], #16")
    e.emit(f"cbz w9, pass_{e.index}", "bl fault_argument", f"pass_{e.index}:")


def _array_lookup(e: Emission) -> None:
    known = e.image.known_map[e.index]
    n = e.index
    e.emit(
        "ldr w9, [x1]", *_constant(known.definition.max_entries, "x10"), "movz x7, #0", "cmp w9, w10", f"b.hs done_{n}"
    )
    e.emit(*_constant(known.stride, "x10"), *_constant(known.values_address, "x7"), "madd x7, x9, x10, x7")
    if known.cpus > 1:
        e.emit(f"ldr w9, [x28, #{state.CPU}]", *_constant(known.value_stride, "x10"), "madd x7, x9, x10, x7")
    e.emit(f"done_{n}:")


def _tail_call(e: Emission) -> None:
    n = e.index
    e.emit(
        f"ldr w9, [x1, #{MAX_ENTRIES}]", "mov w11, w2", "cmp w11, w9", f"b.hs done_{n}",
        f"ldr w9, [x28, #{state.TAIL_CALLS}]", f"cmp w9, #{state.TAIL_CALL_LIMIT}", f"b.hs done_{n}",
        f"ldr x10, [x1, #{VALUES}]", "add x10, x10, x11, lsl #3", "ldr w10, [x10]", f"cbz w10, done_{n}",
        f"ldr x11, [x28, #{state.CODE_TABLE}]", "add x11, x11, x10, lsl #3", "ldr x11, [x11]", f"cbz x11, done_{n}",
        "add w9, w9, #1", f"str w9, [x28, #{state.TAIL_CALLS}]",
    )  # fmt: skip
    if e.checked:
        e.emit(*FORGET[1:])
    if e.main:
        leave(e)
        e.emit("br x11")
    else:  # the program that follows saves no register: this function's stay on the stack
        e.emit("blr x11")
        leave(e)
        e.emit("ret")
    e.emit(f"done_{n}:")


def entry(e: Emission) -> None:
    """Emit the code's start: a C function of the state block's address that gives r0; then one that repeats it."""
    e.emit("entry:", "stp x29, x30, [sp, #-16]!", *(f"stp {pair}, [sp, #-16]!" for pair in _SAVED), "mov x28, x0")
    e.emit("mov x9, sp", f"str x9, [x28, #{state.SAVED_SP}]", f"str wzr, [x28, #{state.TAIL_CALLS}]")
    e.emit(f"ldr x25, [x28, #{state.STACK_TOP}]", f"ldr x0, [x28, #{state.CONTEXT}]", f"ldr x1, [x28, #{state.SECOND}]")
    if e.checked:
        e.emit(*FORGET[2:])
    e.emit("bl F0", "finish:", f"str x7, [x28, #{state.RESULT}]", "mov x0, x7")
    e.emit(*(f"ldp {pair}, [sp], #16" for pair in reversed(_SAVED)), "ldp x29, x30, [sp], #16", "ret")
    e.emit("repeat:", "stp x29, x30, [sp, #-16]!", "stp x19, x20, [sp, #-16]!", "mov x19, x0", "mov x20, x1")
    e.emit("again:", "mov x0, x19", "bl entry", f"ldr w9, [x19, #{state.FAULT}]", "cbnz w9, stop")
    e.emit("subs x20, x20, #1", "b.ne again", "stop:", "ldp x19, x20, [sp], #16", "ldp x29, x30, [sp], #16", "ret")


def shared(e: Emission) -> None:
    """Emit the routines that the program's functions call: bpf_loop, the access check, and the faults."""
    if LOOP in e.image.helpers:
        _loop(e)
    if e.checked:
        _check_access(e)
    faults = {
        "fault_access": 1, "fault_budget": 2, "fault_depth": 3, "fault_argument": 4, "fault_context": 5,
        "fault_callback": 6,
        "fault_poisoned": 8,
    }  # fmt: skip
    for name, kind in faults.items():
        e.emit(f"{name}:")
        if name == "fault_argument":
            e.emit(f"str w9, [x28, #{state.FAULT_ARGUMENT}]")
        e.emit(f"str x30, [x28, #{state.FAULT_PC}]", f"movz w9, #{kind}", f"str w9, [x28, #{state.FAULT}]", "b unwind")
    e.emit("unwind:", f"ldr x9, [x28, #{state.SAVED_SP}]", "mov sp, x9", "movz x7, #0", "b finish")


def _loop(e: Emission) -> None:
    """bpf_loop(nr, callback, context, flags), as in the kernel's kernel/bpf/bpf_iter.c."""
    e.emit("loop:", "cbnz x3, loop_invalid", *_constant(state.LOOP_LIMIT, "x9"), "cmp w0, w9", "b.hi loop_too_long")
    e.emit("stp x29, x30, [sp, #-16]!", "stp x19, x20, [sp, #-16]!", "stp x21, x22, [sp, #-16]!")
    e.emit("mov w19, w0", "mov x20, x2", "mov x21, x1", "movz x22, #0", f"sub x25, x25, #{state.FRAME_BYTES}")
    _check_depth(e, "loop_depth")
    e.emit("loop_next:", "cmp w22, w19", "b.hs loop_done")
    if e.budget:
        e.emit(*_charge(1, "loop_paid"))
    e.emit("mov w0, w22", "mov x1, x20")
    if e.checked:
        e.emit(*FORGET[2:])
    for callback in e.image.callbacks:
        e.emit(*_constant(callback, "x9"), "cmp x21, x9", f"b.eq loop_call_{callback}")
    e.emit("bl fault_callback")
    for callback in e.image.callbacks:
        e.emit(f"loop_call_{callback}:", f"bl F{callback}", "b loop_called")
    e.emit("loop_called:", "add w22, w22, #1", "cbz x7, loop_next", "loop_done:", "mov w7, w22")
    e.emit(f"add x25, x25, #{state.FRAME_BYTES}", "ldp x21, x22, [sp], #16", "ldp x19, x20, [sp], #16")
    e.emit(
        "ldp x29, x30, [sp], #16", "ret", "loop_invalid:", "movn x7, #21", "ret", "loop_too_long:", "movn x7, #6", "ret"
    )


def _check_access(e: Emission) -> None:
    """x11: address, w10: bytes, w12: flags that the region needs. Returns where it is allowed. Changes x13 to x17."""
    e.emit(
        "check_access:", f"ldr x13, [x28, #{state.REGIONS}]", f"ldr w14, [x28, #{state.REGION_COUNT}]",
        "check_next:", "cbz w14, check_failed", "sub w14, w14, #1",
        "ldp x15, x16, [x13]", "sub x15, x11, x15", "subs x16, x16, x10", "b.lo check_skip",
        "cmp x15, x16", "b.hi check_skip",
        "ldr x16, [x13, #24]", "bics xzr, x12, x16", "b.ne check_skip",
        "ldp w16, w17, [x13, #16]", "cbz w16, check_passed",
        "udiv x9, x15, x16", "msub x15, x9, x16, x15", "add x15, x15, x10", "cmp x15, x17", "b.ls check_passed",
        "check_skip:", f"add x13, x13, #{state.REGION_BYTES}", "b check_next",
        "check_passed:", "ret",
        "check_failed:", f"str x11, [x28, #{state.FAULT_ADDRESS}]", "b fault_access",
    )  # fmt: skip
