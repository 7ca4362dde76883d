"""An interrupt ends a run, however large its budget, on every runner in user space."""

import os
import signal
import subprocess
import sys

import pytest

TURNS = "r1 = 8388608\nr3 = 0\nr4 = 0\n"
LONG = f"""
{TURNS}r2 = code_addr(outer)
call bpf_loop
r0 = 0
exit
.function outer
{TURNS}r2 = code_addr(inner)
call bpf_loop
r0 = 0
exit
.function inner
r0 = 0
exit
"""
"""Two nested loops of 2^23 turns: they come to an end, some days later."""
STRAIGHT = "r0 = 1\nexit\n"
WATCH = """
import threading, os, time
from flowshunt.cli.root import main
def interrupt():
    started.wait()
    time.sleep(0.3)
    os.kill(os.getpid(), {number})
started = threading.Event()
from flowshunt_ebpf.native.machine import Machine
begin = Machine.begin
def noticed(self, budget):
    begin(self, budget)
    started.set()
Machine.begin = noticed
threading.Thread(target=interrupt, daemon=True).start()
main({arguments!r})
"""


def interrupted(number, text, *arguments):
    script = WATCH.format(number=int(number), arguments=["bpf", "run", "-", "--context", "xdp", *arguments])
    return subprocess.run(
        [sys.executable, "-c", script], input=text, capture_output=True, text=True, check=False, timeout=60,
        env=dict(os.environ),
    )  # fmt: skip


@pytest.mark.parametrize("runner", ["host", "unicorn-x86_64", "unicorn-arm64", "interpret"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_program_that_runs_for_days_is_ended(runner, number, status):
    done = interrupted(number, LONG, "--runner", runner, "--budget", str(1 << 62))
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr


def test_endless_repeats_are_ended():
    done = interrupted(signal.SIGINT, STRAIGHT, "--repeat", str(1 << 62))
    assert done.returncode == 130, done.stderr


def test_what_a_run_raises_is_still_told():
    command = "from flowshunt.cli.root import main; main(['bpf', 'run', '-', '--context', 'xdp', '--budget', '1'])"
    done = subprocess.run(
        [sys.executable, "-c", command], input=LONG, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, "used up its budget" in done.stdout) == (1, True)
