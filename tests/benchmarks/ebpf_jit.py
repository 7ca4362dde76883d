"""The stock JIT against the kernel's JIT on the compiled test programs, and what loading costs.

    python tests/benchmarks/ebpf_jit.py [--rounds N] [--seconds S]

Every round times each program and the empty one on both, interleaved; the empty program's time is subtracted. Native
code runs unchecked, by the kernel's own verdict. Without privilege only loading is measured.
"""

import argparse
import importlib.util
import resource
import statistics
import time
from pathlib import Path
from types import ModuleType

from flowshunt.insn import ADD, ALU64, DW, MOV, Instruction, K, W, X, encode, exit_, jmp_imm, ldx, mov64, mov64_imm, stx
from flowshunt_ebpf.contexts.layout import XDP
from flowshunt_ebpf.elf import load_object
from flowshunt_ebpf.kernel.syscall import missing
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.native.measure import EMPTY, Timer, compare
from flowshunt_ebpf.native.workbench import Workbench
from flowshunt_ebpf.program import Program, ProgramType
from flowshunt_ebpf.testing.checked_code import vouched

HERE = Path(__file__).resolve().parent
OBJECTS = HERE.parent / "ebpf" / "objects"
INSTRUCTIONS = 3000


def traffic() -> ModuleType:
    """The frames that the tests use."""
    spec = importlib.util.spec_from_file_location("ebpf_traffic", HERE.parent / "ebpf" / "runners" / "traffic.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def workloads() -> list[tuple[str, str, str, bytes]]:
    """Object, program, what the frame is, the frame: one that runs don't change, since they repeat on one buffer."""
    t = traffic()
    syn = t.ethernet(0x0800, t.ipv4(0x0A000002, 0x08080808, 6, t.tcp(1024, 80, 2, bytes(20), t.OPTIONS)))
    plain = t.ethernet(0x0800, t.ipv4(0x0A000002, 0x08080808, 17, t.udp(1024, 53, bytes(40))))
    tagged = t.ethernet(
        0x0800, t.ipv4(0x0A000002, t.SERVICE, 17, t.udp(1024, 53, bytes(40))), vlans=((0x88A8, 5), (0x8100, 7))
    )
    six = t.ethernet(0x86DD, t.ipv6(1 << 100, 2, 6, t.tcp(1024, 443, 16, bytes(20))))
    return [
        ("packet_parser", "parse_packet", "TCP with options", syn),
        ("packet_parser", "parse_packet", "UDP in QinQ", tagged),
        ("packet_parser", "parse_packet", "TCP over IPv6", six),
        ("load_balancer", "balance", "no service", plain),
        ("connection_tracker", "track", "UDP, known", plain),
        ("connection_tracker", "track", "TCP over IPv6, refused", six),
        ("rate_limiter", "limit_rate", "IPv4, limited", plain),
        ("rate_limiter", "limit_rate", "IPv6, limited", six),
        ("checksum_updater", "rewrite", "no target", plain),
    ]


def bench_of(name: str, program: str) -> Workbench:
    """A program of an object, ready to run."""
    found = load_object(OBJECTS / f"{name}.o")
    return Workbench(
        found.program(program), {other: (lambda other=other: found.program(other)) for other in found.names}
    )


def timers(bench: Workbench, frame: bytes) -> dict[str, Timer]:
    """How to time a program in the kernel and on the host."""
    from flowshunt_ebpf.kernel.runner import run_in_kernel

    bench.machine.set_packet(frame)
    kernel = run_in_kernel(bench.image, bench.machine)
    native = host(bench.image, bench.machine, bench.judge(lambda image, machine: run_in_kernel(image, machine).verdict))

    def timer(loaded: object) -> Timer:
        def run(repeat: int) -> float:
            bench.machine.set_packet(frame)
            return float(loaded.time(repeat))  # type: ignore[attr-defined]

        return run

    return {"kernel": timer(kernel), "host": timer(native)}


def speed(rounds: int, seconds: float) -> None:
    """Print each workload's ratio and their geometric mean."""
    print(f"{'program':20} {'frame':26} {'kernel ns':>10} {'host ns':>9} {'ratio':>7}  quartiles")
    ratios = []
    for name, program, what, frame in workloads():
        bench = bench_of(name, program)
        empty = Workbench(Program.from_bytes(EMPTY, type=bench.program.type))
        found = compare(timers(bench, frame), timers(empty, frame), rounds=rounds, seconds=seconds)
        kernel, native = found
        ratios.append(native.ratio)
        print(
            f"{name:20} {what:26} {kernel.ns:10.1f} {native.ns:9.1f} {native.ratio:6.2f}x  "
            f"{native.low:.2f} to {native.high:.2f}"
        )
    print(f"geometric mean {statistics.geometric_mean(ratios):.2f}x, least {min(ratios):.2f}x (targets: 1.0 and 0.9)")


def large_program() -> bytes:
    """An XDP program of 3,000 instructions: arithmetic, stack and packet accesses, branches."""
    code: list[Instruction] = [mov64(6, 1), ldx(W, 2, 6, 0), ldx(W, 3, 6, 4), mov64_imm(0, 1), mov64_imm(5, 1)]
    number = 0
    while len(code) < INSTRUCTIONS - 10:
        number = (number * 1103515245 + 12345) & 0x7FFFFFFF
        kind, register = number >> 8 & 7, (5, 7, 8, 9)[number >> 12 & 3]
        if kind < 3:
            code.append(Instruction(ALU64 | (ADD, 0x40, 0xA0)[kind] | X, 0, 5))
        elif kind == 3:
            code.append(Instruction(ALU64 | MOV | K, register, imm=number & 0xFFFF))
        elif kind == 4:
            code.append(stx(DW, 10, 5, -8 * (1 + (number >> 16) % 40)))
        elif kind == 5:
            code.append(stx(W, 10, 0, -4 * (1 + (number >> 16) % 100)))
        else:
            code.append(jmp_imm((0x10, 0x20, 0x50)[number % 3], 0, number & 0xFF, number >> 20 & 7))
    return encode((*code, *[mov64_imm(0, 2)] * (INSTRUCTIONS - 1 - len(code)), exit_()))


def loading() -> None:
    """Print what loading a large program takes, from its bytes to running code."""
    data = large_program()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spent = []
    for _ in range(9):
        start = time.process_time()
        program = Program.from_bytes(data, type=ProgramType.XDP)
        image = prepare(program)
        loaded = host(image, Machine(XDP), vouched(image))
        spent.append((time.process_time() - start) * 1e3)
    assert loaded.run().fault is None
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"load of {len(data) // 8} instructions: {statistics.median(spent[1:]):.1f} ms (target: 60), "
        f"the first, with imports, {spent[0]:.1f} ms"
    )
    print(f"memory above the interpreter's: {memory:.1f} MB (target: 60)")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.03, help="of one measurement")
    arguments = parser.parse_args()
    loading()
    lacking = missing()
    if lacking:
        print(f"no comparison with the kernel: {lacking}")
        return
    speed(arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
