"""Time to read and analyse a program of some 3,000 instructions, by stage, against the kernel's load of the same.

    python tests/benchmarks/program_analysis.py [--instructions N] [--rounds N] [--object FILE]

The program repeats a piece with loads, stores, arithmetic and a branch. Stages: decode its bytes; find its blocks and
what is live; the text there and back; open and link an object (`--object`). The kernel's time is that of
`BPF_PROG_LOAD`, verification and JIT; without the privilege it is left out. Rounds interleave; figures are medians.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from flowshunt import insn
from flowshunt_ebpf.asm import assemble, disassemble
from flowshunt_ebpf.elf import load_object
from flowshunt_ebpf.program import Program, control_flow, liveness

OBJECTS = Path(__file__).parents[1] / "ebpf" / "objects"
BUDGET_MS = 30.0
"""What decoding, control flow and liveness may take of the 60 ms that loading 3,000 instructions has."""


def make(instructions: int) -> Program:
    """A program that calls straight-line and branching pieces, one behind the other, all of them verifiable."""
    piece = [
        insn.mov64_imm(0, 0),
        insn.ldx(insn.W, 2, 1, 0),
        insn.stx(insn.DW, 10, 2, -8),
        insn.ldx(insn.W, 3, 10, -8),
        insn.jmp_imm(insn.JGT, 3, 1500, 3),
        insn.alu64_imm(insn.LSH, 3, 2),
        insn.alu64(insn.ADD, 3, 2),
        insn.alu32_imm(insn.AND, 3, 0xFF),
        insn.mov64(4, 10),
        insn.alu64_imm(insn.ADD, 4, -8),
        insn.stx(insn.W, 4, 3, 0),
        insn.ldx(insn.B, 5, 4, 0),
        insn.alu64(insn.XOR, 0, 5),
    ]
    body = piece * (instructions // len(piece))
    return Program.from_instructions([*body, insn.exit_()])


def timed(work: Callable[[], object]) -> float:
    """Milliseconds of CPU time."""
    start = time.process_time_ns()
    work()
    return (time.process_time_ns() - start) / 1e6


def kernel_load(program: Program) -> Callable[[], object] | None:
    """Loading a program into the kernel and closing it; None where that is not allowed."""
    import os

    from flowshunt_ebpf.kernel.load import bytecode, load_bytes
    from flowshunt_ebpf.kernel.syscall import KernelError

    code = bytecode(program, [])

    def load() -> None:
        os.close(load_bytes(code, program_type=1))  # a socket filter

    try:
        load()
    except KernelError as error:
        print(f"the kernel is left out: {error}", file=sys.stderr)
        return None
    return load


def main() -> int:
    """Print a table; 1 where the stages together take longer than their budget."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instructions", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--object", type=Path, default=OBJECTS / "packet_parser.o")
    options = parser.parse_args()
    program = make(options.instructions)
    data, text, held = program.encode(), disassemble(program), options.object.read_bytes()
    flow = control_flow(program)
    stages: dict[str, Callable[[], object]] = {
        "decode": lambda: Program.from_bytes(data),
        "blocks": lambda: control_flow(Program(program.instructions)),
        "liveness": lambda: liveness(flow),
        "disassemble": lambda: disassemble(Program(program.instructions)),
        "assemble": lambda: assemble(text),
        f"open and link {options.object.name}": lambda: load_object(held).program(),
    }
    load = kernel_load(program)
    if load is not None:
        stages["kernel load"] = load
    times: dict[str, list[float]] = {name: [] for name in stages}
    for _ in range(options.rounds):
        for name, work in stages.items():
            times[name].append(timed(work))
    medians = {name: statistics.median(found) for name, found in times.items()}
    print(f"{len(program)} instructions, {len(flow.blocks)} blocks, medians of {options.rounds} rounds")
    for name, found in medians.items():
        print(f"  {name:32} {found:8.2f} ms")
    total = medians["decode"] + medians["blocks"] + medians["liveness"]
    print(f"  decode + blocks + liveness       {total:8.2f} ms (budget {BUDGET_MS:.0f} ms)")
    if load is not None:
        print(f"  that against the kernel's load   {total / medians['kernel load']:8.2f} x")
    return 0 if total <= BUDGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
