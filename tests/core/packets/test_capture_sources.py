import gzip
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import zstandard
from capture_bytes import SECOND, Frame, frames, frames_of, pcap, pcapng, read

from flowshunt.errors import InputError
from flowshunt.packets.capture import open_captures

START = 1_700_000_000 * SECOND

READ_STANDARD_INPUT = """
import sys
from flowshunt.packets.capture import open_captures
with open_captures(["-"]) as source:
    print(sum(len(batch) for batch in source), source.total_bytes, [p.offset for p in source.problems])
"""


def full(content):
    return [frame.full for frame in content]


def standard_input(content):
    done = subprocess.run([sys.executable, "-c", READ_STANDARD_INPUT], input=content, capture_output=True, check=False)
    return done.stdout.decode().strip() or done.stderr.decode().splitlines()[-1]


@pytest.mark.parametrize(
    "content",
    [
        pcap(frames(500)),
        pcapng(frames(500)),
        gzip.compress(pcap(frames(500))),
        zstandard.ZstdCompressor().compress(pcapng(frames(500))),
    ],
    ids=["pcap", "pcapng", "gzip", "zstd"],
)
def test_standard_input_takes_every_format(content):
    assert standard_input(content) == "500 None []"


def test_standard_input_that_ends_in_a_record_is_damage():
    whole = pcap(frames(10))
    assert standard_input(whole[:-1]) == f"9 None [{len(pcap(frames(9)))}]"


