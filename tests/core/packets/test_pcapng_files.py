import struct

import pytest
from capture_bytes import (
    SECOND,
    Frame,
    block,
    enhanced,
    frames,
    interface,
    obsolete,
    option,
    pcapng,
    read,
    section,
    simple,
)

TIME = 1_700_000_000_123_456_789


@pytest.fixture
def file(tmp_path):
    def write(*blocks):
        path = tmp_path / "frames.pcapng"
        path.write_bytes(b"".join(blocks))
        return path

    return write


def full(content):
    return [frame.full for frame in content]


@pytest.mark.parametrize("order", "<>")
def test_enhanced_packets_in_both_byte_orders(file, order):
    content = [*frames(9), Frame(b"cut" * 20, TIME, wire=9000)]
    assert read(file(pcapng(content, order=order))) == (full(content), [])


@pytest.mark.parametrize(
    ("resolution", "ticks", "time"),
    [
        (None, 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (0, 1_700_000_000, 1_700_000_000 * SECOND),
        (3, 1_700_000_000_123, 1_700_000_000_123_000_000),
        (6, 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (9, TIME, TIME),
        (10, TIME * 10 + 9, TIME),
        (12, 12_345_678_901, 12_345_678),
        (30, 1 << 63, 0),
        (0x80 | 0, 1_700_000_000, 1_700_000_000 * SECOND),
        (0x80 | 10, 1_700_000_000 << 10 | 512, 1_700_000_000_500_000_000),
        (0x80 | 20, 1_700_000_000 << 20 | 1 << 18, 1_700_000_000_250_000_000),
        (0x80 | 31, (1_700_000_000 << 31) + 3, 1_700_000_000_000_000_001),
        (0x80 | 32, (1_700_000_000 << 32) + (1 << 32) - 1, 1_700_000_000_999_999_999),
        (0x80 | 33, (1_700_000_000 << 33) + 1, 1_700_000_000_000_000_000),
        (0x80 | 40, (16_000_000 << 40) + (1 << 39), 16_000_000_500_000_000),
        (0x80 | 63, 1 << 62, 500_000_000),
        (0x80 | 64, 1 << 63, 500_000_000),
        (0x80 | 80, (1 << 64) - 1, 15_258),
        (0x80 | 127, (1 << 64) - 1, 0),
    ],
)
def test_timestamps_in_every_resolution(file, resolution, ticks, time):
    found, problems = read(file(section(), interface(resolution=resolution), enhanced(b"x" * 60, ticks)))
    assert (found[0].time, problems) == (time, [])


@pytest.mark.parametrize("resolution", [0, 6, 9, 0x80 | 1, 0x80 | 20])
def test_times_that_64_bits_of_nanoseconds_cannot_hold_stop_short_of_overflow(file, resolution):
    found, _ = read(file(section(), interface(resolution=resolution), enhanced(b"x", (1 << 64) - 1)))
    assert found[0].time > 9_223_372_035 * SECOND


@pytest.mark.parametrize(("offset", "time"), [(1_000_000_000, TIME + 1_000_000_000 * SECOND), (-5, TIME - 5 * SECOND)])
def test_the_timestamp_offset_is_added(file, offset, time):
    assert read(file(section(), interface(resolution=9, offset=offset), enhanced(b"x", TIME)))[0][0].time == time


@pytest.mark.parametrize(("offset", "ticks"), [((1 << 63) - 1, (1 << 64) - 1), (-(1 << 63), 0)])
def test_an_absurd_timestamp_offset_does_not_wrap(file, offset, ticks):
    found, _ = read(file(section(), interface(resolution=9, offset=offset), enhanced(b"x", ticks)))
    assert (found[0].time > 0) == (offset > 0)
    assert abs(found[0].time) >= 8_000_000_000 * SECOND


def test_each_interface_has_its_own_unit_link_and_number(file):
    found, problems = read(
        file(
            section(),
            interface(link=1, resolution=9),
            interface(link=101, resolution=6),
            enhanced(b"eth" * 20, TIME, interface=0),
            enhanced(b"ip" * 20, TIME // 1000, interface=1),
            interface(link=276, resolution=3),
            enhanced(b"sll2" * 20, TIME // 1_000_000, interface=2),
            enhanced(b"ETH" * 20, TIME, interface=0),
        )
    )
    assert problems == []
    assert [(f.data[:3], f.time, f.port, f.link) for f in found] == [
        (b"eth", TIME, 0, 1),
        (b"ipi", TIME // 1000 * 1000, 1, 101),
        (b"sll", TIME // 1_000_000 * 1_000_000, 2, 276),
        (b"ETH", TIME, 0, 1),
    ]


def test_hundreds_of_interfaces(file):
    blocks = [interface(resolution=9, link=1) for _ in range(300)]
    blocks += [enhanced(bytes(60), TIME + n, interface=n) for n in range(300)]
    assert [(f.port, f.time - TIME) for f in read(file(section(), *blocks))[0]] == [(n, n) for n in range(300)]


def test_a_new_section_starts_without_interfaces_and_in_its_own_byte_order(file):
    found, problems = read(
        file(
            section(order="<"),
            interface(order="<", link=1, resolution=9),
            enhanced(b"a" * 60, TIME, order="<"),
            section(order=">"),
            interface(order=">", link=228, resolution=9),
            enhanced(b"b" * 60, TIME, order=">"),
            section(order="<"),
            enhanced(b"c" * 60, TIME, order="<"),
        )
    )
    assert [(f.data[:1], f.link) for f in found] == [(b"a", 1), (b"b", 228)]
    assert "interface 0" in problems[0].what


def test_simple_packets_have_interface_0_and_the_time_of_the_packet_before(file):
    found, problems = read(
        file(section(), interface(resolution=9), simple(b"a" * 61), enhanced(b"b" * 60, TIME), simple(b"c" * 63))
    )
    assert problems == []
    assert [(f.data, f.time, f.wire) for f in found] == [
        (b"a" * 61, 0, 61),
        (b"b" * 60, TIME, 60),
        (b"c" * 63, TIME, 63),
    ]


def test_simple_packets_are_cut_at_the_snaplen(file):
    found, problems = read(file(section(), interface(snaplen=61), simple(b"a" * 61, wire=1514)))
    assert ([(f.data, f.wire) for f in found], problems) == ([(b"a" * 61, 1514)], [])


@pytest.mark.parametrize("order", "<>")
def test_obsolete_packets(file, order):
    blocks = [obsolete(b"a" * 61, TIME, interface=1, drops=7, order=order)]
    found, problems = read(
        file(section(order=order), *[interface(order=order, resolution=9, link=k) for k in (1, 101)], *blocks)
    )
    assert (found, problems) == ([Frame(b"a" * 61, TIME, 61, 1, 101)], [])


def test_options_and_unknown_blocks_are_passed_over(file):
    comment = option(1, b"a comment") + option(2, struct.pack("<I", 5)) + option(0, b"")
    found, problems = read(
        file(
            section(options=option(3, b"Linux")),
            block(0x0BAD, b"custom"),
            interface(resolution=9),
            block(4, b"names"),
            enhanced(b"a" * 61, TIME, options=comment),
            block(5, b"statistics"),
            block(0x80000001, b"local use"),
        )
    )
    assert (found, problems) == ([Frame(b"a" * 61, TIME, 61)], [])


def test_options_that_lie_about_their_length_end_the_options(file):
    body = struct.pack("<HHI", 1, 0, 0) + struct.pack("<HH", 9, 60000) + b"\x09\0\0\0"
    found, problems = read(file(section(), block(1, body), enhanced(b"a", 1)))
    assert (found[0].time, problems) == (1000, [])


def test_a_declared_frame_check_sequence_is_left_out(file):
    found, _ = read(
        file(section(), interface(fcs=4), enhanced(b"a" * 60 + b"FCS!", 0), enhanced(b"b" * 60, 0, wire=99))
    )
    assert [(f.data, f.wire) for f in found] == [(b"a" * 60, 60), (b"b" * 60, 95)]


DAMAGED = {
    "length below 12": struct.pack("<II", 6, 8) + bytes(24),
    "length of 0": struct.pack("<II", 6, 0) + bytes(24),
    "length not a multiple of 4": struct.pack("<II", 6, 33) + bytes(60),
    "length of 4 GB": struct.pack("<II", 6, 0xFFFFFFFC) + bytes(60),
    "lengths that differ": struct.pack("<II", 0xBAD, 16) + bytes(4) + struct.pack("<I", 20) + bytes(60),
    "packet block too short": block(6, bytes(16)),
    "captured more than its block": block(6, struct.pack("<IIIII", 0, 0, 0, 61, 61) + bytes(60)),
    "captured more than 256 KiB": block(6, struct.pack("<IIIII", 0, 0, 0, 262145, 262145) + bytes(262148)),
    "an interface that isn't described": enhanced(b"x", 1, interface=1),
    "an obsolete interface that isn't described": obsolete(b"x", 1, interface=65535),
    "a section without byte-order magic": block(0x0A0D0D0A, bytes(16)),
    "a section that is too short": block(0x0A0D0D0A, struct.pack("<I", 0x1A2B3C4D)),
    "a section of another version": block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 2, 0, -1)),
    "an interface that is too short": block(1, b"abcd"),
    "an interface of 4 GB": struct.pack("<II", 1, 0xFFFFFFFC) + bytes(60),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_ends_the_capture_and_says_where(file, damage):
    good = [section(), interface(resolution=9), *[enhanced(f.data, f.time) for f in frames(3)]]
    found, problems = read(file(*good, damage, enhanced(b"never", 1)))
    assert found == full(frames(3))
    assert [(p.offset, p.damage) for p in problems] == [(len(b"".join(good)), True)]


def test_a_cut_at_any_byte_gives_every_whole_frame_before_it(file):
    start = [section(), interface(resolution=9)]
    content = frames(3, size=3)
    blocks = start + [enhanced(frame.data, frame.time) for frame in content]
    whole = b"".join(blocks)
    ends = [len(b"".join(blocks[:count])) for count in range(len(blocks) + 1)]
    for length in range(28, len(whole)):
        found, problems = read(file(whole[:length]))
        here = max(n for n in range(len(ends)) if ends[n] <= length)
        assert found == full(content[: max(0, here - 2)])
        assert [p.offset for p in problems] == ([] if length == ends[here] else [ends[here]])


@pytest.mark.parametrize("length", range(4, 28))
def test_a_cut_in_the_first_header_is_damage(file, length):
    found, problems = read(file(section()[:length]))
    assert (found, [(p.offset, p.damage) for p in problems]) == ([], [(0, True)])


def test_each_unknown_link_type_has_one_notice(file):
    blocks = [interface(link=link) for link in (1, 147, 148)]
    blocks += [enhanced(bytes(60), n, interface=n % 3) for n in range(30)]
    found, problems = read(file(section(), *blocks), batch_frames=4)
    assert len(found) == 30
    assert [p.what.split()[4] for p in problems] == ["147,", "148,"]
    assert not any(p.damage for p in problems)
