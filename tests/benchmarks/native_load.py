"""What native operations add to loading a program: recognition, cached proofs, and verification of the result.

    python tests/benchmarks/native_load.py [--rounds N]

Rounds load each program without and with native operations (policy static), interleaved: object read, program verified
anew, code compiled. Proofs and what was found for the program before come from the caches; a first, untimed load fills
them. With `kept verdicts` verification comes from its cache as well, which leaves little to add to.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flowshunt_ebpf.elf import load_object
from flowshunt_ebpf.kops.optimize import optimize
from flowshunt_ebpf.kops.policy import Policy
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.workbench import Workbench
from flowshunt_ebpf.verifier import verify, verify_cached

OBJECTS = Path(__file__).resolve().parent.parent / "ebpf" / "objects" / "large"
PROGRAMS = (("edge_balancer", "edge"), ("firewall", "filter"), ("flow_table", "flow_table"))


def load(name: str, program: str, verifier: Callable[..., Any], *, native: bool) -> float:
    """Load a program to native code; seconds of the processor's time."""
    start = time.process_time()
    found = load_object(OBJECTS / f"{name}.o")
    chosen = found.program(program)
    if native:
        chosen = optimize(chosen, policy=Policy.STATIC).program
    others = {other: (lambda other=other: found.program(other)) for other in found.names if other != program}
    bench = Workbench(chosen, others)
    verdict = bench.judge(lambda image, machine: verifier(image.as_loaded(), context=image.context))
    host(bench.image, bench.machine, verdict)
    return time.process_time() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    ratios = []
    for name, program in PROGRAMS:
        for native in (False, True):
            load(name, program, verify_cached, native=native)
        for what, verifier in (("verified anew", verify), ("kept verdicts", verify_cached)):
            pairs = [tuple(load(name, program, verifier, native=n) for n in (False, True)) for _ in range(rounds)]
            without, with_ = (min(times) for times in zip(*pairs, strict=True))
            times = f"{1e3 * without:7.1f} ms, with native operations {1e3 * with_:7.1f} ms"
            print(f"{name:14} {what}: {times}, {with_ / without:.2f}x")
            if verifier is verify:
                ratios.append(with_ / without)
    print(f"verified anew, geometric mean {statistics.geometric_mean(ratios):.2f}x (target: at most 1.10)")


if __name__ == "__main__":
    main()
