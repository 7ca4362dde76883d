"""The parser of one SSH connection: banners (RFC 4253, section 4.2), key exchange, where encryption begins."""

import hashlib
import struct
from typing import Any, Final

import attrs

from flowshunt_ids.app.contract import TO_SERVER, Context, Transaction

BANNER, KEYS, FINISHED = 1, 2, 3
"""Progress of a direction: its banner was seen, its key exchange was offered, what follows is encrypted."""

_KEY_EXCHANGE, _NEW_KEYS = 20, 21
_LONGEST_BANNER: Final = 255
_MOST_LINES: Final = 1 << 12
_LARGEST_RECORD: Final = 1 << 18
_KEPT: Final = 1 << 16


@attrs.define
class Side:
    """What one direction has said.

    Attributes:
        protocol, software: of its banner. hassh: the string whose MD5 is the HASSH hash.
    """

    protocol: bytes | None = None
    software: bytes | None = None
    hassh: str | None = None

    @property
    def hassh_hash(self) -> str | None:
        """MD5 of `hassh`, hexadecimal."""
        if self.hassh is None:
            return None
        return hashlib.md5(self.hassh.encode("latin-1"), usedforsecurity=False).hexdigest()


class SshTransaction(Transaction):
    """A connection: all of it is one transaction."""

    __slots__ = ("sides",)

    def __init__(self) -> None:
        super().__init__(0)
        self.sides = (Side(), Side())

    def reach(self, direction: int, progress: int) -> None:
        """Note progress of a direction."""
        if progress > self.progress[direction]:
            self.progress[direction] = progress
            self.changed[direction] = True


class SshParser:
    """See `flowshunt_ids.app.contract.Parser`."""

    def __init__(self, context: Context) -> None:
        self._transaction = SshTransaction()
        self.transactions: list[Any] = [self._transaction]
        self.bypass = False
        self.becomes: str | None = None
        self._pending = (bytearray(), bytearray())
        self._skip = [0, 0]
        self._over = [False, False]

    def data(self, direction: int, data: bytes) -> None:
        """The next bytes of a direction."""
        if self._over[direction]:
            return
        skip = min(self._skip[direction], len(data))
        self._skip[direction] -= skip
        pending = self._pending[direction]
        pending += memoryview(data)[skip:]
        if self._transaction.progress[direction] < BANNER and not self._banner(direction, pending):
            return
        self._records(direction, pending)

    def gap(self, direction: int, size: int) -> None:
        """What is lost of a message that is passed over does no harm; else the direction can't be followed."""
        if self._skip[direction] >= size:
            self._skip[direction] -= size
        else:
            self._end(direction)

    def end(self, direction: int) -> None:
        """Nothing more comes."""
        self._end(direction)

    def _end(self, direction: int) -> None:
        self._over[direction] = True
        self._pending[direction].clear()
        self._transaction.reach(direction, FINISHED)
        if all(self._over) and all(side.software is not None for side in self._transaction.sides):
            self.bypass = True

    def _banner(self, direction: int, pending: bytearray) -> bool:
        """Take the banner; False while it is not there. Servers may send other lines before it."""
        at = 0
        while True:
            end = pending.find(b"\n", at)
            if end < 0:
                del pending[:at]
                if len(pending) > _MOST_LINES:
                    self._transaction.event(direction, "invalid_banner")
                    self._end(direction)
                elif len(pending) > _LONGEST_BANNER and pending.startswith(b"SSH-"):
                    self._take(direction, bytes(pending[:_LONGEST_BANNER]), long=True)
                    pending.clear()
                return False
            line = bytes(pending[at:end]).removesuffix(b"\r")
            at = end + 1
            if line.startswith(b"SSH-"):
                del pending[:at]
                self._take(direction, line, long=len(line) > _LONGEST_BANNER)
                return True
            if direction == TO_SERVER or at > _MOST_LINES:
                self._transaction.event(direction, "invalid_banner")
                self._end(direction)
                return False

    def _take(self, direction: int, line: bytes, *, long: bool) -> None:
        side = self._transaction.sides[direction]
        protocol, dash, rest = line[4:].partition(b"-")
        if not dash or not protocol:
            self._transaction.event(direction, "invalid_banner")
            self._end(direction)
            return
        if long:
            self._transaction.event(direction, "long_banner")
        side.protocol = protocol
        side.software = rest.partition(b" ")[0].rstrip(b"\r")
        self._transaction.reach(direction, BANNER)

    def _records(self, direction: int, pending: bytearray) -> None:
        at = 0
        while len(pending) - at >= 6 and not self._over[direction]:
            (size,) = struct.unpack_from(">I", pending, at)
            kind = pending[at + 5]
            if not 2 <= size <= _LARGEST_RECORD:
                self._transaction.event(direction, "invalid_record")
                self._end(direction)
                return
            have = len(pending) - at - 4
            if kind == _KEY_EXCHANGE and size <= _KEPT:
                if have < size:
                    break
                self._keys(direction, bytes(pending[at + 6 : at + 4 + size - min(pending[at + 4], size - 2)]))
            elif kind == _NEW_KEYS:
                self._end(direction)
                return
            elif have < size:
                self._skip[direction] = size - have
                at = len(pending)
                break
            at += 4 + size
        del pending[:at]

    def _keys(self, direction: int, data: bytes) -> None:
        """The lists of a key exchange message (RFC 4253, section 7.1); HASSH is of four of them."""
        lists: list[str] = []
        at = 16
        for _ in range(10):
            if at + 4 > len(data):
                return
            (size,) = struct.unpack_from(">I", data, at)
            if size > len(data) - at - 4:
                return
            lists.append(data[at + 4 : at + 4 + size].decode("latin-1"))
            at += 4 + size
        exchange, to_server, to_client = lists[0], (lists[2], lists[4], lists[6]), (lists[3], lists[5], lists[7])
        side = self._transaction.sides[direction]
        side.hassh = ";".join((exchange, *(to_server if direction == TO_SERVER else to_client)))
        self._transaction.reach(direction, KEYS)
