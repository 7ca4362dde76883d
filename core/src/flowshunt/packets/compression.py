"""Compressed captures as byte sources: gzip (RFC 1952) and zstd (RFC 8878), one member or frame after the other.

Memory is bounded whatever the data claims: gzip gives as much as the caller has room for, zstd one block (at most
128 KiB) at a time. All bytes before a damaged place are given, then the source ends and says why.
"""

import zlib
from typing import Protocol

from flowshunt.packets.magic import GZIP_MAGIC, ZSTD_MAGIC
from flowshunt.packets.window import ByteSource

MAX_ZSTD_WINDOW = 1 << 27
"""The largest zstd window that is accepted, as in the zstd command: 128 MiB."""

_INPUT = 128 << 10
_SKIPPABLE = 0x184D2A50
_CHECKSUM_LENGTH = 4


class _Compressed:
    """Buffered input for a decompressor, and the members that every byte source has."""

    def __init__(self, raw: ByteSource) -> None:
        self.damage = ""
        self._raw = raw
        self._buffer = b""

    @property
    def consumed(self) -> int:
        return self._raw.consumed - len(self._buffer)

    def idle(self) -> bool:
        return not self._buffer and self._raw.idle()

    def close(self) -> None:
        self._raw.close()

    def _more(self) -> bool:
        """Add some input to the buffer; False at the end of the file."""
        room = bytearray(_INPUT)
        count = self._raw.readinto(memoryview(room))
        self._buffer += room[:count]
        return count > 0

    def _take(self, length: int) -> bytes:
        """The next `length` bytes of input; fewer at the end of the file."""
        while len(self._buffer) < length and self._more():
            pass
        taken, self._buffer = self._buffer[:length], self._buffer[length:]
        return taken

    def _fail(self, reason: str) -> None:
        self.damage = self._raw.damage or reason


class GzipBytes(_Compressed):
    """The content of a gzip file. Zero padding after the last member is passed over."""

    def __init__(self, raw: ByteSource) -> None:
        super().__init__(raw)
        self._member: zlib._Decompress | None = None
        self._first = True

    def readinto(self, room: memoryview) -> int:
        """See `ByteSource.readinto`."""
        while not self.damage:
            if self._member is None and not self._next_member():
                break
            if not self._buffer:
                self._more()
            output = self._inflate(len(room))
            if output:
                room[: len(output)] = output
                return len(output)
        return 0

    def _next_member(self) -> bool:
        start = self._take(len(GZIP_MAGIC))
        while start and not self._first and start.strip(b"\0") == b"":
            start = self._take(_INPUT).lstrip(b"\0")
        if not start:
            return False
        self._buffer = start + self._buffer
        if not self._first and not self._buffer.startswith(GZIP_MAGIC):
            self._fail("bytes that are not gzip data follow the last member")
            return False
        self._first = False
        self._member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        return True

    def _inflate(self, limit: int) -> bytes:
        member, given = self._member, self._buffer
        assert member is not None
        before = member.copy()
        try:
            output = member.decompress(given, limit)
        except zlib.error as error:
            self._fail(f"gzip data is damaged ({str(error).partition(': ')[2] or error})")
            return _inflate_to_damage(before, given, limit)
        if member.eof:
            self._buffer, self._member = member.unused_data, None
        else:
            self._buffer = member.unconsumed_tail
            if not output and not given:
                self._fail("gzip data ends early")
        return output


def _inflate_to_damage(member: "zlib._Decompress", given: bytes, limit: int) -> bytes:
    """What a member gives before the byte that its decompressor stumbles over."""
    output = bytearray()
    try:
        for at in range(len(given)):
            output += member.decompress(given[at : at + 1], limit - len(output))
            if len(output) >= limit:
                break
    except zlib.error:
        pass
    return bytes(output)


class _BlockDecoder(Protocol):
    def decompress(self, data: bytes) -> bytes: ...


class ZstdBytes(_Compressed):
    """The content of a zstd file. Block by block, so that a damaged block costs none before it."""

    def __init__(self, raw: ByteSource) -> None:
        super().__init__(raw)
        import zstandard

        self._error: type[Exception] = zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
        self._frame: _BlockDecoder | None = None
        self._checksum = False
        self._ended = False
        self._pending = memoryview(b"")

    def idle(self) -> bool:
        """See `ByteSource.idle`."""
        return not self._pending and super().idle()

    def readinto(self, room: memoryview) -> int:
        """See `ByteSource.readinto`."""
        while not self._pending and not self.damage:
            try:
                piece = self._next_piece()
            except self._error as error:
                self._fail(f"zstd data is damaged ({str(error).rpartition(': ')[2]})")
                return 0
            if piece is None:
                return 0
            self._pending = memoryview(piece)
        count = min(len(room), len(self._pending))
        room[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count

    def _next_piece(self) -> bytes | None:
        """What the next part of a frame gives: header, block or checksum; None at the end or at damage."""
        if self._frame is None:
            return self._begin_frame()
        if self._ended:
            return self._end_frame(self._frame)
        header = self._take(3)
        word = int.from_bytes(header, "little")
        last, kind, size = word & 1, (word >> 1) & 3, word >> 3
        length = 1 if kind == 1 else size
        block = header + self._take(length)
        if len(block) < 3 + length or len(header) < 3:
            self._fail("zstd data ends early")
            return None
        self._ended = bool(last)
        return self._frame.decompress(block)

    def _end_frame(self, frame: _BlockDecoder) -> bytes | None:
        """Check a frame's checksum, where it has one, apart from its last block: that is good without it."""
        self._frame, self._ended = None, False
        if not self._checksum:
            return b""
        checksum = self._take(_CHECKSUM_LENGTH)
        if len(checksum) < _CHECKSUM_LENGTH:
            self._fail("zstd data ends early")
            return None
        return frame.decompress(checksum)

    def _begin_frame(self) -> bytes | None:
        magic = self._take(4)
        if not magic:
            return None
        if len(magic) == 4 and int.from_bytes(magic, "little") & ~0xF == _SKIPPABLE:
            self._skip(int.from_bytes(self._take(4), "little"))
            return b""
        descriptor = self._take(1)
        if magic != ZSTD_MAGIC and len(magic) == 4:
            self._fail("bytes that are not zstd data follow the last frame")
            return None
        if not descriptor:
            self._fail("zstd data ends early")
            return None
        self._checksum = bool(descriptor[0] & 4)
        single = (descriptor[0] >> 5) & 1
        length = 1 - single + (0, 1, 2, 4)[descriptor[0] & 3] + (single, 2, 4, 8)[descriptor[0] >> 6]
        self._frame = self._decompressor.decompressobj(write_size=(128 << 10) + 1024)
        return self._frame.decompress(magic + descriptor + self._take(length))

    def _skip(self, length: int) -> None:
        while length > 0:
            skipped = len(self._take(min(length, _INPUT)))
            if skipped == 0:
                self._fail("zstd data ends early")
                return
            length -= skipped
