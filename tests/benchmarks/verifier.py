"""What verifying takes: straight and branchy programs of 1,000 to 16,000 instructions, time and memory for each.

    python tests/benchmarks/verifier.py [--quick]

A straight program computes on a packet's bytes and the stack. A branchy one parses a packet: of every ten instructions
one is a condition, and paths meet again behind it, so that the paths double every ten instructions; what is looked at
must not. Prints instructions looked at per instruction, states, seconds and the process's peak of memory, and the time
of a second load, which takes the verdict from the cache.
"""

import argparse
import os
import resource
import tempfile
import time

from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.verifier import Limits, VerifierVerdict, verify, verify_cached

_START = """
.type xdp
.map counts array key=4 value=64 entries=16
r6 = r1
r2 = *(u32 *)(r1 + 0)
r3 = *(u32 *)(r1 + 4)
r4 = r2
r4 += 64
r0 = 1
if r4 > r3 goto end
r7 = r2
r8 = 0
"""


def straight(size: int) -> Program:
    """A program without branches but the first."""
    lines = [_START]
    for n in range(size // 8):
        at = n * 4 % 60
        lines.append(
            f"r1 = *(u32 *)(r7 + {at})\nr1 *= {n + 3}\nr8 ^= r1\nw8 += {n}\n*(u64 *)(r10 - {8 * (n % 60 + 1)}) = r8\n"
            f"r5 = *(u64 *)(r10 - {8 * (n % 60 + 1)})\nr8 >>= 1\n*(u16 *)(r7 + {at}) = r5"
        )
    return assemble("\n".join([*lines, "r0 = 2", "end:", "exit"]))


def branchy(size: int) -> Program:
    """A program whose paths part and meet again every ten instructions, over a packet."""
    lines = [_START, "r9 = 0"]
    for n in range(size // 20):
        at = n * 2 % 60
        lines.append(
            f"r1 = *(u16 *)(r7 + {at})\nif r1 == {n} goto a{n}\nr9 += 1\nr8 |= {1 << n % 30}\ngoto b{n}\n"
            f"a{n}:\nr9 ^= 3\n*(u32 *)(r10 - 8) = {n}\nb{n}:\nr2 = r9\nr2 &= 31\n"
            f"r3 = r7\nr3 += r2\nr4 = *(u32 *)(r6 + 4)\nr5 = r3\nr5 += 8\nif r5 > r4 goto c{n}\n"
            f"r1 = *(u32 *)(r3 + 4)\nr8 += r1\nc{n}:\nr8 ^= {n}\nr1 = r8\nr1 >>= 3\nr8 += r1"
        )
    return assemble("\n".join([*lines, "r0 = 2", "end:", "exit"]))


def measured(name: str, program: Program) -> VerifierVerdict:
    """Verify once and print what it took."""
    start = time.process_time()
    verdict = verify(program, limits=Limits(seconds=600))
    spent = time.process_time() - start
    size = len(program.instructions)
    looked = verdict.effort.instructions
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    said = "accepted" if verdict.accepted else f"REJECTED: {verdict.reason}"
    print(
        f"{name:9} {size:6} instructions: {spent:7.3f} s, {looked:7} looked at ({looked / size:5.2f} each, "
        f"{spent / looked * 1e6:5.1f} us), {verdict.effort.states:6} states, peak {peak:5.0f} MB, {said}",
        flush=True,
    )
    return verdict


def second_load(program: Program) -> None:
    """Print the time of a load whose verdict is kept."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FLOWSHUNT_CACHE"] = folder
        start = time.perf_counter()
        verify_cached(program)
        first = time.perf_counter() - start
        start = time.perf_counter()
        verify_cached(program)
        second = time.perf_counter() - start
    print(f"kept verdict: first load {first * 1e3:.1f} ms, second {second * 1e3:.1f} ms ({first / second:.0f} to 1)")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="programs of up to 3,000 instructions")
    sizes = (1000, 3000) if parser.parse_args().quick else (1000, 2000, 3000, 4000, 8000, 16000)
    for size in sizes:
        measured("straight", straight(size))
    for size in sizes:
        measured("branchy", branchy(size))
    second_load(branchy(3000))


if __name__ == "__main__":
    main()
