"""What the running kernel's verifier says of a program, whether or not anything else here could run it."""

import os
import re
from contextlib import ExitStack
from typing import Final

import attrs

from flowshunt.errors import CapabilityError
from flowshunt_ebpf.kernel import load, syscall
from flowshunt_ebpf.kernel.plain_types import with_plain_types
from flowshunt_ebpf.kernel.syscall import KernelError
from flowshunt_ebpf.program import Program, ProgramType

_NO_REASONS: Final = ("verification time", "stack depth", "insns_processed")


@attrs.frozen
class KernelJudgement:
    """The kernel's answer.

    Attributes:
        accepted: whether it loaded.
        kernel: such as "Linux 6.18".
        reason: the verifier's own last words; empty where it accepts.
        log: all that it said; where it accepts only the count of its work.
        processed: instructions that it looked at, counted once per look; 0 where it did not say.
        errno: of the refusal; 0 where it accepts.
    """

    accepted: bool
    kernel: str
    reason: str
    log: str = attrs.field(repr=False)
    processed: int
    errno: int = 0


def judge(program: Program) -> KernelJudgement:
    """Load a program with empty maps of its definitions, and unload it.

    Raises CapabilityError where this process may not load programs, where the kernel has no such type (bare memory),
    and where it lacks a map that the program needs.
    """
    if program.type == ProgramType.UNSPEC:
        raise CapabilityError("the kernel judges no program on bare memory; choose a context with --context")
    lacking = syscall.missing()
    if lacking:
        raise CapabilityError(f"the kernel can't be asked here: {lacking}")
    program = with_plain_types(program)
    with ExitStack() as stack:
        try:
            btf_fd = load.load_btf(program.btf)
            if btf_fd:
                stack.callback(os.close, btf_fd)
            fds = []
            for definition in program.maps:
                fds.append(load.create_map(definition, btf_fd=btf_fd))
                stack.callback(os.close, fds[-1])
        except KernelError as error:
            raise CapabilityError(f"the kernel makes no such map: {error}") from None
        try:
            fd, log = load.load_program(program, fds, btf_fd=btf_fd)
        except KernelError as error:
            reason = last_words(error.log) or str(error.strerror)
            return KernelJudgement(False, syscall.release(), reason, error.log, _processed(error.log), error.errno or 0)
        os.close(fd)
    return KernelJudgement(True, syscall.release(), "", log, _processed(log))


def last_words(log: str) -> str:
    """The line of a verifier's log that says why it refused the program."""
    lines = [line.partition("processed ")[0].strip() for line in log.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_NO_REASONS)]
    return lines[-1] if lines else ""


def _processed(log: str) -> int:
    found = re.search(r"processed (\d+) insns", log)
    return int(found[1]) if found else 0
