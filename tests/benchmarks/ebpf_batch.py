"""The batch driver: frames a second through a compiled program, against one call from Python a frame and the kernel.

    python tests/benchmarks/ebpf_batch.py [--frames N] [--rounds N]

The program is the test object `packet_parser`; the frames are those of the tests. Rounds interleave; figures are
medians.
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from flowshunt_ebpf.elf import load_object
from flowshunt_ebpf.kernel.syscall import missing
from flowshunt_ebpf.native.batch import BatchDriver
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.workbench import Workbench
from flowshunt_ebpf.testing.checked_code import host_checked
from flowshunt_ebpf.verifier import verify

HERE = Path(__file__).resolve().parent


def frames(count: int) -> list[bytes]:
    """The frames that the tests use."""
    spec = importlib.util.spec_from_file_location("ebpf_traffic", HERE.parent / "ebpf" / "runners" / "traffic.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: list[bytes] = module.frames(1, min(count, 2000))
    return (made * (count // len(made) + 1))[:count]


def bench() -> Workbench:
    """The program, ready to run."""
    return Workbench(load_object(HERE.parent / "ebpf" / "objects" / "packet_parser.o").program())


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    held = frames(arguments.frames)
    data = np.frombuffer(b"".join(held), np.uint8)
    length = np.array([len(frame) for frame in held], np.uint32)
    offset = np.concatenate([[0], np.cumsum(length, dtype=np.int64)[:-1]]).astype(np.int64)
    ready = bench()
    verdict = verify(ready.image.as_loaded())
    unchecked, checked = host(ready.image, ready.machine, verdict), host_checked(ready.image, ready.machine)

    def one_by_one(count: int) -> float:
        start = time.perf_counter()
        for frame in held[:count]:
            ready.machine.set_packet(frame)
            unchecked.run()
        return (time.perf_counter() - start) / count

    def batch(driver: BatchDriver) -> float:
        start = time.perf_counter()
        driver.run_columns(data, offset, length)
        return (time.perf_counter() - start) / len(held)

    ways: dict[str, Callable[[], float]] = {
        "one call from Python a frame": lambda: one_by_one(5000),
        "batch, copied": lambda: batch(BatchDriver(unchecked)),
        "batch, in place": lambda: batch(BatchDriver(unchecked, in_place=True)),
        "batch, in place, checked at run time": lambda: batch(BatchDriver(checked, in_place=True)),
    }
    lacking = missing()
    if lacking is None:
        from flowshunt_ebpf.kernel.runner import run_in_kernel

        other = bench()
        kernel = run_in_kernel(other.image, other.machine)

        def in_kernel() -> float:
            spent = 0.0
            for frame in held[:20]:
                other.machine.set_packet(frame)
                spent += kernel.time(20_000)
            return spent / 20 / 1e9

        ways["kernel's test run, per frame"] = in_kernel
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            spent[name].append(way())
    base = statistics.median(spent["one call from Python a frame"])
    for name, times in spent.items():
        typical = statistics.median(times)
        print(
            f"{name:38} {typical * 1e9:9.1f} ns a frame  {1e-6 / typical:7.2f} million a second  {base / typical:7.1f}x"
        )
    if lacking:
        print(f"no comparison with the kernel: {lacking}")


if __name__ == "__main__":
    main()
