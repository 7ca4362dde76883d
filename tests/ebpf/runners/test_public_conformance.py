"""The public bpf_conformance suite, where it lies at hand: FLOWSHUNT_BPF_CONFORMANCE names its folder `tests`."""

import os
from pathlib import Path

import pytest

from flowshunt.errors import InputError
from flowshunt_ebpf.asm import Form, assemble
from flowshunt_ebpf.native.emulator import emulate
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.testing.checked_code import host_checked, vouched

FOLDER = os.environ.get("FLOWSHUNT_BPF_CONFORMANCE", "")
FILES = sorted(Path(FOLDER).glob("*.data")) if FOLDER else []
NOT_PLAIN = frozenset({"callx"})
"""A call of a helper whose number is in a register: no Linux kernel ever ran it."""

RUNNERS = {
    "interpret": interpret,
    "host": host_checked,
    "host, verified": lambda i, m: host(i, m, vouched(i)),
    "unicorn-x86_64": lambda i, m: emulate(i, m, "x86_64"),
    "unicorn-arm64": lambda i, m: emulate(i, m, "arm64"),
}


def sections(file):
    found, name = {}, None
    for line in file.read_text().splitlines():
        bare = line.split("#", 1)[0].rstrip()
        if bare.startswith("-- "):
            name = bare[3:]
            found[name] = []
        elif name and bare.strip():
            found[name].append(bare)
    return found


@pytest.mark.skipif(not FILES, reason="set FLOWSHUNT_BPF_CONFORMANCE to the folder of the suite's .data files")
@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_vector(file):
    parts = sections(file)
    if "raw" in parts:
        words = " ".join(parts["raw"]).split()
        program = Program.from_bytes(b"".join(int(w, 0).to_bytes(8, "little") for w in words))
    else:
        program = assemble("\n".join(parts["asm"]), form=Form.MNEMONIC, file=file.name)
    memory = bytes.fromhex("".join(parts.get("mem", [])).replace(" ", ""))
    machine = Machine()
    machine.set_packet(memory)
    if file.stem in NOT_PLAIN:
        with pytest.raises(InputError, match="callx"):
            prepare(program)
        return
    image = prepare(program)
    for name, load in RUNNERS.items():
        machine.set_packet(memory)
        outcome = load(image, machine).run()
        assert outcome.fault is None, name
        assert outcome.value == int(parts["result"][-1], 0), name
