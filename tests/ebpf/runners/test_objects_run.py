"""Compiled programs of application size do the same to packets and maps on every runner, and in the kernel."""

import importlib.util
import struct
from pathlib import Path

import pytest

from flowshunt_ebpf.elf import load_object
from flowshunt_ebpf.kernel.runner import run_in_kernel
from flowshunt_ebpf.kernel.syscall import missing
from flowshunt_ebpf.maps.rings import RingMap
from flowshunt_ebpf.native.emulator import emulate
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.workbench import Workbench
from flowshunt_ebpf.testing.checked_code import host_checked
from flowshunt_ebpf.verifier import verify

_spec = importlib.util.spec_from_file_location("ebpf_traffic", Path(__file__).with_name("traffic.py"))
traffic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(traffic)

FRAMES = traffic.frames(1, 120)


def accept(image, machine):
    return verify(image.as_loaded())


RUNNERS = {
    "host, checked": lambda bench: host_checked(bench.image, bench.machine),
    "host": lambda bench: host(bench.image, bench.machine, bench.judge(accept)),
    "unicorn-x86_64": lambda bench: emulate(bench.image, bench.machine, "x86_64"),
    "unicorn-arm64": lambda bench: emulate(bench.image, bench.machine, "arm64", bench.judge(accept)),
}


def balancer(bench):
    bench.maps["services"].update(struct.pack(">IHH", traffic.SERVICE, 80, 0x0600), struct.pack("<II", 1, 0))
    bench.maps["services"].update(struct.pack(">IHH", traffic.SERVICE, 0, 0x1100), struct.pack("<II", 2, 1))
    for slot in range(256):
        for service in (1, 2):
            bench.maps["ring"].update(
                struct.pack("<I", service * 256 + slot), struct.pack("<I", 1 + (slot * 7 + service) % 9)
            )
    for server in range(1, 8):
        value = struct.pack(">I6sH", 0x0A0A0000 + server, bytes([2, 0, 0, 0, 1, server]), 0x0100) + bytes(20)
        bench.maps["servers"].update(struct.pack("<I", server), value)


def limiter(bench):
    """One token a second, five to start with: a run takes less than that."""
    bench.maps[".rodata"].values_view[:8] = struct.pack("<II", 1, 5)
    prefix = struct.pack("<I", 96 + 24) + bytes(10) + b"\xff\xff" + bytes.fromhex("0a010000")
    bench.maps["exempt"].update(prefix, struct.pack("<I", 1))


def updater(bench):
    for protocol, port, again in ((6, 80, 0), (17, 53, 1), (17, 80, 0)):
        key = struct.pack(">IH", traffic.SERVICE, port) + struct.pack("<H", protocol)
        bench.maps["targets"].update(key, struct.pack(">IH", 0x0A0B0C0D, 8080) + struct.pack("<H", again))


# object, program, what is put into its maps, bytes of values that hold times
OBJECTS = {
    "packet_parser": ("parse_packet", None, {}),
    "load_balancer": ("balance", balancer, {}),
    "connection_tracker": ("track", None, {"connections": slice(0, 16)}),
    "rate_limiter": ("limit_rate", limiter, {"buckets": slice(8, 16)}),
    "checksum_updater": ("rewrite", updater, {}),
}


def bench_of(objects, name):
    program, fill, _ = OBJECTS[name]
    found = load_object(objects / f"{name}.o")
    others = {other: (lambda other=other: found.program(other)) for other in found.names}
    bench = Workbench(found.program(program), others)
    if fill:
        fill(bench)
    return bench


def without(value, times):
    if times is None:
        return value
    return value[: times.start] + value[times.stop :]


def everything(bench, load, times, *, frames=FRAMES):
    """What each frame returns and becomes, and what the maps hold afterwards."""
    loaded = load(bench)
    results, records = [], []
    for frame in frames:
        bench.machine.set_packet(frame)
        outcome = loaded.run()
        assert outcome.fault is None, outcome.fault.describe(bench.image.program)
        results.append((outcome.value & 0xFFFFFFFF, bench.machine.packet()))
        records += [r for m in bench.maps.values() if isinstance(m, RingMap) for r in m.drain()]
    loaded.close()
    held = {}
    for name, m in bench.maps.items():
        if not isinstance(m, RingMap) and m.pointers:
            held[name] = sorted((key, without(value, times.get(name))) for key, value in m.items())
    return results, held, records


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("name", OBJECTS)
def test_runners_agree_on_compiled_programs(objects, name, runner):
    times = OBJECTS[name][2]
    expected = everything(bench_of(objects, name), lambda b: interpret(b.image, b.machine), times)
    found = everything(bench_of(objects, name), RUNNERS[runner], times)
    assert found[0] == expected[0]
    assert found == expected
    assert len({value for value, _ in expected[0]}) > 1  # it tells frames apart


@pytest.mark.skipif(missing() is not None, reason=f"the kernel runner can't run here: {missing()}")
@pytest.mark.parametrize("name", OBJECTS)
def test_compiled_programs_behave_as_in_the_kernel(objects, name):
    times = OBJECTS[name][2]
    frames = [frame for frame in FRAMES if len(frame) >= 54]  # test runs of __sk_buff programs refuse bare headers
    frames = frames[: 15 if name == "rate_limiter" else 50]  # each takes milliseconds, and a token comes in a second
    on_host = everything(bench_of(objects, name), RUNNERS["host"], times, frames=frames)
    in_kernel = everything(bench_of(objects, name), lambda b: run_in_kernel(b.image, b.machine), times, frames=frames)
    assert in_kernel[0] == on_host[0]
    assert in_kernel[1] == on_host[1]


def test_the_trackers_events_tell_of_its_connections(objects):
    _, held, records = everything(bench_of(objects, "connection_tracker"), RUNNERS["host"], {})
    opened = sum(1 for record in records if struct.unpack_from("<I", record, 44)[0] == 0)
    _, _, opened_total, _, _ = struct.unpack("<IIQQQ", held["totals"][0][1])
    assert opened == opened_total > 0


def test_a_rewritten_frame_has_right_checksums(objects):
    results, _, _ = everything(bench_of(objects, "checksum_updater"), RUNNERS["host"], {})
    rewritten = [packet for value, packet in results if value == 3]
    assert len(rewritten) > 5
    assert all(traffic.checksum(packet[14:34]) == 0 for packet in rewritten)
