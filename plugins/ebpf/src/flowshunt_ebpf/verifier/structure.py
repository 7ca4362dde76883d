"""The form of a program, before anything of it is looked at more closely: valid instructions, jumps, no dead code.

The rules are those of `check_subprogs` and `check_cfg` of the kernel's kernel/bpf/verifier.c.
"""

from flowshunt.errors import InputError
from flowshunt.insn import CALL_K, CALL_X, EXIT_K, GOTOL, JA_K, JMP, JMP32, LD_IMM64, PSEUDO_FUNC, check
from flowshunt_ebpf.program import ControlFlow, Program, control_flow
from flowshunt_ebpf.verifier.limits import Limits
from flowshunt_ebpf.verifier.rejection import UnsafeError


class StructureError(Exception):
    """A rule of form does not hold. `index`: the instruction; -1: the whole program."""

    def __init__(self, index: int, why: UnsafeError) -> None:
        self.index = index
        self.why = why
        super().__init__(str(why))


def checked_flow(program: Program, limits: Limits) -> ControlFlow:
    """The control flow of a program whose form is right. Raises StructureError."""
    count = len(program.instructions)
    if not count:
        raise StructureError(-1, UnsafeError("structure", "a program needs an instruction", "", "add at least exit"))
    if count > limits.size:
        raise StructureError(
            -1,
            UnsafeError("limit", f"{limits.size} instructions are allowed", f"it has {count}", "split it", limit=True),
        )
    for index, i in enumerate(program.instructions):
        wrong = check(i)
        if wrong is not None:
            raise StructureError(index, UnsafeError("instruction", wrong, "", "see RFC 9669"))
        if i.opcode == CALL_X:
            raise StructureError(
                index, UnsafeError("instruction", "a call to an address in a register", "", "call functions directly")
            )
    _check_jumps(program)
    try:
        flow = control_flow(program)
    except InputError as error:
        raise StructureError(-1, UnsafeError("structure", error.what, error.where, error.way_out)) from None
    for number, block in enumerate(flow.blocks):
        if number not in flow.reachable:
            raise StructureError(
                block.start,
                UnsafeError("unreachable", "every instruction must be reachable", "this one is not", "leave it out"),
            )
    return flow


def _check_jumps(program: Program) -> None:
    """Each jump must lead to an instruction of its own function, and each function end with exit or a jump."""
    targets: dict[int, int] = {}
    for index, i in enumerate(program.instructions):
        opcode = i.opcode
        distance = None
        if opcode == CALL_K:
            distance = i.imm if i.src == 1 else None
        elif opcode == LD_IMM64 and i.src == PSEUDO_FUNC:
            distance = ((i.imm & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
        elif opcode & 7 in (JMP, JMP32) and opcode != EXIT_K:
            distance = i.imm if opcode == GOTOL else i.offset
        if distance is None:
            continue
        try:
            target = program.target(index, distance)
        except InputError as error:
            raise StructureError(index, UnsafeError("jump", error.what, "", error.way_out)) from None
        if opcode not in (CALL_K, LD_IMM64):
            targets[index] = target
    for sub in program.subprograms:
        last = program.instructions[sub.end - 1].opcode
        if last not in (EXIT_K, JA_K, GOTOL):
            raise StructureError(
                sub.end - 1,
                UnsafeError("structure", f"function {sub.name} must end with exit or a jump", "", "add an exit"),
            )
        for index in range(sub.start, sub.end):
            if not sub.start <= targets.get(index, sub.start) < sub.end:
                raise StructureError(
                    index,
                    UnsafeError(
                        "jump", f"the jump must stay in function {sub.name}",
                        f"it leads to instruction {targets[index]}", "functions are left by exit alone",
                    ),
                )  # fmt: skip
