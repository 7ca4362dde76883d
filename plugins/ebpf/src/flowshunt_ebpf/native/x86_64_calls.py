"""eBPF to x86-64: calls, what stands around functions, and the routines that a program's code shares.

Native code keeps rsp a multiple of 16 inside functions that call. The entry saves all registers that its caller owns,
so that the main program needs to save none; subprograms save those of r6 to r9 that they change.
"""

from typing import Final

from flowshunt.insn import PSEUDO_CALL, Instruction
from flowshunt_ebpf.maps.header import MAX_ENTRIES, OPERATIONS, PROG_ARRAY_STRIDE, VALUES
from flowshunt_ebpf.maps.supported import INLINE_ARRAYS, MAP_OPERATIONS
from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.emission import CHECK_CALL, LOOP, MAP_LOOKUP, TAIL_CALL, Emission
from flowshunt_ebpf.native.x86_64_maps import lookup_routine, written_out

_CALLEE_SAVED: Final = ((6, "rbx"), (7, "r13"), (8, "r14"), (9, "r15"))
_FORGET: Final = ("xor edi, edi", "xor esi, esi", "xor edx, edx", "xor ecx, ecx", "xor r8d, r8d")
_ARGUMENTS: Final = ("rdi", "rsi", "rdx", "rcx", "r8")


def enter(e: Emission) -> None:
    """Emit what a function starts with."""
    e.saved = () if e.main else tuple(name for register, name in _CALLEE_SAVED if e.used(register))
    odd, counter = len(e.saved) % 2, e.counts()
    e.padding = (16 if counter else 0) if odd and e.calls() else 8 if counter or e.calls() else 0
    e.emit(*(f"push {name}" for name in e.saved))
    if e.padding:
        e.emit(f"sub rsp, {e.padding}")
    if e.counts():
        e.emit(f"mov qword ptr [rsp], {state.MAY_GOTO_LIMIT}")
    if e.main and e.checked:
        e.emit("xor eax, eax", "xor ebx, ebx", "xor r13d, r13d", "xor r14d, r14d", "xor r15d, r15d")


def leave(e: Emission) -> None:
    """Emit the undoing of `enter`."""
    if e.padding:
        e.emit(f"add rsp, {e.padding}")
    e.emit(*(f"pop {name}" for name in reversed(e.saved)))


def call(e: Emission, i: Instruction) -> None:
    """Emit a call of a function or helper."""
    if i.src == PSEUDO_CALL:
        _local(e)
    elif e.index in e.image.program.poisoned:
        e.emit("call fault_poisoned")
    elif i.imm == TAIL_CALL:
        _check_arguments(e, i.imm)
        _tail_call(e)
    elif i.imm == LOOP:
        e.emit("call loop")
        if e.checked:
            e.emit(*_FORGET)
    else:
        _helper(e, i)


def _local(e: Emission) -> None:
    if e.budget:
        e.emit(f"sub qword ptr [r12+{state.BUDGET}], 1", f"jns paid_{e.index}", "call fault_budget", f"paid_{e.index}:")
    e.emit(f"sub rbp, {state.FRAME_BYTES}")
    _check_depth(e, f"pass_{e.index}")
    e.emit(f"call F{e.image.targets[e.index]}", f"add rbp, {state.FRAME_BYTES}")
    if e.checked:
        e.emit(*_FORGET)


def _check_depth(e: Emission, label: str) -> None:
    if e.checked or e.chained:
        e.emit(f"cmp rbp, qword ptr [r12+{state.STACK_BOTTOM}]", f"ja {label}", "call fault_depth", f"{label}:")


def _helper(e: Emission, i: Instruction) -> None:
    known = e.image.known_map.get(e.index)
    if not e.checked and i.imm == MAP_LOOKUP and known is not None and known.definition.type in INLINE_ARRAYS:
        _array_lookup(e)
    elif not e.checked and e.native and i.imm == MAP_LOOKUP and known is not None and written_out(known):
        e.routines[known.address] = known
        e.emit(f"call lookup_{known.address}")
    else:
        _check_arguments(e, i.imm)
        operation = MAP_OPERATIONS.get(i.imm) if e.native else None
        if operation is None:
            e.emit("mov r9, r12", f"mov rax, {e.helper_address(i.imm)}", "call rax")
        elif known is None:  # by the map that r1 points to at run time
            e.emit("mov r9, r12", f"call qword ptr [rdi+{OPERATIONS + 8 * operation}]")
        else:
            e.emit("mov r9, r12", f"mov rax, {known.operation(operation)}", "call rax")
    if e.checked:
        e.emit(*_FORGET)


