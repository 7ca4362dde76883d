"""Native operations on the micro-benchmarks: against the stock JIT, the kernel's JIT and the same source at -O3.

    python tests/benchmarks/native_operations.py [--rounds N] [--seconds S] [--only NAME] [--json FILE] [--plot FILE]

Every round times every variant of a program and the empty program, interleaved; the empty program's time is
subtracted. The kernel's column needs privilege, the ceiling needs clang. "gap" is the share of the stock JIT's distance
to the ceiling that native operations make up.
"""

import argparse
import ctypes
import json
import random
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flowshunt_ebpf.contexts.layout import XDP
from flowshunt_ebpf.elf import load_object
from flowshunt_ebpf.kops.optimize import optimize
from flowshunt_ebpf.kops.policy import Policy
from flowshunt_ebpf.kops.trial import Trial
from flowshunt_ebpf.native.jit import NativeCode
from flowshunt_ebpf.native.measure import EMPTY, Timer, Timing, compare
from flowshunt_ebpf.program import Program

HERE = Path(__file__).resolve().parent / "native_operations"
DENSE = {
    "rotate": ("siphash", "chacha", "jhash", "xxhash", "rotate_by_data"),
    "csel": ("min_max", "clamp", "saturate", "classify", "search"),
    "bextr": ("bit_fields", "samples", "header_bits", "bytes_of_words"),
    "bswap": ("message_words", "unaligned_words", "packed_records", "network_order", "serialise", "addresses"),
    "bulkcopy": ("copy_keys", "copy_packed", "clear", "move_header"),
    "lea": ("lookup_table", "lookup_matrix", "polynomial"),
}
"""Programs dense in an idiom, by family. The others hold some among other work, or none."""

FRAME = bytes(random.Random(7).randrange(256) for _ in range(1024))

HARNESS = """
struct context { unsigned char *data, *end; };
void repeat(int (*run)(struct context *), unsigned char *data, long size, long times)
{
	struct context c = {data, data + size};
	for (long i = 0; i < times; i++) {
		__asm__ volatile("" ::: "memory");
		run(&c);
	}
}
int empty(struct context *c) { return 0; }
"""


