"""Native operations in three programs of application size, on traffic, each policy against the stock JIT.

    python tests/benchmarks/native_applications.py [--rounds N] [--seconds S] [--only NAME] [--json FILE]

A layer 4 load balancer with a consistent ring (edge_balancer), a packet filter with connection tracking (firewall), a
flow table's data path (flow_table). All packets of a workload run in turn through the batch driver; the empty program's
time is subtracted, rounds are interleaved.
"""

import argparse
import importlib.util
import json
import random
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from flowshunt_ebpf.contexts.layout import BY_TYPE
from flowshunt_ebpf.elf import load_object
from flowshunt_ebpf.kops.optimize import optimize
from flowshunt_ebpf.kops.policy import Policy
from flowshunt_ebpf.kops.trial import Trial
from flowshunt_ebpf.native.workbench import Workbench

HERE = Path(__file__).resolve().parent
OBJECTS = HERE.parent / "ebpf" / "objects" / "large"
FLOWS = 256
VIP4, VIP6 = 0xC6336401, (0x20010DB8 << 96) + 0x100


def traffic() -> ModuleType:
    """The frames that the tests use."""
    spec = importlib.util.spec_from_file_location("ebpf_traffic", HERE.parent / "ebpf" / "runners" / "traffic.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def frames(t: ModuleType, target4: int, target6: int) -> list[bytes]:
    """TCP and UDP to one service from many clients, in random order."""
    dice = random.Random(5)
    made = []
    for n in range(FLOWS):
        client4 = 0x0A000000 + dice.randrange(1 << 20)
        client6 = (0x20010DB8 << 96) + (1 << 64) + dice.randrange(1 << 32)
        port = 1024 + dice.randrange(60000)
        body = dice.randbytes(dice.choice((8, 40, 200, 900)))
        if n % 4 == 3:
            payload = t.tcp(port, 443, 16, body)
            made.append(t.ethernet(0x86DD, t.ipv6(client6, target6, 6, payload)))
        elif n % 4 == 2:
            made.append(t.ethernet(0x0800, t.ipv4(client4, target4, 17, t.udp(port, 443, body))))
        else:
            tags = ((0x8100, 7),) if n % 8 == 0 else ()
            made.append(t.ethernet(0x0800, t.ipv4(client4, target4, 6, t.tcp(port, 443, 16, body)), vlans=tags))
    dice.shuffle(made)
    return made


def fill_balancer(bench: Workbench) -> None:
    """A service on each address, for TCP and UDP, on a ring of 16 servers of all kinds."""
    services = []
    for number, (version, protocol) in enumerate(((4, 6), (4, 17), (6, 6), (6, 17))):
        address = struct.pack(">I12x", VIP4) if version == 4 else VIP6.to_bytes(16, "big")
        services.append((address + struct.pack(">HBB", 443, protocol, version), struct.pack("<IIQQ", number, 0, 0, 0)))
    for key, value in services:
        bench.maps["services"].update(key, value)
    for number in range(1, 17):
        flags = (0, 2, 1, 3)[number % 4]
        address = bytes([10, 9, 0, number]) + bytes(12)
        if flags & 1:
            address = socket.inet_pton(socket.AF_INET6, f"2001:db8:1::{number:x}")
        value = address + bytes([2, 0, 0, 0, 1, number]) + struct.pack("<HQQ", flags, 0, 0)
        bench.maps["servers"].update(struct.pack("<I", number), value)
    dice = random.Random(9)
    for number in range(4):
        for place in range(1024):
            server = struct.pack("<I", dice.randrange(1, 17))
            bench.maps["ring"].update(struct.pack("<I", number * 1024 + place), server)


def fill_filter(bench: Workbench) -> None:
    """Both directions of every connection are known, as after its start."""
    allow = struct.pack("<IBBHHHI", 1, 0, 0, 0, 0, 65535, 0)
    bench.maps["rules"].update(struct.pack("<I", 0), allow)
    established = struct.pack("<QQQIHBBII", 0, 0, 0, 0, 0, 3, 0, 0, 0)
    for frame in frames(traffic(), VIP4, VIP6):
        at = 18 if frame[12:14] == b"\x81\x00" else 14
        if frame[at] >> 4 == 4:
            key = frame[at + 12 : at + 20] + frame[at + 20 : at + 24] + struct.pack("<I", frame[at + 9])
            bench.maps["connections4"].update(key, established)
        else:
            key = frame[at + 8 : at + 40] + frame[at + 40 : at + 44] + struct.pack("<I", frame[at + 6])
            bench.maps["connections6"].update(key, established)


@attrs.frozen
class Application:
    """An object, its program, and what fills its maps."""

    name: str
    program: str
    fill: Callable[[Workbench], None] = lambda bench: None


APPLICATIONS = (
    Application("edge_balancer", "edge", fill_balancer),
    Application("firewall", "filter", fill_filter),
    Application("flow_table", "flow_table"),
)


def measured(application: Application, packets: Sequence[bytes], rounds: int, seconds: float) -> dict[str, Any]:
    """One application's figures, as plain data."""
    found = load_object(OBJECTS / f"{application.name}.o")
    program = found.program(application.program)
    others = {name: (lambda name=name: found.program(name)) for name in found.names if name != application.program}
    trial = Trial(BY_TYPE[program.type], packets, others, application.fill, rounds=rounds, seconds=seconds)

    variants = {"none": program}
    for policy in (Policy.ALL, Policy.STATIC):
        variants[policy.value] = optimize(program, policy=policy).program
    timings = trial.measure(variants)
    loaded = {name: trial.load(one) for name, one in variants.items()}
    outcomes = {name: _outcomes(one, packets) for name, one in loaded.items()}
    assert len({tuple(results) for results in outcomes.values()}) == 1, "variants disagree"
    sizes = {name: one.code.program_bytes for name, one in loaded.items()}
    return {
        "name": application.name,
        "instructions": len(program),
        "sites": {name: len(one.sites) for name, one in variants.items()},
        "bytes": sizes,
        "ns": {name: timing.ns for name, timing in timings.items()},
        "ratio": {name: timing.ratio for name, timing in timings.items()},
        "low": {name: timing.low for name, timing in timings.items()},
        "high": {name: timing.high for name, timing in timings.items()},
        "results": sorted(set(outcomes["none"])),
    }


def _outcomes(loaded: Any, packets: Sequence[bytes]) -> list[int]:
    results = []
    for packet in packets:
        loaded.machine.set_packet(packet)
        results.append(loaded.run().value & 0xFFFFFFFF)
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--only", action="append")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    packets = frames(traffic(), VIP4, VIP6)
    results = []
    for application in APPLICATIONS:
        if arguments.only and application.name not in arguments.only:
            continue
        figures = measured(application, packets, arguments.rounds, arguments.seconds)
        results.append(figures)
        print(f"{figures['name']}: {figures['instructions']} instructions, results {figures['results']}")
        for name in figures["ns"]:
            size, stock = figures["bytes"][name], figures["bytes"]["none"]
            spread = f"({figures['low'][name]:.3f} to {figures['high'][name]:.3f})"
            print(
                f"  {name:8} {figures['sites'][name]:4} sites {figures['ns'][name]:8.1f} ns "
                f"{figures['ratio'][name]:6.3f}x {spread} {size:6} bytes {100 * (size - stock) / stock:+.1f} %"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
