"""The kernel runner: BPF_PROG_TEST_RUN on the machine's packet, with copies of its maps."""

import ctypes
import os
import struct
from typing import Final

import attrs

from flowshunt.errors import CapabilityError, InputError
from flowshunt.insn import (
    ADD,
    DW,
    JLE,
    R0,
    R1,
    R2,
    R3,
    R6,
    R10,
    Instruction,
    W,
    alu64_imm,
    call_local,
    exit_,
    jmp,
    ld_map_value,
    ldx,
    mov64,
    mov64_imm,
    stx,
)  # fmt: skip
from flowshunt_ebpf.contexts.layout import MEMORY, TC, XDP
from flowshunt_ebpf.kernel import load, syscall
from flowshunt_ebpf.kernel.maps import KernelMaps, pinned
from flowshunt_ebpf.kernel.syscall import KernelError, bpf
from flowshunt_ebpf.native.image import Image
from flowshunt_ebpf.native.interpreter import RunError
from flowshunt_ebpf.native.machine import DEFAULT_BUDGET, Machine
from flowshunt_ebpf.native.runner import Outcome
from flowshunt_ebpf.native.verdict import Verdict, digest, issue
from flowshunt_ebpf.program import MapDefinition, MapType, ProgramType

_RESULT: Final = MapDefinition("result", MapType.ARRAY, 4, 8, 1)
_MINIMUM: Final = 14
"""Bytes that a test run's packet has at least (ETH_HLEN)."""


def _test_run(fd: int, data: bytes, context: bytes, room: int, repeat: int) -> tuple[int, bytes, bytes, int]:
    """Gives return value, data, context and ns per run."""
    sent = ctypes.create_string_buffer(data, max(1, len(data)))
    received = ctypes.create_string_buffer(max(1, room))
    context_in = ctypes.create_string_buffer(context, max(1, len(context)))
    context_out = ctypes.create_string_buffer(max(1, len(context)))
    attributes = struct.pack(
        "<IIIIQQIIIIQQ", fd, 0, len(data), room, ctypes.addressof(sent), ctypes.addressof(received), repeat, 0,
        len(context), len(context), ctypes.addressof(context_in) if context else 0,
        ctypes.addressof(context_out) if context else 0,
    )  # fmt: skip
    _, result = bpf(syscall.TEST_RUN, attributes)
    _, value, _, size = struct.unpack_from("<IIII", result)
    duration = struct.unpack_from("<I", result, 36)[0]
    return value, received.raw[:size], context_out.raw[: len(context)], duration


