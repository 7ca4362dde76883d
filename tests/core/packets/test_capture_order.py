import heapq
import itertools

import pytest
from capture_bytes import SECOND, Frame, enhanced, frames, frames_of, interface, pcap, pcapng, read, section
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowshunt.packets.capture import open_captures

START = 1_700_000_000 * SECOND


@pytest.fixture
def write(tmp_path):
    names = itertools.count()

    def write(content, format=pcap):
        path = tmp_path / f"{next(names)}.pcap"
        path.write_bytes(format(content))
        return path

    return write


def full(content):
    return [frame.full for frame in content]


def test_captures_come_by_their_first_timestamp_and_not_by_their_names(write):
    parts = [frames(10, start=START + second * SECOND) for second in (2, 0, 1)]
    paths = [write(part) for part in parts]
    assert read(*paths) == (full(parts[1] + parts[2] + parts[0]), [])


def test_captures_that_do_not_overlap_are_not_copied(write):
    paths = [write(frames(100, start=START + second * SECOND)) for second in (1, 0)]
    sizes = {path.stat().st_size for path in paths}
    with open_captures(paths) as source:
        assert [len(batch.data) for batch in source] == [*sizes, *sizes]


def test_captures_that_overlap_are_merged(write):
    a, b = frames(1000, start=START, gap=100), frames(1000, start=START + 50, gap=100)
    found, problems = read(write(a), write(b))
    assert (found, problems) == (sorted(full(a + b), key=lambda frame: frame.time), [])


def test_frames_of_the_same_time_come_in_the_order_of_the_captures_given(write):
    a, b, c = ([Frame(name * 60, START) for _ in range(50)] for name in (b"a", b"b", b"c"))
    found, _ = read(write(b), write(a), write(c), batch_frames=7)
    assert found == full(b + a + c)


def test_a_capture_alone_keeps_its_order_when_time_goes_back(write):
    content = [Frame(bytes([n]) * 60, START + (n * 37 % 11) * SECOND) for n in range(50)]
    assert read(write(content), batch_frames=8)[0] == full(content)


def test_a_capture_inside_another_one(write):
    outer, inner = frames(10, start=START, gap=SECOND), frames(30, start=START + 4 * SECOND + 1, gap=1000)
    assert read(write(outer), write(inner))[0] == full(outer[:5] + inner + outer[5:])


def test_captures_without_frames_do_not_disturb(write):
    content = frames(10)
    assert read(write([]), write(content), write([], pcapng))[0] == full(content)


def test_the_interface_stays_as_in_each_capture(write):
    def second_port(content):
        head = section() + interface(resolution=9) + interface(resolution=9, link=101)
        return head + b"".join(enhanced(frame.data, frame.time, interface=1) for frame in content)

    a, b = frames(5, start=START, gap=100), frames(5, start=START + 50, gap=100)
    found, _ = read(write(a, second_port), write(b))
    assert [(frame.port, frame.link) for frame in found] == [(1, 101), (0, 1)] * 5


def test_a_damaged_capture_does_not_end_the_others(write):
    a, b = frames(100, start=START, gap=100), frames(100, start=START + 50, gap=100)
    damaged = write(a)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    found, problems = read(damaged, write(b))
    assert found == sorted(full(a[:-1] + b), key=lambda frame: frame.time)
    assert [(p.path, p.damage) for p in problems] == [(str(damaged), True)]


def test_batches_number_their_frames(write):
    paths = [write(frames(100, start=START + n, gap=10)) for n in range(3)]
    with open_captures(paths, batch_frames=16) as source:
        firsts = [(batch.first, len(batch)) for batch in source]
    assert [first for first, _ in firsts] == list(itertools.accumulate((n for _, n in firsts[:-1]), initial=0))


def test_a_merged_batch_stays_valid_after_the_next(write):
    a, b = frames(100, start=START, gap=100), frames(100, start=START + 50, gap=100)
    with open_captures([write(a), write(b)], batch_frames=10) as source:
        batches = list(source)
    assert [frame for batch in batches for frame in frames_of(batch)] == sorted(full(a + b), key=lambda f: f.time)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.lists(st.lists(st.integers(0, 30), max_size=25), min_size=2, max_size=5),
    batch_frames=st.integers(1, 12),
)
def test_merging_is_a_stable_merge_by_the_latest_time_so_far(write, times, batch_frames):
    captures = [
        [Frame(bytes([number, row]) * 8, START + time) for row, time in enumerate(column)]
        for number, column in enumerate(times)
    ]
    keyed = [
        zip(
            itertools.accumulate((frame.time for frame in capture), max),
            itertools.repeat(number),
            capture,
            strict=False,
        )
        for number, capture in enumerate(captures)
    ]
    expected = [frame.full for _, _, frame in heapq.merge(*keyed, key=lambda entry: entry[:2])]
    found, problems = read(*[write(capture) for capture in captures], batch_frames=batch_frames)
    assert (found, problems) == (expected, [])
