import struct

import pytest
from capture_bytes import SECOND, Frame, frames, pcap, read


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "frames.pcap"
        path.write_bytes(content)
        return path

    return write


def full(content):
    return [frame.full for frame in content]


@pytest.mark.parametrize("order", "<>")
def test_nanosecond_timestamps_are_exact(file, order):
    content = [Frame(b"a" * 60, 1_700_000_000_123_456_789), Frame(b"b" * 61, 1_700_000_001_999_999_999)]
    assert read(file(pcap(content, order=order))) == (full(content), [])


@pytest.mark.parametrize("order", "<>")
def test_microsecond_timestamps_become_nanoseconds(file, order):
    found, problems = read(file(pcap([Frame(b"a" * 60, 1_700_000_000_123_456_789)], order=order, nanosecond=False)))
    assert (found[0].time, problems) == (1_700_000_000_123_456_000, [])


@pytest.mark.parametrize("order", "<>")
def test_the_modified_format_has_longer_record_headers(file, order):
    content = frames(5, gap=1000)
    assert read(file(pcap(content, order=order, modified=True))) == (full(content), [])


def test_seconds_after_2038_are_in_the_future(file):
    content = [Frame(b"a" * 60, 4_000_000_000 * SECOND)]
    assert read(file(pcap(content)))[0] == full(content)


def test_a_frame_that_was_cut_keeps_its_length_on_the_wire(file):
    content = [Frame(b"a" * 60, wire=1514)]
    assert read(file(pcap(content)))[0] == content


def test_a_frame_longer_than_it_claims_counts_with_what_is_there(file):
    """Drivers that put a VLAN tag back don't always count it."""
    found, problems = read(file(pcap([Frame(b"a" * 64, wire=60)])))
    assert (len(found[0].data), found[0].wire, problems) == (64, 64, [])


def test_a_declared_frame_check_sequence_is_left_out(file):
    word = 1 | 1 << 26 | 2 << 28
    content = [Frame(b"a" * 60 + b"FCS!"), Frame(b"b" * 60, wire=1518)]
    found, _ = read(file(pcap(content, word=word)))
    assert [(f.data, f.wire, f.link) for f in found] == [(b"a" * 60, 60, 1), (b"b" * 60, 1514, 1)]


def test_frames_of_no_bytes_are_frames(file):
    content = [Frame(b""), Frame(b"x"), Frame(b"")]
    assert read(file(pcap(content))) == (full(content), [])


def test_a_header_alone_is_a_capture_without_frames(file):
    assert read(file(pcap([]))) == ([], [])


@pytest.mark.parametrize("batch_frames", [1, 2, 7, 100])
def test_batches_have_at_most_so_many_frames(file, batch_frames):
    content = frames(20)
    assert read(file(pcap(content)), batch_frames=batch_frames)[0] == full(content)


def test_large_frames_make_shorter_batches(file):
    content = [Frame(bytes([n]) * 262144) for n in range(120)]
    assert read(file(pcap(content)), batch_frames=16384)[0] == full(content)


def test_a_frame_of_more_than_256_kib_is_damage(file):
    good = frames(3)
    content = pcap(good) + struct.pack("<IIII", 1, 2, 262145, 262145) + bytes(262145)
    found, problems = read(file(content))
    assert found == full(good)
    assert [(p.offset, p.damage) for p in problems] == [(len(pcap(good)), True)]
    assert "262145" in problems[0].what


def test_a_cut_at_any_byte_gives_every_whole_frame_before_it(file):
    content = frames(3, size=5)
    whole = pcap(content)
    ends = [len(pcap(content[:count])) for count in range(4)]
    for length in range(24, len(whole)):
        found, problems = read(file(whole[:length]))
        count = max(n for n in range(4) if ends[n] <= length)
        assert found == full(content[:count])
        assert [p.offset for p in problems] == ([] if length == ends[count] else [ends[count]])


@pytest.mark.parametrize("length", range(4, 24))
def test_a_cut_in_the_file_header_is_damage(file, length):
    found, problems = read(file(pcap([])[:length]))
    assert (found, [(p.offset, p.damage) for p in problems]) == ([], [(0, True)])


def test_an_unknown_link_type_is_delivered_with_one_notice(file):
    found, problems = read(file(pcap(frames(40), word=147)), batch_frames=8)
    assert {frame.link for frame in found} == {147}
    assert [(p.offset, p.damage) for p in problems] == [(40, False)]
    assert "147" in problems[0].what
