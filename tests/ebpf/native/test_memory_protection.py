"""Code is never writable and executable at once; guard pages surround stack and packets; nothing stays mapped."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from flowshunt.insn import exit_, mov64_imm
from flowshunt_ebpf.contexts.layout import XDP
from flowshunt_ebpf.maps.memory import PAGE, GuardedMemory
from flowshunt_ebpf.native.code_memory import CodeMemory
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.verifier import verify

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc/self/maps")


def rights(address):
    """The protection of the mapping that holds an address, such as "r-xp"; None for none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, protection = line.split()[:2]
        low, high = (int(part, 16) for part in span.split("-"))
        if low <= address < high:
            return protection
    return None


def test_code_is_executable_and_not_writable():
    memory = CodeMemory(b"\xc3")
    assert rights(memory.address) == "r-xp"


def test_no_memory_is_writable_and_executable_while_a_program_runs():
    machine = Machine(XDP)
    image = prepare(Program((mov64_imm(0, 2), exit_())), context=XDP)
    loaded = host(image, machine, verify(image.program, context=XDP))
    assert loaded.run().value == 2
    places = (loaded.memory.address, machine.address, machine.stack_address, machine.packet_start)
    assert all("w" not in rights(place) or "x" not in rights(place) for place in places)


def test_parts_of_memory_have_guard_pages_around():
    memory = GuardedMemory(100, PAGE, 2 * PAGE + 1)
    for address, size in zip(memory.addresses, memory.sizes, strict=True):
        whole = -(-size // PAGE) * PAGE
        assert rights(address) == rights(address + whole - 1) == "rw-p"
        assert rights(address - 1) == rights(address + whole) == "---p"


def test_memory_goes_with_its_owner():
    memory = GuardedMemory(PAGE)
    address = memory.addresses[0]
    view = memory.view(0)
    del memory
    gc.collect()
    view[0] = 1  # the view keeps it
    assert rights(address) == "rw-p"
    del view
    gc.collect()
    assert rights(address) is None


@pytest.mark.parametrize("place", ["m.stack_address - 1", "m.stack_address + 4096", "m.packet_start - 1"])
def test_touching_a_guard_page_ends_the_process(place):
    code = (
        "import ctypes; from flowshunt_ebpf.native.machine import Machine\n"
        "from flowshunt_ebpf.contexts.layout import XDP\n"
        f"m = Machine(XDP); ctypes.string_at({place}, 1)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == -11
