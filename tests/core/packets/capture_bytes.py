"""Captures as bytes, made by hand for tests: every variant of pcap and pcapng that a reader has to know."""

import struct

import attrs

from flowshunt.packets.capture import open_captures

SECOND = 10**9


@attrs.frozen
class Frame:
    """What a capture says of one frame."""

    data: bytes
    time: int = 1_700_000_000 * SECOND
    wire: int | None = None
    port: int = 0
    link: int = 1

    @property
    def full(self):
        return attrs.evolve(self, wire=len(self.data) if self.wire is None else self.wire)


def frames(count, *, start=1_700_000_000 * SECOND, gap=1000, size=60):
    """Frames that differ, `gap` ns apart, with sizes that differ too."""
    return [
        Frame(bytes([number & 0xFF, number >> 8 & 0xFF]) + bytes(size + number % 7), start + number * gap)
        for number in range(count)
    ]


def pcap(content, *, order="<", nanosecond=True, modified=False, word=1, snaplen=262144):
    """A pcap file."""
    magic = 0xA1B2CD34 if modified else 0xA1B23C4D if nanosecond else 0xA1B2C3D4
    unit = 1 if nanosecond and not modified else 1000
    out = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, word)]
    for frame in content:
        seconds, fraction = divmod(frame.time, SECOND)
        out.append(struct.pack(order + "IIII", seconds, fraction // unit, len(frame.data), frame.full.wire))
        if modified:
            out.append(struct.pack(order + "IHBB", 3, 0x0800, 0, 0))
        out.append(frame.data)
    return b"".join(out)


def block(kind, body, *, order="<"):
    """A pcapng block."""
    body += bytes(-len(body) % 4)
    length = len(body) + 12
    return struct.pack(order + "II", kind, length) + body + struct.pack(order + "I", length)


def option(code, value, *, order="<"):
    """A pcapng option."""
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(*, order="<", options=b""):
    """A pcapng section header."""
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + options, order=order)


def interface(*, link=1, snaplen=0, order="<", resolution=None, offset=None, fcs=None):
    """A pcapng interface description; `resolution` is the byte of if_tsresol."""
    options = option(2, b"eth0", order=order)
    if resolution is not None:
        options += option(9, bytes([resolution]), order=order)
    if offset is not None:
        options += option(14, struct.pack(order + "q", offset), order=order)
    if fcs is not None:
        options += option(13, bytes([fcs]), order=order)
    return block(1, struct.pack(order + "HHI", link, 0, snaplen) + options + option(0, b""), order=order)


def enhanced(data, ticks, *, interface=0, wire=None, order="<", options=b""):
    """A pcapng enhanced packet block; `ticks` in the unit of its interface."""
    wire = len(data) if wire is None else wire
    head = struct.pack(order + "IIIII", interface, ticks >> 32, ticks & 0xFFFFFFFF, len(data), wire)
    return block(6, head + data + bytes(-len(data) % 4) + options, order=order)


def obsolete(data, ticks, *, interface=0, drops=0, order="<"):
    """A pcapng (obsolete) packet block."""
    head = struct.pack(order + "HHIIII", interface, drops, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
    return block(2, head + data, order=order)


def simple(data, *, wire=None, order="<"):
    """A pcapng simple packet block."""
    return block(3, struct.pack(order + "I", len(data) if wire is None else wire) + data, order=order)


def pcapng(content, *, order="<"):
    """A pcapng file of one section and one interface with nanosecond timestamps."""
    blocks = [section(order=order), interface(order=order, resolution=9)]
    blocks += [enhanced(frame.data, frame.time, wire=frame.wire, order=order) for frame in content]
    return b"".join(blocks)


def frames_of(batch):
    """A batch as `Frame` objects."""
    columns = (batch.timestamp, batch.wire, batch.port, batch.link)
    return [
        Frame(batch.frame(row), *values)
        for row, values in enumerate(zip(*(column.tolist() for column in columns), strict=True))
    ]


def read(*paths, **options):
    """Everything that is in captures: (frames, problems)."""
    with open_captures(paths, **options) as source:
        found = [frame for batch in source for frame in frames_of(batch)]
        assert source.frames_read == len(found)
        return found, source.problems