def test_standard_input_from_a_file_starts_where_the_file_stands(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before" + pcap(frames(10)))
    with path.open("rb") as file:
        file.seek(6)
        out = subprocess.run([sys.executable, "-c", READ_STANDARD_INPUT], stdin=file, capture_output=True, check=True)
    assert out.stdout.decode().strip() == "10 None []"


def test_text_on_standard_input_is_no_capture():
    assert "InputError" in standard_input(b"hello") or "NotACaptureError" in standard_input(b"hello")


def test_empty_standard_input_is_damage():
    assert standard_input(b"") == "0 None [0]"


def test_a_terminal_is_not_waited_for():
    ours, theirs = os.openpty()
    out = subprocess.run([sys.executable, "-c", READ_STANDARD_INPUT], stdin=theirs, capture_output=True, check=False)
    os.close(ours)
    os.close(theirs)
    assert b"standard input is a terminal" in out.stderr


def test_standard_input_once():
    with pytest.raises(InputError, match="twice"):
        open_captures(["-", "-"])


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    threads = []

    def write(pieces):
        def run():
            with path.open("wb", buffering=0) as out:
                for piece in pieces:
                    out.write(piece)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return path

    yield write
    for thread in threads:
        thread.join()


def test_a_pipe_in_pieces_of_any_size(fifo):
    content = frames(300, size=200)
    whole = pcap(content)
    pieces = [whole[start : start + 977] for start in range(0, len(whole), 977)]
    assert read(fifo(pieces)) == (full(content), [])


def test_a_pipe_is_merged_with_files(fifo, tmp_path):
    piped, filed = frames(50, start=START, gap=100), frames(50, start=START + 50, gap=100)
    (tmp_path / "file.pcap").write_bytes(pcap(filed))
    assert read(fifo([pcap(piped)]), tmp_path / "file.pcap")[0] == sorted(full(piped + filed), key=lambda f: f.time)


def test_frames_of_a_slow_pipe_come_before_it_ends(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.open("wb", buffering=0).write(pcap(frames(3))))
    keeper = os.open(path, os.O_RDWR)  # keeps the pipe open, so that only waiting would end the read
    writer.start()
    with open_captures([path]) as source:
        assert len(next(iter(source))) == 3
    writer.join()
    os.close(keeper)


def test_an_endless_record_on_a_pipe_takes_no_memory(fifo):
    """A block that states more than any block may have is damage at once, not something to wait for."""
    found, problems = read(fifo([pcapng(frames(2)), struct.pack("<II", 6, 0x7FFFFFFC), bytes(1000)]))
    assert (len(found), [p.offset for p in problems]) == (2, [len(pcapng(frames(2)))])


def test_a_folder_is_every_capture_in_it(tmp_path):
    (tmp_path / "b.pcap").write_bytes(pcap(frames(5, start=START)))
    (tmp_path / "a.dump").write_bytes(gzip.compress(pcapng(frames(5, start=START + SECOND))))
    (tmp_path / "notes.txt").write_text("not frames")
    (tmp_path / ".hidden").write_text("not looked at")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c.pcap").write_bytes(pcap(frames(5)))
    os.mkfifo(tmp_path / "pipe")
    found, problems = read(tmp_path)
    assert found == full(frames(5, start=START) + frames(5, start=START + SECOND))
    assert sorted((Path(p.path).name, p.damage) for p in problems) == [("notes.txt", False), ("pipe", False)]


def test_a_folder_without_captures(tmp_path):
    (tmp_path / "notes.txt").write_text("not frames")
    with pytest.raises(InputError, match="holds no capture"):
        open_captures([tmp_path])


def test_an_empty_file_in_a_folder_or_by_itself_is_damage(tmp_path):
    (tmp_path / "empty.pcap").touch()
    for path in (tmp_path, tmp_path / "empty.pcap"):
        found, problems = read(path)
        assert (found, [(p.offset, p.damage) for p in problems]) == ([], [(0, True)])


@pytest.mark.parametrize("content", [b"G", b"\xd4\xc3", b"GET / HTTP/1.1\r\n", b"\n\r\r\n" + bytes(40), bytes(100)])
def test_a_file_that_is_no_capture(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"file: not a capture \(.*pcapng"):
        open_captures([path])


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"none\.pcap: can't be opened: No such file"):
        open_captures([tmp_path / "none.pcap"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file(tmp_path):
    path = tmp_path / "frames.pcap"
    path.write_bytes(pcap(frames(3)))
    path.chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        open_captures([path])


def test_a_socket(tmp_path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket"))
    with server, pytest.raises(InputError, match="socket"):
        read(tmp_path / "socket")


def test_a_name_with_a_null_byte():
    with pytest.raises(InputError, match="can't be opened"):
        open_captures(["a\0b"])


def test_nothing_named():
    with pytest.raises(InputError, match="no capture given"):
        open_captures([])


def test_progress_counts_bytes_on_disk(tmp_path):
    whole = pcap(frames(5000, start=START))
    (tmp_path / "a.pcap").write_bytes(whole)
    (tmp_path / "b.pcap.gz").write_bytes(gzip.compress(pcap(frames(5000, start=START + SECOND))))
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    with open_captures([tmp_path], batch_frames=1000) as source:
        assert source.total_bytes == size
        seen = [source.bytes_read for _ in source]
        assert seen == sorted(seen)
        assert source.bytes_read == size


def test_a_file_that_shrinks_while_it_is_read_is_damage(tmp_path):
    path = tmp_path / "frames.pcap"
    path.write_bytes(pcap(frames(50_000)))
    with open_captures([path], batch_frames=1000) as source:
        batches = iter(source)
        first = next(batches)
        os.truncate(path, 500_000)
        read_on = len(first) + sum(len(batch) for batch in batches)
        assert read_on < 10_000
        assert ["was cut" in p.what for p in source.problems] == [True]


def test_a_file_that_vanishes_between_opening_and_reading_is_damage(tmp_path):
    paths = [tmp_path / name for name in ("a.pcap", "b.pcap")]
    for path in paths:
        path.write_bytes(pcap(frames(10)))
    with open_captures(paths) as source:
        paths[1].unlink()
        assert sum(len(batch) for batch in source) == 10
        assert [(p.path, p.damage) for p in source.problems] == [(str(paths[1]), True)]


def test_a_batch_stays_valid_after_the_source_is_closed(tmp_path):
    path = tmp_path / "frames.pcap"
    path.write_bytes(pcap(frames(10)))
    with open_captures([path]) as source:
        batch = next(iter(source))
    assert frames_of(batch) == full(frames(10))


def open_files():
    return {entry.name for entry in Path("/dev/fd").iterdir()}


def test_closing_half_way_lets_go_of_every_file(tmp_path):
    paths = [tmp_path / f"{n}.pcap" for n in range(5)]
    for path in paths:
        path.write_bytes(pcap(frames(100)))
    before = open_files()
    with open_captures(paths, batch_frames=3) as source:
        next(iter(source))
    del source
    assert open_files() == before


def test_memory_stays_low_over_a_large_capture(tmp_path):
    """A capture of 300 MB, sparse on disk, read in a process whose resident memory must not grow by 100 MB."""
    path = tmp_path / "large.pcap"
    record = pcap([Frame(bytes(1500))])[24:]
    with path.open("wb") as out:
        out.write(pcap([]))
        for _ in range(200):
            out.write(record * 1000)
    script = f"""
import re
from flowshunt.packets.capture import open_captures
from flowshunt.packets.decode import decode
def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024
before, most = resident(), 0
with open_captures([{str(path)!r}]) as source:
    for batch in source:
        decode(batch)
        most = max(most, resident())
print(source.frames_read, most - before)
"""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout.split()
    assert int(out[0]) == 200_000
    assert int(out[1]) < 100