def _check_arguments(e: Emission, number: int) -> None:
    if not e.checked:
        return
    e.emit(f"mov dword ptr [r12+{state.HELPER}], {number}", *(f"push {name}" for name in _ARGUMENTS), "sub rsp, 8")
    e.emit("mov r9, r12", f"mov rax, {e.helper_address(CHECK_CALL)}", "call rax", "add rsp, 8")
    e.emit(*(f"pop {name}" for name in reversed(_ARGUMENTS)))
    e.emit("test eax, eax", f"je pass_{e.index}", "call fault_argument", f"pass_{e.index}:")


def _array_lookup(e: Emission) -> None:
    known = e.image.known_map[e.index]
    n = e.index
    distance = known.values_address - known.address
    e.emit("mov r11d, dword ptr [rsi]", "xor eax, eax", f"cmp r11d, {known.definition.max_entries}", f"jae done_{n}")
    if known.stride != 8:
        e.emit(_scale("r11", known.stride))
    if known.cpus > 1:
        e.emit(f"mov r10d, dword ptr [r12+{state.CPU}]", _scale("r10", known.value_stride), "add r11, r10")
    e.emit(f"lea rax, [rdi+r11*{8 if known.stride == 8 else 1}+{distance}]", f"done_{n}:")


def _scale(register: str, factor: int) -> str:
    shift = factor.bit_length() - 1
    return f"shl {register}, {shift}" if factor == 1 << shift else f"imul {register}, {register}, {factor}"


def _tail_call(e: Emission) -> None:
    n = e.index
    e.emit(
        "mov edx, edx",
        f"cmp edx, dword ptr [rsi+{MAX_ENTRIES}]",
        f"jae done_{n}",
        f"cmp dword ptr [r12+{state.TAIL_CALLS}], {state.TAIL_CALL_LIMIT}",
        f"jae done_{n}",
        f"mov r11, qword ptr [rsi+{VALUES}]",
        f"mov r11d, dword ptr [r11+rdx*{PROG_ARRAY_STRIDE}]",
        "test r11d, r11d",
        f"je done_{n}",
        f"mov r10, qword ptr [r12+{state.CODE_TABLE}]",
        "mov r10, qword ptr [r10+r11*8]",
        "test r10, r10",
        f"je done_{n}",
        f"inc dword ptr [r12+{state.TAIL_CALLS}]",
    )
    if e.checked:
        e.emit(*_FORGET[1:])
    if e.main:
        leave(e)
        e.emit("jmp r10")
    else:  # the program that follows saves no register: this function's stay on the stack
        e.emit("call r10")
        leave(e)
        e.emit("ret")
    e.emit(f"done_{n}:")
    if e.checked:
        e.emit(*_FORGET)


def entry(e: Emission) -> None:
    """Emit the code's start: a C function of the state block's address that gives r0; then one that repeats it."""
    saved = ("rbp", "rbx", "r12", "r13", "r14", "r15")
    e.emit("entry:", *(f"push {name}" for name in saved), "sub rsp, 8", "mov r12, rdi")
    e.emit(
        f"mov qword ptr [r12+{state.SAVED_SP}], rsp",
        f"mov dword ptr [r12+{state.TAIL_CALLS}], 0",
        f"mov rbp, qword ptr [r12+{state.STACK_TOP}]",
        f"mov rdi, qword ptr [r12+{state.CONTEXT}]",
        f"mov rsi, qword ptr [r12+{state.SECOND}]",
    )
    if e.checked:
        e.emit(*_FORGET[2:])
    e.emit("call F0", "finish:", f"mov qword ptr [r12+{state.RESULT}], rax", "add rsp, 8")
    e.emit(*(f"pop {name}" for name in reversed(saved)), "ret")
    e.emit("repeat:", "push r12", "push rbx", "sub rsp, 8", "mov r12, rdi", "mov rbx, rsi", "again:", "mov rdi, r12")
    e.emit("call entry", f"cmp dword ptr [r12+{state.FAULT}], 0", "jne stop", "dec rbx", "jne again", "stop:")
    e.emit("add rsp, 8", "pop rbx", "pop r12", "ret")


