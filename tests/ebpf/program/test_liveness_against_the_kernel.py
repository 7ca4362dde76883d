"""Live registers as Linux computes them for its own verifier: ours are the same, but for what passes between functions.

Linux (from 6.15 on) takes a local call for a reader of r1 to r5, and an exit for one of r0; we know what the function
reads, and what its callers read.
"""

import ctypes
import os
import re
from pathlib import Path

import pytest

from flowshunt_ebpf.elf import load_object
from flowshunt_ebpf.kernel.load import bytecode, create_map, debug_of, load_btf, load_bytes
from flowshunt_ebpf.kernel.syscall import KernelError
from flowshunt_ebpf.program import Program, control_flow, liveness
from flowshunt_ebpf.program.live_set import registers

OBJECTS = Path(__file__).parents[1] / "objects"
PROGRAMS = {
    "checksum_updater": "rewrite",
    "connection_tracker": "track",
    "load_balancer": "encapsulate",
    "packet_parser": "parse_packet",
    "rate_limiter": "limit_rate",
}


def kernel_live_registers(program: Program) -> dict[int, set[int]]:
    """Slot to live registers, r10 left out, from the kernel's log."""
    log = ctypes.create_string_buffer(1 << 24)
    opened: list[int] = []
    try:
        btf = load_btf(program.btf)
        opened += [btf] if btf else []
        maps = [create_map(definition, btf_fd=btf) for definition in program.maps]
        opened += maps
        loaded = load_bytes(
            bytecode(program, maps),
            program_type=program.type,
            attach_type=program.attach_type or 0,
            license=program.license,
            log=log,
            log_level=2,
            debug=debug_of(program, btf),
        )
    except KernelError as error:
        pytest.skip(f"can't load programs here: {error}")
    else:
        opened.append(loaded)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    _, found, text = log.value.decode().partition("Live regs before insn:")
    if not found:
        pytest.skip("this kernel does not tell live registers")
    rows = re.findall(r"^ *(?:\d+ +)?(\d+): (\S{10}) \(\w\w\) ", text, re.MULTILINE)
    return {int(slot): {int(c) for c in live if c != "."} for slot, live in rows}


@pytest.mark.parametrize("name", PROGRAMS)
def test_live_registers_are_the_kernels(name):
    program = load_object(OBJECTS / f"{name}.o").program(PROGRAMS[name])
    theirs = kernel_live_registers(program)
    found = liveness(control_flow(program))
    passed = set(range(6)) if len(program.subprograms) > 1 else set()
    checked = 0
    for slot, live in theirs.items():
        ours = set(registers(found.live_in[program.index_of[slot]])) - {10}
        assert ours <= live, program.where(program.index_of[slot])
        assert live - ours <= passed, program.where(program.index_of[slot])
        checked += 1
    assert checked == len(program)
