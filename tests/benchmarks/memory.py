"""Peak resident memory of `flowshunt run` on a large sample capture (2 GB by default), mapped pages included.

    python tests/benchmarks/memory.py [--gigabytes N] [--keep FILE]

Printed for each bypass mode: the peak, and its ratio to the size of the capture. At most 600 MB are wanted.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from flowshunt.packets.sample import write_sample

BYTES_PER_FLOW = 41_000
LIMIT = 600e6


def _peak(capture: Path, mode: str) -> tuple[float, float]:
    """Peak resident bytes and seconds of a run, by the child's own resource usage."""
    command = [sys.executable, "-m", "flowshunt", "run", str(capture), "--rules", f"{capture}.rules"]
    child = subprocess.Popen([*command, "--bypass", mode, "--json"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"flowshunt run ended with status {child.returncode}")
    return usage.ru_maxrss * 1024.0, usage.ru_utime + usage.ru_stime


def main() -> int:
    """Print the peaks; exit 1 where one is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--keep", type=Path, help="keep the capture here, and use it again where it is there")
    options = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        capture = options.keep or Path(folder) / "large.pcap"
        if not capture.exists():
            write_sample(capture, flows=int(options.gigabytes * 1e9 / BYTES_PER_FLOW), seed=1, rate=1000)
        size = capture.stat().st_size
        print(f"capture: {size / 1e9:.2f} GB")
        for mode in ("off", "software", "hardware"):
            peak, seconds = _peak(capture, mode)
            worst = max(worst, peak)
            print(f"bypass {mode:9} peak {peak / 1e6:6.0f} MB, {peak / size:.3f} of the capture; {seconds:.1f} s CPU")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