def shared(e: Emission) -> None:
    """Emit the routines that the program's functions call: bpf_loop, the access check, and the faults."""
    if LOOP in e.image.helpers:
        _loop(e)
    for address, m in e.routines.items():
        e.emit(*lookup_routine(f"lookup_{address}", m))
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
            e.emit(f"mov dword ptr [r12+{state.FAULT_ARGUMENT}], eax")
        e.emit("pop rax", f"mov qword ptr [r12+{state.FAULT_PC}], rax")
        e.emit(f"mov dword ptr [r12+{state.FAULT}], {kind}", "jmp unwind")
    e.emit("unwind:", f"mov rsp, qword ptr [r12+{state.SAVED_SP}]", "xor eax, eax", "jmp finish")


def _loop(e: Emission) -> None:
    """bpf_loop(nr, callback, context, flags), as in the kernel's kernel/bpf/bpf_iter.c."""
    e.emit(
        "loop:", "test rcx, rcx", "jne loop_invalid", f"cmp edi, {state.LOOP_LIMIT}", "ja loop_too_long",
        "push rbx", "push r13", "push r14", "push r15", "sub rsp, 8",
        "mov r13d, edi", "mov r14, rdx", "mov r15, rsi", "xor ebx, ebx", f"sub rbp, {state.FRAME_BYTES}",
    )  # fmt: skip
    _check_depth(e, "loop_depth")
    e.emit("loop_next:", "cmp ebx, r13d", "jae loop_done")
    if e.budget:
        e.emit(f"sub qword ptr [r12+{state.BUDGET}], 1", "jns loop_paid", "call fault_budget", "loop_paid:")
    e.emit("mov edi, ebx", "mov rsi, r14")
    if e.checked:
        e.emit(*_FORGET[2:])
    for callback in e.image.callbacks:
        e.emit(f"cmp r15, {callback}", f"je loop_call_{callback}")
    e.emit("call fault_callback")
    for callback in e.image.callbacks:
        e.emit(f"loop_call_{callback}:", f"call F{callback}", "jmp loop_called")
    e.emit(
        "loop_called:", "inc ebx", "test rax, rax", "je loop_next",
        "loop_done:", "mov eax, ebx", f"add rbp, {state.FRAME_BYTES}",
        "add rsp, 8", "pop r15", "pop r14", "pop r13", "pop rbx", "ret",
        "loop_invalid:", "mov rax, -22", "ret", "loop_too_long:", "mov rax, -7", "ret",
    )  # fmt: skip


def _check_access(e: Emission) -> None:
    """r11: address, r9: bytes, r10: flags that the region needs. Returns where it is allowed. Changes r9 to r11."""
    e.emit(
        "check_access:",
        "push rax", "push rdx", "push rbx", "push rcx", "push r8",
        f"mov rbx, qword ptr [r12+{state.REGIONS}]",
        f"mov ecx, dword ptr [r12+{state.REGION_COUNT}]",
        "check_next:",
        "sub ecx, 1", "jb check_failed",
        "mov rax, r11", "sub rax, qword ptr [rbx]",
        "mov rdx, qword ptr [rbx+8]", "sub rdx, r9", "jb check_skip",
        "cmp rax, rdx", "ja check_skip",
        "mov rdx, qword ptr [rbx+24]", "not rdx", "test rdx, r10", "jne check_skip",
        "mov r8d, dword ptr [rbx+16]", "test r8d, r8d", "je check_passed",
        "xor edx, edx", "div r8", "add rdx, r9", "mov r8d, dword ptr [rbx+20]", "cmp rdx, r8", "jbe check_passed",
        "check_skip:", f"add rbx, {state.REGION_BYTES}", "jmp check_next",
        "check_passed:", "pop r8", "pop rcx", "pop rbx", "pop rdx", "pop rax", "ret",
        "check_failed:", "pop r8", "pop rcx", "pop rbx", "pop rdx", "pop rax",
        f"mov qword ptr [r12+{state.FAULT_ADDRESS}], r11", "jmp fault_access",
    )  # fmt: skip
