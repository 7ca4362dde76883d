"""Frames per second of reading and shunting a capture whose flows are all bypassed on the card, on one core.

    python tests/benchmarks/shunt.py [--flows N] [--frames N] [--rounds N]

The pipeline is the whole one (capture file, card, host stage, end of burst); no frame reaches the host. Printed beside
it, from the same interleaved run: only reading, and the ratio of both. At least 3 million frames/s are wanted. Also
printed: Python function calls per frame.
"""

import argparse
import cProfile
import pstats
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from flowshunt.engine import EngineConfig
from flowshunt.flows.table import FlowTable
from flowshunt.nic import NicConfig
from flowshunt.packets.capture import open_captures
from flowshunt.packets.decode import decode
from flowshunt.packets.writer import CaptureWriter
from flowshunt.pipeline.host import Host
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.run import Card
from flowshunt.plugins import engine, load_plugins, nic_model
from flowshunt.testing.traffic import Conversation

BURST = 4096


def _write(path: Path, flows: int, frames: int) -> None:
    """TCP flows in random order, both directions, 64 to 1460 bytes of payload, no handshakes or ends."""
    chosen = np.random.default_rng(1)
    payload = bytes(1460)
    made = []
    for number in range(flows):
        conversation = Conversation(
            (0x0A000000 + number).to_bytes(4), (0xC0A80000 + number % 5000).to_bytes(4), 1024 + number % 60000, 443
        )
        size = int(chosen.integers(64, 1460))
        made.append((conversation.frame(0, payload[:size]), conversation.frame(1)))
    order = chosen.integers(0, flows, frames)
    direction = chosen.integers(0, 2, frames)
    with CaptureWriter(path) as writer:
        for number, (flow, way) in enumerate(zip(order.tolist(), direction.tolist(), strict=True)):
            writer.write(1_700_000_000_000_000_000 + 1000 * number, made[flow][way])


def _read(path: Path) -> tuple[int, float]:
    start = time.thread_time()
    frames = 0
    with open_captures([path], batch_frames=BURST) as source:
        for batch in source:
            frames += len(batch)
    return frames, time.thread_time() - start


def _shunt(path: Path, flows: np.ndarray, profile: cProfile.Profile | None = None) -> tuple[int, float]:
    nic = nic_model("nt200a02").open(NicConfig(actions=load_plugins().actions))
    session = engine("ids").open(EngineConfig())
    table = FlowTable(1 << 20)
    host = Host(nic, session, table, BypassMode.HARDWARE, None)
    card = Card(nic)
    nic.learn(flows, "drop", {})
    if profile:
        profile.enable()
    start = time.thread_time()
    with open_captures([path], batch_frames=BURST) as source:
        for batch in source:
            card.burst(batch, host, int(batch.timestamp[-1]))
    seconds = time.thread_time() - start
    if profile:
        profile.disable()
    statistics_ = nic.statistics()
    if statistics_.delivered:
        raise AssertionError(f"{statistics_.delivered} frames reached the host")
    return statistics_.frames, seconds


def main() -> int:
    """Print rates, the ratio and the calls per frame; exit 1 below 3 million frames/s."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flows", type=int, default=20_000)
    parser.add_argument("--frames", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bypassed.pcap"
        _write(path, options.flows, options.frames)
        table = FlowTable(1 << 20)
        with open_captures([path]) as source:
            for batch in source:
                table.track(batch, decode(batch))
        table.close()
        flows = table.drain().records
        reading, shunting = [], []
        for _ in range(options.rounds):
            frames, seconds = _read(path)
            reading.append(frames / seconds)
            frames, seconds = _shunt(path, flows)
            shunting.append(frames / seconds)
        profile = cProfile.Profile()
        frames, _ = _shunt(path, flows, profile)
        calls = pstats.Stats(profile).total_calls / frames  # type: ignore[attr-defined]
    rate = statistics.median(shunting)
    print(f"reading:  {statistics.median(reading) / 1e6:6.2f} million frames/s")
    print(f"shunting: {rate / 1e6:6.2f} million frames/s ({options.flows:,} flows, {frames:,} frames)")
    print(f"shunting / reading: {statistics.median(s / r for s, r in zip(shunting, reading, strict=True)):.3f}")
    print(f"Python calls per frame: {calls:.5f}")
    return 0 if rate >= 3e6 else 1


if __name__ == "__main__":
    sys.exit(main())
