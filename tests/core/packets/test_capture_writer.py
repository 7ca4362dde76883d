import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from capture_bytes import SECOND, Frame, frames, pcap, pcapng, read

from flowshunt.errors import InputError
from flowshunt.packets.capture import open_captures
from flowshunt.packets.writer import CaptureWriter


def full(content):
    return [frame.full for frame in content]


def test_frames_written_one_by_one_read_back(tmp_path):
    content = [*frames(100), Frame(b"cut" * 20, wire=9000), Frame(b"")]
    with CaptureWriter(tmp_path / "out.pcap") as writer:
        for frame in content:
            writer.write(frame.time, frame.data, frame.wire)
    assert writer.frames_written == 102
    assert read(tmp_path / "out.pcap") == (full(content), [])


def test_the_file_is_what_the_format_says(tmp_path):
    content = frames(10)
    with CaptureWriter(tmp_path / "out.pcap", link=101) as writer:
        for frame in content:
            writer.write(frame.time, frame.data)
    assert (tmp_path / "out.pcap").read_bytes() == pcap(content, word=101)


def test_microseconds_are_rounded_down(tmp_path):
    with CaptureWriter(tmp_path / "out.pcap", nanosecond=False) as writer:
        writer.write(1_700_000_000_123_456_789, b"x")
    assert read(tmp_path / "out.pcap")[0][0].time == 1_700_000_000_123_456_000


@pytest.mark.parametrize("format", [pcap, pcapng])
def test_batches_go_through_unchanged(tmp_path, format):
    content = [*frames(2000), *[Frame(bytes([n]) * 200_000) for n in range(60)], Frame(b"", wire=7)]
    (tmp_path / "in").write_bytes(format(content))
    with open_captures([tmp_path / "in"], batch_frames=700) as source, CaptureWriter(tmp_path / "out") as writer:
        for batch in source:
            writer.write_batch(batch)
            writer.write_batch(batch.select(slice(0, 0)))
    assert writer.frames_written == len(content)
    assert (tmp_path / "out").read_bytes() == pcap(content)


def test_chosen_rows_of_a_batch_are_written(tmp_path):
    (tmp_path / "in").write_bytes(pcap(frames(20)))
    with open_captures([tmp_path / "in"]) as source, CaptureWriter(tmp_path / "out") as writer:
        writer.write_batch(next(iter(source)).select(np.array([7, 3, 11])))
    assert read(tmp_path / "out")[0] == [frames(20)[row].full for row in (7, 3, 11)]


def test_frames_outside_the_buffer_are_refused(tmp_path):
    (tmp_path / "in").write_bytes(pcap(frames(2)))
    with open_captures([tmp_path / "in"]) as source, CaptureWriter(tmp_path / "out") as writer:
        batch = next(iter(source))
        batch.offset[1] = len(batch.data) - 10
        with pytest.raises(ValueError, match="outside"):
            writer.write_batch(batch)


def test_another_link_type_is_refused(tmp_path):
    (tmp_path / "in").write_bytes(pcap(frames(2), word=101))
    with (
        open_captures([tmp_path / "in"]) as source,
        CaptureWriter(tmp_path / "out") as writer,
        pytest.raises(InputError, match="link type 101"),
    ):
        writer.write_batch(next(iter(source)))


@pytest.mark.parametrize(("time", "size"), [(-1, 60), ((1 << 32) * SECOND, 60), (0, 262145)])
def test_what_pcap_cannot_hold_is_refused(tmp_path, time, size):
    with CaptureWriter(tmp_path / "out") as writer, pytest.raises(ValueError, match="can't hold"):
        writer.write(time, bytes(size))
    assert read(tmp_path / "out") == ([], [])


def test_a_folder_that_is_missing(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        CaptureWriter(tmp_path / "none" / "out.pcap")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_input_error():
    with pytest.raises(InputError, match="No space left"), CaptureWriter("/dev/full") as writer:
        writer.write(0, bytes(60))


def test_a_file_that_may_not_grow_is_an_input_error_and_whole_until_then(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(InputError, match="can't be written"), CaptureWriter(tmp_path / "out") as writer:
            for number in range(3000):
                writer.write(number, bytes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    found, problems = read(tmp_path / "out")
    assert len(found) == (100_000 - 24) // 116
    assert len(problems) == 1


def test_closing_twice_is_harmless(tmp_path):
    writer = CaptureWriter(tmp_path / "out")
    writer.close()
    writer.close()
    assert read(tmp_path / "out") == ([], [])
