import gzip
import os
import random
import struct

import pytest
import zstandard
from capture_bytes import frames, pcap, pcapng, read

from flowshunt.errors import InputError
from flowshunt.packets.compression import GzipBytes, ZstdBytes
from flowshunt.packets.window import FileBytes

COMPRESS = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor(write_checksum=True).compress}
COMPRESSIONS = pytest.mark.parametrize("name", COMPRESS)


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "frames.bin"
        path.write_bytes(content)
        return path

    return write


def full(content):
    return [frame.full for frame in content]


def noisy(count, seed=1):
    """Frames that don't compress, so that damage has somewhere to be."""
    source = random.Random(seed)
    return [frame.__class__(source.randbytes(500), frame.time) for frame in frames(count)]


@COMPRESSIONS
@pytest.mark.parametrize("format", [pcap, pcapng], ids=["pcap", "pcapng"])
def test_compressed_captures_read_like_plain_ones(file, name, format):
    content = frames(3000)
    assert read(file(COMPRESS[name](format(content)))) == (full(content), [])


@COMPRESSIONS
def test_members_one_after_the_other_are_one_stream(file, name):
    whole = pcap(frames(100))
    parts = [whole[:10], whole[10:1000], b"", whole[1000:1001], whole[1001:]]
    assert read(file(b"".join(map(COMPRESS[name], parts)))) == (full(frames(100)), [])


def test_zero_padding_after_gzip_is_passed_over(file):
    assert read(file(gzip.compress(pcap(frames(9))) + bytes(300_000))) == (full(frames(9)), [])


@COMPRESSIONS
def test_other_bytes_after_the_last_member_are_damage(file, name):
    found, problems = read(file(COMPRESS[name](pcap(frames(9))) + b"trailing bytes"))
    assert found == full(frames(9))
    assert [(p.offset, p.damage) for p in problems] == [(len(pcap(frames(9))), True)]


def test_skippable_zstd_frames_are_skipped(file):
    skippable = struct.pack("<II", 0x184D2A53, 200_000) + bytes(200_000)
    whole = pcap(frames(50))
    compress = COMPRESS["zstd"]
    assert read(file(compress(whole[:500]) + skippable + compress(whole[500:]))) == (full(frames(50)), [])


def test_zstd_of_unknown_size_and_many_blocks(file):
    content = noisy(2000)
    out = zstandard.ZstdCompressor(level=1).compressobj()
    data = out.compress(pcap(content)) + out.flush()
    assert read(file(data)) == (full(content), [])


@COMPRESSIONS
def test_a_cut_gives_every_whole_frame_before_it_and_the_place_in_the_decompressed_data(file, name):
    content = noisy(2000)
    whole = pcap(content)
    data = COMPRESS[name](whole)
    for length in (*range(5, 60, 7), len(data) // 3, len(data) // 2, len(data) - 100, len(data) - 1):
        found, problems = read(file(data[:length]))
        assert found == full(content[: len(found)])
        assert len(found) >= (length - 140_000) // 516
        assert [p.damage for p in problems] == [True]
        assert "decompressed" in problems[0].what
        assert problems[0].offset == (len(pcap(content[: len(found)])) if found else 0) or problems[0].offset == 24


@COMPRESSIONS
def test_damage_inside_gives_the_frames_before_it(file, name):
    content = noisy(2000)
    data = bytearray(COMPRESS[name](pcap(content)))
    data[len(data) // 2 : len(data) // 2 + 4000] = b"\xff" * 4000
    found, problems = read(file(bytes(data)))
    same = sum(a == b for a, b in zip(found, full(content), strict=False))
    assert same >= (len(data) // 2 - 140_000) // 516
    assert any(p.damage for p in problems)


@COMPRESSIONS
def test_a_wrong_checksum_is_damage_though_all_frames_are_there(file, name):
    data = bytearray(COMPRESS[name](pcap(noisy(50))))
    at = len(data) - (8 if name == "gzip" else 4)
    data[at] ^= 1
    found, problems = read(file(bytes(data)))
    assert found == full(noisy(50))
    assert [p.damage for p in problems] == [True]


@COMPRESSIONS
def test_compressed_text_is_no_capture(file, name):
    with pytest.raises(InputError, match="not a capture"):
        read(file(COMPRESS[name](b"GET / HTTP/1.1\r\n" * 100)))


@pytest.mark.parametrize("start", [b"\x1f\x8b", b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\xff"])
def test_nothing_but_the_start_of_compressed_data_is_damage(file, start):
    found, problems = read(file(start))
    assert (found, [p.damage for p in problems]) == ([], [True])


@COMPRESSIONS
def test_a_decompression_bomb_gives_no_more_than_there_is_room_for(tmp_path, name):
    """64 MiB of zeros take few bytes; one read must not make them all."""
    path = tmp_path / "bomb"
    path.write_bytes(COMPRESS[name](bytes(64 << 20)))
    source = {"gzip": GzipBytes, "zstd": ZstdBytes}[name](FileBytes(os.open(path, os.O_RDONLY)))
    total, room = 0, bytearray(100_000)
    while count := source.readinto(memoryview(room)):
        assert count <= 100_000
        total += count
        assert len(getattr(source, "_pending", b"")) <= 128 << 10
    source.close()
    assert (total, source.damage) == (64 << 20, "")


def test_zstd_that_needs_more_than_128_mib_of_window_is_refused(file):
    parameters = zstandard.ZstdCompressionParameters(window_log=28)
    out = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    found, problems = read(file(out.compress(pcap(frames(10))) + out.flush()))
    assert (found, [p.damage for p in problems]) == ([], [True])


def test_notices_speak_of_the_decompressed_data_too(file):
    _, problems = read(file(gzip.compress(pcap(frames(3), word=147))))
    assert [(p.offset, p.damage, "decompressed" in p.what) for p in problems] == [(40, False, True)]


@COMPRESSIONS
def test_compressed_captures_are_merged_with_others(file, tmp_path, name):
    early, late = frames(10, start=10**18), frames(10, start=10**18 + 500)
    (tmp_path / "late.pcap").write_bytes(pcap(late))
    found, _ = read(tmp_path / "late.pcap", file(COMPRESS[name](pcap(early))))
    assert found == sorted(full(early + late), key=lambda frame: frame.time)
