"""Host CPU per frame with bypass off, in software and in hardware, on sample traffic: ratios from one interleaved run.

    python tests/benchmarks/bypass_cost.py [--flows N] [--rounds N] [CAPTURE --rules FILE]

Off and software bypass run on a standard NIC (the host decodes), hardware bypass on a SmartNIC, as in the source of the
figures to reach: hardware bypass costs the host at most 1/2.5 of software bypass and at most 1/5 of no bypass.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import attrs

from flowshunt.packets.sample import write_sample
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.run import RunConfig, run
from flowshunt.plugins import engine, load_plugins, nic_model


def _ratios(values: list[float]) -> str:
    return f"median {statistics.median(values):.3f} (min {min(values):.3f}, max {max(values):.3f})"


def main() -> int:
    """Print the cost of each mode and the two ratios; exit 1 where a ratio's median misses its figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", nargs="?", help="a capture of your own; default: sample traffic")
    parser.add_argument("--rules", help="its rules")
    parser.add_argument("--flows", type=int, default=24000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--burst", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        capture = options.capture or str(Path(folder) / "sample.pcap")
        rules = options.rules or f"{capture}.rules"
        if options.capture is None:
            summary = write_sample(capture, flows=options.flows, seed=1, rate=options.flows / 6)
            print(summary)
        config = RunConfig(
            captures=(capture,),
            model=nic_model("xl710"),
            engine=engine("ids"),
            mode=BypassMode.OFF,
            actions=load_plugins().actions,
            rules=(Path(rules),),
            burst=options.burst,
        )
        configs = {
            BypassMode.OFF: config,
            BypassMode.SOFTWARE: attrs.evolve(config, mode=BypassMode.SOFTWARE),
            BypassMode.HARDWARE: attrs.evolve(config, mode=BypassMode.HARDWARE, model=nic_model("nt200a02")),
        }
        costs: dict[BypassMode, list[float]] = {mode: [] for mode in BypassMode}
        for _ in range(options.rounds):
            for mode, chosen in configs.items():
                result = run(chosen)
                costs[mode].append(result.host_ns_per_frame)
                time = result.host_time
                stages = ", ".join(f"{k} {v / result.total.frames:.0f}" for k, v in attrs.asdict(time).items())
                print(
                    f"{mode:9} {result.host_ns_per_frame:8.0f} ns/frame ({stages}); delivered "
                    f"{result.delivered.frames / result.total.frames:.1%} of {result.total.frames:,} frames, "
                    f"{result.delivered.bytes / result.total.bytes:.1%} of the bytes"
                )
    to_software = [h / s for h, s in zip(costs[BypassMode.HARDWARE], costs[BypassMode.SOFTWARE], strict=True)]
    to_off = [h / o for h, o in zip(costs[BypassMode.HARDWARE], costs[BypassMode.OFF], strict=True)]
    print(f"hardware / software bypass: {_ratios(to_software)}; at most 0.400 wanted")
    print(f"hardware / no bypass:       {_ratios(to_off)}; at most 0.200 wanted")
    return 0 if statistics.median(to_software) <= 0.4 and statistics.median(to_off) <= 0.2 else 1


if __name__ == "__main__":
    sys.exit(main())
