"""Every access through a context or socket pointer is allowed here exactly where the running kernel allows it."""

import os
import struct

import pytest

from flowshunt_ebpf.contexts.layout import CONTEXTS
from flowshunt_ebpf.kernel.load import load_bytes
from flowshunt_ebpf.kernel.syscall import KernelError
from flowshunt_ebpf.program import AttachType
from flowshunt_ebpf.verifier.context_fields import Socket, field_access, socket_access

LOAD = {1: 0x71, 2: 0x69, 4: 0x61, 8: 0x79}
SIGNED_LOAD = {1: 0x91, 2: 0x89, 4: 0x81}
STORE = {1: 0x73, 2: 0x6B, 4: 0x63, 8: 0x7B}


def _insn(opcode: int, dst: int = 0, src: int = 0, offset: int = 0, imm: int = 0) -> bytes:
    return struct.pack("<BBhi", opcode, src << 4 | dst, offset, imm)


RETURN = _insn(0xB7) + _insn(0x95)
SOCKET_OF_CONTEXT = _insn(0x79, 6, 1, 168) + _insn(0x55, 6, 0, 2) + RETURN


def _call(helper: int) -> bytes:
    return _insn(0xBF, 1, 6) + _insn(0x85, imm=helper) + _insn(0x55, 0, 0, 2) + RETURN + _insn(0xBF, 6, 0)


def _loads(code: bytes, program_type: int, attach_type: int) -> bool:
    try:
        os.close(load_bytes(code, program_type=program_type, attach_type=attach_type))
    except KernelError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "attach_type"),
    [
        ("xdp", AttachType.XDP),
        ("xdp", AttachType.XDP_DEVMAP),
        ("tc", None),
        ("socket", None),
        ("cgroup_skb", AttachType.CGROUP_INET_EGRESS),
    ],
)
def test_accesses_of_contexts(kernel, name, attach_type):
    context = CONTEXTS[name]
    different = []
    for offset in range(context.size + 8):
        for code, opcodes in (("load", LOAD), ("signed", SIGNED_LOAD), ("store", STORE)):
            for size, opcode in opcodes.items():
                access = _insn(opcode, 2, 1, offset)
                if code == "store":
                    access = _insn(0xB7, 2) + _insn(opcode, 1, 2, offset)
                ours = field_access(
                    context, offset, size, write=code == "store", sign_extend=code == "signed", attach_type=attach_type
                )
                if _loads(access + RETURN, context.program_type, attach_type or 0) == isinstance(ours, str):
                    different.append((code, offset, size, ours))
    assert not different


@pytest.mark.parametrize(
    ("socket", "before"),
    [
        (Socket.COMMON, SOCKET_OF_CONTEXT),
        (Socket.FULL, SOCKET_OF_CONTEXT + _call(95)),
        (Socket.TCP, SOCKET_OF_CONTEXT + _call(96)),
    ],
)
def test_accesses_of_sockets(kernel, socket, before):
    different = []
    for offset in range(120):
        for size, load in LOAD.items():
            for write in (False, True):
                access = _insn(0xB7, 2) + _insn(STORE[size], 6, 2, offset) if write else _insn(load, 2, 6, offset)
                ours = socket_access(socket, offset, size, write=write)
                if _loads(before + access + RETURN, 3, 0) == isinstance(ours, str):
                    different.append((write, offset, size, ours))
    assert not different