class KernelProgram:
    """An image loaded into the kernel.

    A program on bare memory runs as XDP: a few instructions in front hand it the packet's bytes, and take all 64 bits
    of its result.

    Attributes:
        log: the end of the verifier's log.
        info: sizes of the translated and of the native code.
        verdict: the kernel's, for exactly this program, its maps and context; it accepts none on bare memory.
        duration: ns per run of the last run, as the kernel measured it.
    """

    def __init__(self, image: Image, machine: Machine, maps: KernelMaps | None = None) -> None:
        self.image = image
        self.machine = machine
        self.duration = 0
        self._own_maps = maps is None
        self._maps = maps
        self._extra: list[int] = []
        program = image.program
        try:
            self._maps = KernelMaps(machine.maps, image.program.btf) if maps is None else maps
            fds = [self._maps.descriptor(m) for m in image.maps]
            if image.context is MEMORY:
                self._result_fd = load.create_map(_RESULT)
                self._extra.append(self._result_fd)
                size = len(machine.packet())
                program = attrs.evolve(
                    program,
                    instructions=(*_memory_prologue(size, len(fds)), *program.instructions),
                    type=ProgramType.XDP,
                    attach_type=None,
                    maps=(*program.maps, _RESULT),
                )
            kind = image.context.program_type if image.context is not MEMORY else ProgramType.XDP
            self._fd, self.log = load.load_program(
                program, [*fds, *self._extra], program_type=kind, btf_fd=self._maps.btf_fd
            )
            self._extra.append(self._fd)
            self._load_targets()
        except KernelError as error:
            self.close()
            lacking = syscall.missing()
            if lacking:
                raise CapabilityError(f"the kernel runner can't run here: {lacking}") from None
            reason = "; ".join(line for line in error.log.strip().splitlines()[-3:] if line) or error.strerror
            raise InputError(
                f"{error.strerror or 'refused'}: {reason}", f"program {program.name}", "see the verifier's log"
            ) from error
        self.info = load.program_info(self._fd)
        # It saw bare memory of one size only; a run may have less.
        accepted = image.context is not MEMORY
        self.verdict = issue(Verdict(accepted, digest(image.as_loaded(), image.context), syscall.release(), self.log))

    def _load_targets(self) -> None:
        """Load the programs that the machine's program arrays name."""
        loaded: dict[int, int] = {}
        maps = self._maps
        assert maps is not None
        for m in self.machine.maps:
            if m.definition.type != MapType.PROG_ARRAY:
                continue
            for index, (handle,) in enumerate(struct.iter_unpack("<Q", m.values_view)):
                if handle and handle not in loaded:
                    image = self.machine.programs[handle - 1]
                    fds = [maps.descriptor(other) for other in image.maps]
                    kind = image.context.program_type
                    fd, _ = load.load_program(image.program, fds, program_type=kind, btf_fd=maps.btf_fd)
                    self._extra.append(fd)
                    loaded[handle] = fd
                if handle:
                    load.update(maps.descriptor(m), struct.pack("<I", index), struct.pack("<I", loaded[handle]))

    def run(self, *, budget: int = DEFAULT_BUDGET) -> Outcome:
        """Run once: the maps' contents go in and come back, and the packet. The kernel knows no budget."""
        return self._run(1, maps=True)

    def time(self, repeat: int, *, budget: int = DEFAULT_BUDGET) -> float:
        """Run `repeat` times in one system call; ns per run, as the kernel measures it: in whole ns, rounded down.

        The call itself takes milliseconds, so that a clock outside would tell less.
        """
        self._run(repeat, maps=False)
        return float(self.duration)

    def _run(self, repeat: int, *, maps: bool) -> Outcome:
        machine = self.machine
        self.machine.begin(0)
        if maps and self._maps is not None:
            self._maps.push()
        meta = machine.meta()
        data = machine.packet()
        size = len(data)
        front = b"" if self.image.context in (MEMORY, XDP, TC) else _ethernet(data)
        sent = (meta + front + data).ljust(len(meta) + _MINIMUM + (1 if front else 0), b"\0")
        context = self._context(len(meta), len(sent))
        try:
            with pinned():
                result = _test_run(self._fd, sent, context, len(sent) + 4096, repeat)
            value, received, context_out, self.duration = result
        except KernelError as error:
            raise RunError(f"program {self.image.program.name}: the kernel did not run it: {error.strerror}") from None
        if self.image.context is MEMORY:
            machine.set_packet(received[:size])
            value = struct.unpack("<Q", load.lookup(self._result_fd, bytes(4), 8) or bytes(8))[0]
        else:
            self._take_packet(received[len(front) :], context_out)
        if maps and self._maps is not None:
            self._maps.pull()
        return Outcome(value, detail=f"{self.duration} ns in the kernel")

    def _context(self, meta: int, size: int) -> bytes:
        kind = self.image.context
        plain = self.machine.context_bytes()
        if kind is XDP:
            return struct.pack("<III", meta, size, 0) + plain[12:]
        if kind is MEMORY:
            return b""
        cleared = bytearray(plain)
        cleared[0:4] = bytes(4)  # len, protocol and wire_len are the kernel's to say
        cleared[16:20] = bytes(4)
        cleared[160:164] = bytes(4)
        return bytes(cleared)

    def _take_packet(self, received: bytes, context_out: bytes) -> None:
        meta = struct.unpack_from("<I", context_out)[0] if self.image.context is XDP and context_out else 0
        self.machine.set_packet(received[meta:], received[:meta])
        if self.image.context is not XDP and context_out:
            fields = {f.name: f for f in TC.fields if f.writable and f.count == 1}
            for name, field in fields.items():
                if any(f.name == name for f in self.image.context.fields):
                    raw = context_out[field.offset : field.offset + field.size]
                    self.machine.set_context({name: int.from_bytes(raw, "little")})

    def close(self) -> None:
        """Give the program and the maps back."""
        for fd in self._extra:
            os.close(fd)
        self._extra = []
        if self._own_maps and self._maps is not None:
            self._maps.close()


def _ethernet(packet: bytes) -> bytes:
    """A header for programs that see packets from the network header on: the kernel takes it off again."""
    kind = {4: b"\x08\x00", 6: b"\x86\xdd"}.get(packet[0] >> 4 if packet else 0, b"\0\0")
    return bytes(12) + kind


def _memory_prologue(size: int, result: int) -> tuple[Instruction, ...]:
    """Call the program that follows with r1 = the packet, r2 = its length; keep its r0 in the map `result`."""
    hand_over = (
        mov64_imm(R0, 0),
        mov64(R6, R1),
        ldx(W, R1, R6, 0),
        ldx(W, R2, R6, 4),
        mov64(R3, R1),
        alu64_imm(ADD, R3, size),
        jmp(JLE, R3, R2, 1),
        exit_(),
        mov64_imm(R2, size),
    ) if size else (mov64_imm(R1, 0), mov64_imm(R2, 0))  # fmt: skip
    keep = (attrs.evolve(ld_map_value(R1, 0, 0), src=6, imm=result), stx(DW, R1, R0, 0), mov64_imm(R0, 0), exit_())
    return (*hand_over, call_local(5), *keep)


def run_in_kernel(image: Image, machine: Machine, maps: KernelMaps | None = None) -> KernelProgram:
    """Load a program into the kernel, with these maps or with new ones.

    Raises CapabilityError, saying what is lacking, where that is not possible here, and InputError with the verifier's
    last words where the kernel refuses the program.
    """
    return KernelProgram(image, machine, maps)


__all__ = ["R10", "KernelProgram", "run_in_kernel"]
