"""Frames a second on one core: indexing captures, decoding headers, checksums, against plain Python and scapy.

    python tests/benchmarks/decode.py [--frames N] [--rounds N] [CAPTURE]

Without a capture of your own it makes TCP/IPv4 frames of 64 bytes. The plain Python decoder unpacks the same columns
with `struct`, one frame at a time, as a script without libraries would; scapy dissects the frames. Both see a part of
the capture. Figures are medians of the rounds.
"""

import argparse
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.capture import open_captures
from flowshunt.packets.checksum import verify_checksums
from flowshunt.packets.decode import decode
from flowshunt.packets.headers import HEADER

TARGETS = {"index pcap": 20e6, "decode": 15e6}


def _make(path: Path, frames: int) -> None:
    """Write frames of 64 bytes: Ethernet, IPv4, TCP, 10 bytes of payload, of many flows."""
    ethernet = bytes(12) + b"\x08\x00"
    record = []
    for number in range(1024):
        ip = struct.pack(">BBHHHBBHII", 0x45, 0, 50, number, 0, 64, 6, 0, 0x0A000000 + number, 0xC0000201)
        tcp = struct.pack(">HHIIBBHHH", 1024 + number, 443, number, 0, 0x50, 0x18, 512, 0, 0)
        record.append(struct.pack("<IIII", 1, number, 64, 64) + ethernet + ip + tcp + bytes(10))
    block = b"".join(record)
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
        for _ in range(max(1, frames // 1024)):
            out.write(block)


def _to_pcapng(source: Path, path: Path) -> None:
    """Write the same frames as enhanced packet blocks."""
    with path.open("wb") as out, open_captures([source]) as frames:
        out.write(struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28))
        out.write(struct.pack("<IIHHII", 1, 20, 1, 0, 0, 20))
        for batch in frames:
            for row in range(len(batch)):
                data = batch.frame(row)
                size = 32 + len(data) + -len(data) % 4
                head = struct.pack("<IIIIIII", 6, size, 0, 0, row, len(data), int(batch.wire[row]))
                out.write(head + data + bytes(-len(data) % 4) + struct.pack("<I", size))


def _rate(work: Callable[[], int], rounds: int) -> float:
    """Frames a second of CPU time: the median of the rounds, after one to warm up."""
    work()
    rates = []
    for _ in range(rounds):
        start = time.process_time()
        frames = work()
        rates.append(frames / (time.process_time() - start))
    return statistics.median(rates)


def _index(path: Path) -> int:
    with open_captures([path]) as source:
        return sum(len(batch) for batch in source)


def _index_and_decode(path: Path, out: np.ndarray) -> int:
    with open_captures([path]) as source:
        return sum(len(decode(batch, out=out)) for batch in source)


def plain_python(frame: bytes) -> tuple[int, ...] | None:
    """TCP over IPv4 over Ethernet, by `struct`: the columns that a HEADER row has of such a frame."""
    if len(frame) < 54:
        return None
    (ethertype,) = struct.unpack_from(">H", frame, 12)
    if ethertype != 0x0800:
        return None
    first, _, total, identification, fragment, ttl, protocol = struct.unpack_from(">BBHHHBB", frame, 14)
    l4 = 14 + (first & 15) * 4
    if first >> 4 != 4 or protocol != 6 or fragment & 0x3FFF or len(frame) < l4 + 20:
        return None
    sport, dport, seq, ack, offset, flags, window = struct.unpack_from(">HHIIBBH", frame, l4)
    payload = l4 + (offset >> 4) * 4
    length = min(14 + total, len(frame)) - payload
    return 14, l4, payload, length, identification, seq, ack, sport, dport, window, ethertype, ttl, flags


def main() -> int:
    """Print the figures; exit 1 where one misses its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", nargs="?", type=Path)
    parser.add_argument("--frames", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.capture or Path(folder) / "frames.pcap"
        if options.capture is None:
            _make(path, options.frames)
        _to_pcapng(path, Path(folder) / "frames.pcapng")
        out = np.empty(1 << 14, HEADER)
        with open_captures([path]) as source:
            batch: FrameBatch = next(iter(source))
        rows = decode(batch)
        repeats = max(1, 1_000_000 // len(batch))
        frames = [batch.frame(row) for row in range(min(len(batch), 5000))]
        from scapy.layers.l2 import Ether

        rates = {
            "index pcap": _rate(lambda: _index(path), options.rounds),
            "index pcapng": _rate(lambda: _index(Path(folder) / "frames.pcapng"), options.rounds),
            "decode": _rate(lambda: sum(len(decode(batch, out=out)) for _ in range(repeats)), options.rounds),
            "index and decode": _rate(lambda: _index_and_decode(path, out), options.rounds),
            "verify checksums": _rate(
                lambda: sum(len(verify_checksums(batch, rows)) for _ in range(repeats)), options.rounds
            ),
            "plain Python, struct": _rate(lambda: len([plain_python(frame) for frame in frames]), options.rounds),
            "scapy": _rate(lambda: len([Ether(frame) for frame in frames[:500]]), options.rounds),
        }
    reference = rates["plain Python, struct"]
    for name, rate in rates.items():
        print(f"{name:22} {rate / 1e6:10.3f} million frames/s {rate / reference:10.2f} x plain Python")
    missed = [name for name, target in TARGETS.items() if rates[name] < target]
    for name in missed:
        print(f"{name} misses its {TARGETS[name] / 1e6:.0f} million frames/s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
