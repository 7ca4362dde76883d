"""What inspecting a frame costs, by part, and against decoding and tracking it.

usage: python tests/benchmarks/engine_inspect.py [CAPTURE RULES] [--batch N] [--bypass] [--profile]

Without a capture it makes a sample of 3,000 flows. Prints CPU ns per inspected frame; medians of 3 runs.
"""

import argparse
import cProfile
import pstats
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flowshunt.engine import EngineConfig, InspectionBatch
from flowshunt.flows.table import FlowTable
from flowshunt.packets.capture import open_captures
from flowshunt.packets.decode import decode
from flowshunt_ids import stages
from flowshunt_ids.engine import IdsEngine

PARTS = [
    (stages, "open_flows"),
    (stages, "track"),
    (stages, "gather"),
    (stages, "match_segments"),
    (stages, "match_packets"),
    (stages, "keep_pending"),
    (stages, "close_flows"),
    (stages, "end_flows"),
]


def timed(function: Callable[..., Any], name: str, spent: dict[str, int]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        start = time.thread_time_ns()
        result = function(*arguments)
        spent[name] += time.thread_time_ns() - start
        return result

    return call


def run(capture: Path, rules: Path, batch_frames: int, bypass: bool, spent: dict[str, int]) -> dict[str, float]:
    capacity = 1 << 20
    table = FlowTable(capacity)
    engine = IdsEngine().open(EngineConfig((rules,), bypass=bypass, flow_capacity=capacity))
    prepare = inspect = frames = alerts = 0
    bypassed = np.zeros(capacity, np.bool_)
    ending = np.empty(0, np.int32)
    with open_captures([str(capture)], batch_frames=batch_frames) as source:
        for batch in source:
            start = time.thread_time_ns()
            headers = decode(batch)
            tracking = table.track(batch, headers)
            ended, ending = ending, table.drain().slots
            middle = time.thread_time_ns()
            prepare += middle - start
            bypassed[ended] = False
            keep = ~(bypassed[tracking.slot] & (tracking.slot >= 0))
            given = InspectionBatch(
                batch.select(keep),
                headers[keep],
                tracking.slot[keep],
                tracking.direction[keep],
                tracking.events[keep],
                table.records,
                ended,
            )
            start = time.thread_time_ns()
            verdicts = engine.inspect(given)
            inspect += time.thread_time_ns() - start
            bypassed[verdicts.bypass_slot] = True
            frames += len(given)
            alerts += len(verdicts.alerts)
    counters = engine.summary().counters
    return {
        "decode and track": prepare / max(frames, 1) * (frames / max(batch.first + len(batch), 1)),
        "inspect": inspect / max(frames, 1),
        "frames": frames,
        "alerts": alerts,
        **{name: spent[name] / max(frames, 1) for name in spent},
        "hits per 1000 frames": counters["inspect.scan_hits"] * 1000 / max(frames, 1),
        "candidates per 1000 frames": counters["inspect.candidates"] * 1000 / max(frames, 1),
        "bytes scanned per frame": counters["inspect.segment_bytes"] / max(frames, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--bypass", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.files:
            capture, rules = options.files
        else:
            from flowshunt.packets.sample import write_sample

            capture = Path(folder) / "sample.pcap"
            write_sample(capture, flows=3000)
            rules = Path(f"{capture}.rules")
        if options.profile:
            profile = cProfile.Profile()
            profile.runcall(run, capture, rules, options.batch, options.bypass, defaultdict(int))
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            return
        plain = [run(capture, rules, options.batch, options.bypass, defaultdict(int)) for _ in range(3)]
        spent: dict[str, int] = defaultdict(int)
        originals = [(module, name, getattr(module, name)) for module, name in PARTS]
        for module, name, function in originals:
            setattr(module, name, timed(function, name, spent))
        parts = run(capture, rules, options.batch, options.bypass, spent)
        middle = {name: statistics.median(result[name] for result in plain) for name in plain[0]}
        for name in (*plain[0], *spent):
            print(f"{name:30s} {middle.get(name, parts[name]):12,.1f}")
        print(f"{'inspect / (decode and track)':30s} {middle['inspect'] / middle['decode and track']:12,.2f}")


if __name__ == "__main__":
    main()
