"""Memory at fixed addresses, in parts that inaccessible guard pages set apart.

Addresses are the process's own, so that native code, the interpreter, Unicorn and NumPy all work on the same bytes.
"""

import ctypes
import mmap
import weakref
from functools import lru_cache
from typing import Any

from flowshunt.errors import CapabilityError

PAGE = mmap.PAGESIZE

_PROT_NONE = 0
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value


@lru_cache(maxsize=1)
def libc() -> Any:
    """The C library, for the calls that this room makes."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_longlong]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


def pages(size: int) -> int:
    """A size rounded up to whole pages, at least one."""
    return max(1, -(-size // PAGE)) * PAGE


def map_anonymous(size: int, protection: int) -> int:
    """The address of new zeroed memory of the process's own. Raises CapabilityError where there is none."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    address = libc().mmap(None, size, protection, flags, -1, 0)
    if address == _FAILED:
        raise CapabilityError(
            f"can't map {size} bytes of memory (errno {ctypes.get_errno()}; free some, or ask for less)"
        )
    return int(address)


def protect(address: int, size: int, protection: int) -> None:
    """Change what may be done with whole pages. Raises CapabilityError where the system refuses."""
    if libc().mprotect(address, size, protection):
        raise CapabilityError(
            f"can't change the protection of {size} bytes of memory (errno {ctypes.get_errno()}; "
            "a security policy may forbid executable memory: use the interpreter or Unicorn)"
        )


class GuardedMemory:
    """Zeroed memory in parts, each of whole pages, with an inaccessible page before, between and after them.

    The last byte of a part's size need not be its page's last: parts are aligned at their start.
    """

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self._whole = PAGE + sum(pages(size) + PAGE for size in sizes)
        self._base = map_anonymous(self._whole, _PROT_NONE)
        self._finalizer = weakref.finalize(self, libc().munmap, self._base, self._whole)
        self.addresses: tuple[int, ...] = ()
        at = self._base + PAGE
        for size in sizes:
            protect(at, pages(size), READ_WRITE)
            self.addresses += (at,)
            at += pages(size) + PAGE

    def view(self, part: int) -> memoryview:
        """The bytes of a part, writable. Keeps the memory alive."""
        return view(self, self.addresses[part], self.sizes[part])


def view(owner: object, address: int, size: int) -> memoryview:
    """`size` bytes at an address, as a writable memoryview that keeps the memory's `owner` alive."""
    array = (ctypes.c_uint8 * size).from_address(address)
    array._owner = owner  # type: ignore[attr-defined]
    return memoryview(array).cast("B")
