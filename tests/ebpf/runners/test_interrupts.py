"""An interrupt ends a run, however large its budget, on every runner in user space."""

import os
import signal
import subprocess
import sys

import pytest

ENDLESS = "l: goto l\nexit\n"
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
def test_an_endless_program_is_ended(runner, number, status):
    done = interrupted(number, ENDLESS, "--runner", runner, "--budget", str(1 << 62))
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr


def test_endless_repeats_are_ended():
    done = interrupted(signal.SIGINT, STRAIGHT, "--repeat", str(1 << 62))
    assert done.returncode == 130, done.stderr


def test_what_a_run_raises_is_still_told():
    command = "from flowshunt.cli.root import main; main(['bpf', 'run', '-', '--context', 'xdp', '--budget', '1'])"
    done = subprocess.run(
        [sys.executable, "-c", command], input=ENDLESS, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, "used up its budget" in done.stdout) == (1, True)
