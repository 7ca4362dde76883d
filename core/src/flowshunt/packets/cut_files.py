"""Files that others cut off while they are mapped: what is missing reads as zeros, instead of killing the process.

Linux sends SIGBUS where a mapped page lies past the file's end. The handler here puts a page of zeros in its place, for
mappings that are guarded; the window over the file then notices the new length and reports the damage.
"""

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIGBUS = 7
_PAST_THE_END = 2
"""BUS_ADRERR: there is nothing behind the address."""
_SA_SIGINFO, _SA_NODEFER, _SA_ONSTACK = 4, 0x40000000, 0x08000000
_MAP_FIXED = 0x10
_SIG_DFL = 0

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _SignalAction(ctypes.Structure):
    """`struct sigaction` of the C library."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _SignalInfo(ctypes.Structure):
    """The begin of `siginfo_t` as it is for faults."""

    _fields_ = (
        ("number", ctypes.c_int),
        ("error", ctypes.c_int),
        ("code", ctypes.c_int),
        ("pad", ctypes.c_int),
        ("address", ctypes.c_uint64),
    )


class _Guard:
    """The guarded ranges of memory, and the handler over them."""

    def __init__(self) -> None:
        self._ranges: dict[int, int] = {}
        self._library = ctypes.CDLL(None)
        self._library.mmap.restype = ctypes.c_void_p
        self._library.mmap.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        )
        self._callback = _HANDLER(self._fault)
        self._previous = _SignalAction()
        self._installed = False

    def add(self, address: int, length: int) -> None:
        """Guard a range; one that was mapped at the same address before is forgotten."""
        self._ranges[address] = address + length
        if not self._installed:
            action = _SignalAction()
            action.handler = ctypes.cast(self._callback, ctypes.c_void_p)
            action.flags = _SA_SIGINFO | _SA_NODEFER | _SA_ONSTACK
            self._library.sigaction(_SIGBUS, ctypes.byref(action), ctypes.byref(self._previous))
            self._installed = True

    def _fault(self, number: int, info: int, _context: int) -> None:
        told = _SignalInfo.from_address(info)
        address = told.address
        page = address - address % mmap.PAGESIZE
        for begin, end in self._ranges.items():
            if told.code == _PAST_THE_END and begin <= address < end:
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
                made = self._library.mmap(page, mmap.PAGESIZE, mmap.PROT_READ, flags, -1, 0)
                if made == page:
                    return
        self._library.sigaction(number, ctypes.byref(self._previous), None)


_guard: Any = None


def guard(data: NDArray[np.uint8]) -> None:
    """Let missing pages of a mapped file read as zeros from now on; elsewhere than on Linux this does nothing."""
    global _guard  # noqa: PLW0603 -- a process has one handler
    if not sys.platform.startswith("linux") or not len(data):
        return
    if _guard is None:
        _guard = _Guard()
    _guard.add(data.ctypes.data, len(data))
