"""A capture that is cut off while it is read: what is missing reads as zeros, and is told."""

import subprocess
import sys

from flowshunt.packets.sample import write_sample

PROGRAM = """
import os, sys
from flowshunt.packets.capture import open_captures
from flowshunt.packets.decode import decode

path = sys.argv[1]
with open_captures([path], batch_frames=4000) as source:
    batches = iter(source)
    first = next(batches)
    os.truncate(path, 4096)
    headers = decode(first)
    assert first.data[-1] == 0 and (headers["ip_version"] == 0).sum() > 3000
    rest = sum(len(batch) for batch in batches)
    assert any("was cut" in str(problem) for problem in source.problems), source.problems
print("lives", len(first), rest)
"""


def test_a_capture_cut_off_while_a_batch_is_at_hand_does_not_kill(tmp_path):
    path = tmp_path / "a.pcap"
    write_sample(path, flows=300, seed=3)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lives 4000")
