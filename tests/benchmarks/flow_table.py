"""Frames per second through the flow table on one core: tracking (host) and matching (card), and a plain dictionary.

    python tests/benchmarks/flow_table.py [--flows N] [--frames N] [--rounds N]

Frames come in random order over all flows, both directions, in bursts of 16,384. The dictionary takes the five-tuple
out of the frame's bytes, both directions as one key, and counts packets, bytes and the last time: less than the table
does. Wanted at 100,000 flows: 5 million frames/s tracked and 7 million matched. Also printed: new flows per second
(every frame another flow), and the memory a flow takes.
"""

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from flowshunt.flows.record import FlowTimeouts
from flowshunt.flows.table import FlowTable
from flowshunt.packets.batch import LINK_ETHERNET, FrameBatch
from flowshunt.packets.headers import HEADER, NO_VLAN

BURST = 16384
SIZE = 64


def _frames(flow: np.ndarray, back: np.ndarray) -> tuple[FrameBatch, np.ndarray]:
    """Ethernet frames of IPv4 TCP flows, of 64 bytes, one a number in `flow`, from the responder where `back` is 1."""
    count = len(flow)
    frames = np.zeros((count, SIZE), np.uint8)
    client = (0x0A000000 + flow).astype(">u4")
    server = (0xC0A80000 + flow * 7919 % 65521).astype(">u4")
    port = 1024 + flow % 60000
    frames[:, 12:15] = [8, 0, 0x45]
    frames[:, 23] = 6
    frames[:, 26:30] = np.where(back, server, client).astype(">u4").view(np.uint8).reshape(-1, 4)
    frames[:, 30:34] = np.where(back, client, server).astype(">u4").view(np.uint8).reshape(-1, 4)
    headers = np.zeros(count, HEADER)
    headers["l3"] = headers["outer_l3"] = 14
    headers["l4"] = 34
    headers["payload"] = 54
    headers["ip_version"] = 4
    headers["protocol"] = 6
    headers["tcp_flags"] = 16
    headers["vlan"] = headers["inner_vlan"] = NO_VLAN
    headers["source_port"] = np.where(back, 443, port)
    headers["destination_port"] = np.where(back, port, 443)
    frames[:, 34:36] = headers["source_port"].astype(">u2").view(np.uint8).reshape(-1, 2)
    frames[:, 36:38] = headers["destination_port"].astype(">u2").view(np.uint8).reshape(-1, 2)
    batch = FrameBatch(
        data=frames.reshape(-1),
        offset=np.arange(count, dtype=np.int64) * SIZE,
        captured=np.full(count, SIZE, np.uint32),
        wire=np.full(count, 800, np.uint32),
        timestamp=1_700_000_000_000_000_000 + np.arange(count, dtype=np.int64) * 1000,
        port=np.zeros(count, np.uint16),
        link=np.full(count, LINK_ETHERNET, np.uint16),
    )
    return batch, headers


def _rate(step: Callable[[FrameBatch, np.ndarray], object], batch: FrameBatch, headers: np.ndarray) -> float:
    bursts = [slice(at, at + BURST) for at in range(0, len(batch), BURST)]
    parts = [(batch.select(burst), headers[burst]) for burst in bursts]
    start = time.thread_time()
    for part in parts:
        step(*part)
    return len(batch) / (time.thread_time() - start)


def _dictionary(batch: FrameBatch, headers: np.ndarray, flows: dict[tuple[bytes, bytes], list[int]]) -> None:
    data = memoryview(batch.data)  # type: ignore[arg-type]
    columns = (batch.offset, headers["l3"], headers["l4"], batch.wire, batch.timestamp)
    for offset, l3, l4, wire, now in zip(*(column.tolist() for column in columns), strict=True):
        source = bytes(data[offset + l3 + 12 : offset + l3 + 16]) + bytes(data[offset + l4 : offset + l4 + 2])
        destination = bytes(data[offset + l3 + 16 : offset + l3 + 20]) + bytes(data[offset + l4 + 2 : offset + l4 + 4])
        key = (source, destination) if source < destination else (destination, source)
        flow = flows.get(key)
        if flow is None:
            flow = flows[key] = [0, 0, 0]
        flow[0] += 1
        flow[1] += wire
        flow[2] = now


def _resident() -> int:
    """Bytes of memory that are in use, 0 where the system doesn't say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * resource.getpagesize() if status.exists() else 0


def main() -> int:
    """Print rates and ratios; exit 1 where they are lower than wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flows", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    chosen = np.random.default_rng(1)
    batch, headers = _frames(chosen.integers(0, options.flows, options.frames), chosen.integers(0, 2, options.frames))

    memory = _resident()
    host = FlowTable(1 << 20)
    for at in range(0, options.frames, BURST):
        host.track(batch.select(slice(at, at + BURST)), headers[at : at + BURST])
    memory = _resident() - memory
    card = FlowTable(1 << 22, FlowTimeouts(*[100.0] * 10))
    card.insert(host.records[: host.active], 1)
    plain: dict[tuple[bytes, bytes], list[int]] = {}
    part = batch.select(slice(0, options.frames // 10)), headers[: options.frames // 10]
    _dictionary(batch, headers, plain)
    if len(plain) != host.active or sum(flow[0] for flow in plain.values()) != host.records["packets"].sum():
        raise AssertionError("the table and the dictionary disagree")

    tracked, matched, looked_up = [], [], []
    for _ in range(options.rounds):
        tracked.append(_rate(host.track, batch, headers))
        matched.append(_rate(card.match, batch, headers))
        looked_up.append(_rate(lambda frames, rows: _dictionary(frames, rows, plain), *part))
    if card.records["packets"][: card.active].sum() != options.frames * options.rounds:
        raise AssertionError("a frame missed its flow on the card")
    fresh = _frames(np.arange(options.frames // 4), np.zeros(options.frames // 4, int))
    created = [_rate(FlowTable(1 << 20).track, *fresh) for _ in range(options.rounds)]

    track, match, dictionary = (statistics.median(rates) / 1e6 for rates in (tracked, matched, looked_up))
    print(f"{host.active:,} flows, {options.frames:,} frames, medians of {options.rounds} rounds, million frames/s:")
    print(f"track:      {track:6.2f}   {track / dictionary:5.1f} x the dictionary")
    print(f"match:      {match:6.2f}   {match / dictionary:5.1f} x the dictionary")
    print(f"dictionary: {dictionary:6.2f}")
    print(f"new flows:  {statistics.median(created) / 1e6:6.2f} million/s")
    if memory:
        print(f"memory:     {memory / host.active:6.0f} bytes a flow, index included")
    return 0 if track >= 5 and match >= 7 else 1


if __name__ == "__main__":
    sys.exit(main())
