"""Any bytes are decoded: nothing is read outside the frame, and every offset given lies inside it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from frame_batches import batch_of
from frame_bytes import ethernet, gre, gtpu, ipv4, ipv6, mpls, tcp, udp, vlan, vxlan
from hypothesis import given, settings
from hypothesis import strategies as st

from flowshunt.packets.batch import DECODED_LINKS
from flowshunt.packets.checksum import verify_checksums
from flowshunt.packets.decode import decode

INNER = ipv4(6, tcp(b"payload!", offset=6, options=b"\1\1\1\1"))
FRAME = ethernet(0x0800, INNER)
SEEDS = [
    FRAME,
    ethernet(0x86DD, ipv6(0, bytes([44, 0]) + bytes(6) + bytes([58, 0]) + bytes(6) + bytes(12))),
    ethernet(0x86DD, ipv6(43, bytes([51, 2]) + bytes(22) + bytes([17, 1]) + bytes(10) + udp(b"xyz"))),
    ethernet(0x88A8, vlan(1, 0x8100, vlan(2, 0x8847, mpls(16, 17, payload=bytes(4) + FRAME)))),
    ethernet(0x8864, bytes([0x11, 0, 0, 1, 0, 60]) + b"\x00\x21" + INNER),
    ethernet(50, b"\xaa\xaa\x03\0\0\0\x08\x00" + INNER),
    ethernet(0x0800, ipv4(47, gre(0x6558, FRAME, flags=0xB000, fields=bytes(12)), options=b"\x83\x07\x04" + bytes(5))),
    ethernet(0x0800, ipv4(47, gre(0x22EB, bytes(11) + b"\1" + bytes(8) + FRAME, flags=0x1000, fields=bytes(4)))),
    ethernet(0x0800, ipv4(17, udp(vxlan(FRAME), destination=4789))),
    ethernet(0x0800, ipv4(17, udp(gtpu(INNER, flags=0x34, optional=bytes(3) + b"\x85\1\0\0\0"), destination=2152))),
    ethernet(0x0800, ipv4(4, ipv4(41, ipv6(4, INNER)))),
    ethernet(0x0800, ipv4(132, bytes(20))),
]


def check(frames, link):
    """Decode frames, each at the end of a buffer of its own and all of them in one, and check every offset."""
    batches = [batch_of([frame], link=link) for frame in frames]
    rows = np.concatenate([decode(batch, depth=4) for batch in batches])
    together = batch_of(frames, link=link)
    assert rows.tobytes() == decode(together, depth=4).tobytes()
    for batch, row in zip(batches, rows, strict=True):
        assert verify_checksums(batch, row.reshape(1)) < 16
    size = together.captured.astype(np.int64)
    l3, l4, payload, length, outer = (
        rows[name].astype(np.int64) for name in ("l3", "l4", "payload", "payload_length", "outer_l3")
    )
    version = rows["ip_version"]
    assert (payload + length <= size).all()
    assert np.isin(version, (0, 4, 6)).all()
    ip = version > 0
    assert (l3 + np.where(version == 4, 20, 40) <= size)[ip].all()
    assert (outer <= l3).all()
    assert (payload > l3)[ip].all()
    transport = l4 > 0
    assert (l4 >= l3 + np.where(version == 4, 20, 40))[transport].all()
    assert (l4 + 8 <= payload)[transport].all()
    assert (rows["depth"] <= 4).all()
    for nothing in (l3, l4, payload, length, outer):
        assert not nothing[~ip].any()


LINKS = st.sampled_from([*sorted(DECODED_LINKS), 147])


@settings(deadline=None, max_examples=300)
@given(frames=st.lists(st.binary(max_size=120), min_size=1, max_size=20), link=LINKS)
def test_random_bytes(frames, link):
    check(frames, link)


@settings(deadline=None, max_examples=300)
@given(
    seed=st.sampled_from(SEEDS),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=6),
    link=st.sampled_from([1, 1, 1, *sorted(DECODED_LINKS)]),
)
def test_changed_frames_cut_at_every_byte(seed, changes, link):
    frame = bytearray(seed if link == 1 else seed[14:])
    for at, value in changes:
        frame[at % len(frame)] = value
    check([bytes(frame[:size]) for size in range(len(frame) + 1)], link)


@pytest.mark.parametrize("link", [*sorted(DECODED_LINKS), 147])
def test_frames_of_every_length_of_nothing_but_one_value(link):
    for value in (0x00, 0x45, 0x60, 0x81, 0x88, 0xFF):
        check([bytes([value]) * size for size in range(100)], link)


BOUNDS_CHECKED = """
import random, sys
sys.path.insert(0, sys.argv[1])
import numba
assert numba.config.BOUNDSCHECK
from test_decode_hostile import SEEDS, check
source = random.Random(1)
for seed in SEEDS:
    check([seed[:size] for size in range(len(seed) + 1)], 1)
    for _ in range(60):
        frame = bytearray(seed)
        for _ in range(source.randrange(1, 5)):
            frame[source.randrange(12, len(frame))] = source.randrange(256)
        check([bytes(frame), bytes(frame[: source.randrange(len(frame))])], 1)
for link in (0, 1, 9, 12, 101, 104, 108, 113, 147, 228, 229, 276):
    check([source.randbytes(source.randrange(80)) for _ in range(300)], link)
print("done")
"""


def test_no_kernel_reads_outside_its_arrays():
    """The same again with Numba's own bounds checks, in a process of its own, for they are chosen at compile time."""
    done = subprocess.run(
        [sys.executable, "-c", BOUNDS_CHECKED, str(Path(__file__).parent)],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
