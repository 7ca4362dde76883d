"""Memory for machine code: never writable and executable at once."""

import ctypes
import mmap
import weakref
from typing import Final

from flowshunt_ebpf.maps.memory import READ_WRITE, libc, map_anonymous, pages, protect

_READ_EXECUTE: Final = mmap.PROT_READ | mmap.PROT_EXEC


class CodeMemory:
    """Machine code, executable and read-only; while it is written it is not executable.

    A fresh mapping each time: on ARM64 the kernel then makes the instruction cache coherent when it turns executable.
    """

    def __init__(self, code: bytes) -> None:
        self.size = len(code)
        whole = pages(self.size)
        self.address = map_anonymous(whole, READ_WRITE)
        self._finalizer = weakref.finalize(self, libc().munmap, self.address, whole)
        ctypes.memmove(self.address, code, self.size)
        protect(self.address, whole, _READ_EXECUTE)