def ceiling() -> ctypes.CDLL | None:
    """The sources as code of this processor, by an optimising compiler; None where there is none."""
    clang = next((name for name in ("clang", "clang-16", "clang-14") if shutil.which(name)), None)
    if clang is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        harness = Path(folder) / "harness.c"
        harness.write_text(HARNESS, encoding="ascii")
        library = Path(folder) / "ceiling.so"
        objects = []
        for source in sorted(HERE.glob("*.bpf.c")):
            made = Path(folder) / f"{source.stem}.o"
            options = [
                "-O3",
                "-march=native",
                "-fPIC",
                "-DFLOWSHUNT_NATIVE",
                "-w",
                "-Dlicense_text=license_" + source.stem.partition(".")[0],
            ]
            subprocess.run([clang, *options, "-c", str(source), "-o", str(made)], check=True)
            objects.append(str(made))
        subprocess.run([clang, "-O2", "-shared", "-fPIC", str(harness), *objects, "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


def native_timer(library: ctypes.CDLL, name: str) -> Timer:
    """How to time a function of the ceiling."""
    import time

    data = ctypes.create_string_buffer(FRAME, len(FRAME))
    function = ctypes.cast(getattr(library, name), ctypes.c_void_p)

    def run(times: int) -> float:
        ctypes.memmove(data, FRAME, len(FRAME))
        start = time.thread_time_ns()
        library.repeat(function, data, ctypes.c_long(len(FRAME)), ctypes.c_long(times))
        return (time.thread_time_ns() - start) / times

    return run


def repeated(loaded: Any) -> Timer:
    """How to time a program that a runner has loaded."""

    def run(times: int) -> float:
        loaded.machine.set_packet(FRAME)
        return float(loaded.time(times))

    return run


class Measured:
    """One program's figures."""

    def __init__(
        self, program: Program, library: ctypes.CDLL | None, kernel: bool, rounds: int, seconds: float
    ) -> None:
        self.name = program.name
        trial = Trial(XDP, (FRAME,))
        empty = Program.from_bytes(EMPTY, type=program.type)
        every, static = optimize(program, policy=Policy.ALL), optimize(program, policy=Policy.STATIC)
        variants = {"stock": program, "all": every.program, "static": static.program}
        loaded = {name: trial.load(variant) for name, variant in variants.items()}
        timers = {name: repeated(one) for name, one in loaded.items()}
        floors = dict.fromkeys(timers, repeated(trial.load(empty)))
        if kernel:
            from flowshunt_ebpf.kernel.runner import run_in_kernel

            for name, one, target in (("kernel", program, timers), ("kernel", empty, floors)):
                bench = trial.workbench(one)
                in_kernel = run_in_kernel(bench.image, bench.machine)
                target[name] = lambda times, loaded=in_kernel, bench=bench: _in_kernel(loaded, bench, times)
        if library is not None:
            timers["O3"], floors["O3"] = native_timer(library, program.name), native_timer(library, "empty")
        self.timings: Mapping[str, Timing] = {
            timing.name: timing for timing in compare(timers, floors, rounds=rounds, seconds=seconds)
        }
        self.sites = len(every.program.sites)
        self.sizes = {name: _size(one.code) for name, one in loaded.items()}

    def ratio(self, name: str, base: str = "stock") -> float | None:
        """How many times as fast a variant is as the base."""
        if name not in self.timings or base not in self.timings:
            return None
        return self.timings[name].ratio / self.timings[base].ratio

    @property
    def gap(self) -> float | None:
        """The share of the stock JIT's distance to the ceiling that native operations make up."""
        if "O3" not in self.timings:
            return None
        stock, made, best = (self.timings[name].ns for name in ("stock", "all", "O3"))
        return (stock - made) / (stock - best) if stock > best else None

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "sites": self.sites,
            "bytes": self.sizes,
            "ns": {name: timing.ns for name, timing in self.timings.items()},
            "ratio": {name: timing.ratio for name, timing in self.timings.items()},
            "gap": self.gap,
        }


def gap_share(measured: Sequence[Measured]) -> float | None:
    """What native operations make up of the distance to -O3 of all programs together, each in shares of its stock time.

    Not the mean of the programs' shares: where -O3 is as fast as the stock JIT, a program's own is noise over noise.
    """
    made = possible = 0.0
    for m in measured:
        if m.gap is not None:
            stock, ours, best = (m.timings[name].ns for name in ("stock", "all", "O3"))
            made += (stock - ours) / stock
            possible += (stock - best) / stock
    return made / possible if possible > 0 else None


def plot(measured: Sequence[Measured]) -> str:
    """Bars of how many times as fast as the stock JIT each program is, as SVG."""
    colours = {"all": "#2a6f97", "static": "#61a5c2", "kernel": "#adb5bd", "O3": "#f4a261"}
    rows, y = [], 30
    for x, (name, colour) in enumerate(colours.items()):
        rows.append(f'<text x="{150 + 90 * x}" y="16" fill="{colour}">{name}</text>')
    for m in measured:
        rows.append(f'<text x="4" y="{y + 18}">{m.name}</text>')
        for name, colour in colours.items():
            ratio = m.ratio(name)
            if ratio is not None:
                rows.append(f'<rect x="150" y="{y}" width="{100 * min(ratio, 5):.1f}" height="6" fill="{colour}"/>')
            y += 6
        y += 8
    rows.append(f'<line x1="250" y1="24" x2="250" y2="{y}" stroke="black"/>')
    size = f'width="660" height="{y + 10}" font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, *rows, "</svg>", ""])


def _in_kernel(loaded: Any, bench: Any, times: int) -> float:
    bench.machine.set_packet(FRAME)
    return float(loaded.time(times))


def _size(code: NativeCode) -> int:
    return code.program_bytes


def _shown(value: float | None, form: str = "{:.2f}x") -> str:
    return "-" if value is None else form.format(value)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--only", action="append")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    from flowshunt_ebpf.kernel.syscall import missing

    lacking = missing()
    library = ceiling()
    if lacking:
        print(f"without the kernel's column: {lacking}")
    if library is None:
        print("without the ceiling: there is no clang")
    print(
        f"{'program':18} {'sites':>5} {'stock ns':>9} {'all':>7} {'static':>7} {'kernel':>8} {'to kernel':>9} "
        f"{'O3':>7} {'gap':>6} {'bytes':>14}"
    )
    found: list[Measured] = []
    for file in sorted(HERE.glob("*.o")):
        for name in load_object(file).names:
            if arguments.only and name not in arguments.only:
                continue
            m = Measured(load_object(file).program(name), library, not lacking, arguments.rounds, arguments.seconds)
            found.append(m)
            stock, made = m.sizes["stock"], m.sizes["all"]
            change = f"{100 * (made - stock) / stock:+.1f}%"
            print(
                f"{m.name:18} {m.sites:5} {m.timings['stock'].ns:9.1f} {_shown(m.ratio('all')):>7} "
                f"{_shown(m.ratio('static')):>7} {_shown(m.ratio('kernel')):>8} {_shown(m.ratio('all', 'kernel')):>9} "
                f"{_shown(m.ratio('O3')):>7} {_shown(m.gap, '{:.0%}'):>6} {stock:6} {change:>7}",
                flush=True,
            )
    by_name = {m.name: m for m in found}
    print()
    dense: list[Measured] = []
    for family, names in DENSE.items():
        of_family = [by_name[name] for name in names if name in by_name]
        if of_family:
            dense += of_family
            share = gap_share(of_family)
            mean = statistics.geometric_mean(m.ratio("all") or 1 for m in of_family)
            print(
                f"{family:10} geometric mean {mean:.2f}x, gap to -O3 made up {share:.0%}"
                if share is not None
                else f"{family:10} {mean:.2f}x"
            )
    if dense:
        print(f"dense programs: geometric mean {statistics.geometric_mean(m.ratio('all') or 1 for m in dense):.2f}x")
        print(f"least with static: {min(m.ratio('static') or 1 for m in found):.2f}x")
    if arguments.plot:
        arguments.plot.write_text(plot(found), encoding="utf-8")
    if arguments.json:
        arguments.json.write_text(json.dumps([m.plain() for m in found], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
