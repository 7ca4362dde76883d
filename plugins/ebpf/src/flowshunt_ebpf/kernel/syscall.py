"""The system call bpf(2) and the structures that it takes, as in include/uapi/linux/bpf.h."""

import ctypes
import errno
import os
import platform
import sys
from typing import Final

from flowshunt.errors import CapabilityError

MAP_CREATE: Final = 0
MAP_LOOKUP: Final = 1
MAP_UPDATE: Final = 2
MAP_DELETE: Final = 3
MAP_GET_NEXT_KEY: Final = 4
PROG_LOAD: Final = 5
TEST_RUN: Final = 10
GET_INFO: Final = 15
BTF_LOAD: Final = 18
MAP_LOOKUP_AND_DELETE: Final = 21
MAP_FREEZE: Final = 22

_NUMBERS: Final = {"x86_64": 321, "aarch64": 280}


class KernelError(OSError):
    """The kernel refused a request. `log`: what its verifier said."""

    def __init__(self, number: int, what: str, log: str = "") -> None:
        self.log = log
        super().__init__(number, f"{what}: {os.strerror(number)}")


def bpf(command: int, attributes: bytes | bytearray) -> tuple[int, bytes]:
    """Call bpf(2): gives its result and the attributes as the kernel left them.

    Raises KernelError where the kernel refuses, CapabilityError where there is no such system call.
    """
    number = _NUMBERS.get(platform.machine())
    if sys.platform != "linux" or number is None:
        raise CapabilityError(f"the kernel runner needs Linux on {' or '.join(_NUMBERS)}; use another runner")
    libc = ctypes.CDLL(None, use_errno=True)
    room = ctypes.create_string_buffer(bytes(attributes), max(len(attributes), 148))
    result = libc.syscall(number, command, room, len(room))
    if result < 0:
        raise KernelError(ctypes.get_errno(), f"bpf command {command}")
    return int(result), room.raw


def missing() -> str | None:
    """What the kernel runner lacks here; None where it can run."""
    from flowshunt_ebpf.kernel.load import load_bytes

    try:
        fd = load_bytes(bytes.fromhex("b700000000000000 9500000000000000"), program_type=6)
    except CapabilityError as error:
        return str(error)
    except KernelError as error:
        reasons = {
            errno.EPERM: "loading programs needs CAP_BPF and CAP_NET_ADMIN, or root; containers may forbid it",
            errno.ENOSYS: "this kernel has no bpf system call",
        }
        return reasons.get(error.errno or 0, str(error))
    os.close(fd)
    return None


def release() -> str:
    """The kernel's name and version, such as "Linux 6.18"."""
    return f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
