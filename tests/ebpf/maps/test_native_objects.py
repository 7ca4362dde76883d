"""Operations and helpers are loaded from kept objects, without Numba; broken objects are refused."""

import contextlib
import os
import struct
import subprocess
import sys

import pytest

from flowshunt_ebpf.maps import native_code
from flowshunt_ebpf.maps.helpers import CHECK, helper_name
from flowshunt_ebpf.maps.kept_object import keep, kept
from flowshunt_ebpf.maps.object_code import ObjectCode, UnusableObjectError
from flowshunt_ebpf.maps.operations import EVERY
from flowshunt_ebpf.maps.supported import HELPER_KINDS
from flowshunt_ebpf.native.host import architecture

pytestmark = pytest.mark.skipif(architecture() != "x86_64", reason="objects are read on x86-64 alone")

NAMES = sorted({*EVERY, CHECK, *(name for name in map(helper_name, HELPER_KINDS) if name)})


@pytest.mark.parametrize("name", NAMES)
def test_every_function_loads_from_its_object(name):
    code = ObjectCode(kept(native_code.object_file(name)))
    assert sum(symbol.startswith("cfunc.") for symbol in code.symbols) == 1


def test_a_program_with_maps_and_helpers_needs_no_numba():
    code = (
        "import sys\n"
        "from flowshunt_ebpf.asm import assemble\n"
        "from flowshunt_ebpf.native import Workbench, host\n"
        "from flowshunt_ebpf.verifier import verify\n"
        "bench = Workbench(assemble('.type xdp\\n.map m hash key=4 value=8 entries=4\\n*(u64 *)(r10 - 8) = 1\\n"
        "r2 = r10\\nr2 += -8\\nr3 = r2\\nr4 = 0\\nr1 = map[m]\\ncall bpf_map_update_elem\\nexit'))\n"
        "bench.machine.set_packet(bytes(64))\n"
        "assert host(bench.image, bench.machine, verify(bench.program)).run().value == 0\n"
        "assert len(bench.maps['m']) == 1\n"
        "assert 'numba' not in sys.modules and 'llvmlite' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_a_place_to_keep_objects_numba_compiles_in_the_process(tmp_path):
    code = (
        "import struct\n"
        "from flowshunt_ebpf.maps import create\n"
        "from flowshunt_ebpf.maps import native_code\n"
        "native_code._compile_apart = lambda names: None\n"
        "from flowshunt_ebpf.program import MapDefinition, MapType\n"
        "m = create(MapDefinition('m', MapType.ARRAY, 4, 8, 4))\n"
        "assert m.operation(0) != 0\n"
        "assert not native_code.object_file('native_array:lookup').exists()\n"
    )
    environment = {**os.environ, "FLOWSHUNT_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_broken_objects_are_refused():
    data = kept(native_code.object_file("native_hash:update"))
    for size in range(0, len(data), 97):
        with pytest.raises(UnusableObjectError):
            ObjectCode(data[:size])
    for at in (4, 16, 18, 40, 58, 60):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        with pytest.raises(UnusableObjectError):
            ObjectCode(bytes(damaged))


def test_no_header_field_makes_the_reader_leave_the_object():
    data = kept(native_code.object_file("native_array:lookup"))
    (table,) = struct.unpack_from("<Q", data, 40)
    for at in [*range(0, 64, 4), *range(table, len(data) - 7, 4)]:
        for value in (0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
            damaged = bytearray(data)
            struct.pack_into("<I", damaged, at, value)
            with contextlib.suppress(UnusableObjectError):
                ObjectCode(bytes(damaged))  # never run: that it is read without harm is the claim


RUN = """
import sys
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.native import Workbench, host
from flowshunt_ebpf.verifier import verify
bench = Workbench(assemble('.type xdp\\n.map m hash key=4 value=8 entries=4\\n*(u64 *)(r10 - 8) = 1\\n'
    'r2 = r10\\nr2 += -8\\nr3 = r2\\nr4 = 0\\nr1 = map[m]\\ncall bpf_map_update_elem\\n'
    'r2 = r10\\nr2 += -8\\nr1 = map[m]\\ncall bpf_map_lookup_elem\\nr0 = 0\\nexit'))
bench.machine.set_packet(bytes(64))
assert host(bench.image, bench.machine, verify(bench.program)).run().value == 0 and len(bench.maps['m']) == 1
print('numba' in sys.modules)
"""


def run_apart(cache, **more):
    environment = {**os.environ, "FLOWSHUNT_CACHE": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", RUN],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def finished(process):
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out.strip()


def test_damaged_objects_are_made_again_and_never_executed(tmp_path):
    assert finished(run_apart(tmp_path)) == "False"
    files = sorted(tmp_path.rglob("*.o"))
    whole = {file: file.read_bytes() for file in files}
    contents = list(whole.values())
    trap = contents[0][:32] + contents[0][32:].replace(b"\x55", b"\xcc")  # int3 where functions start
    for damage in (
        lambda file: whole[file][: len(whole[file]) // 2],
        lambda file: whole[file][:-1],
        lambda file: b"",
        lambda file: whole[file][:-1] + bytes([whole[file][-1] ^ 1]),
        lambda file: whole[file][32:],  # an object as such, without its sum
        lambda file: contents[whole[file] == contents[0]],  # another function's object
        lambda file: trap,
    ):
        for file in files:
            file.write_bytes(damage(file))
            assert kept(file) is None
        assert finished(run_apart(tmp_path)) == "False"
        assert all(kept(file) == whole[file][32:] for file in files)


def test_an_object_that_others_can_write_is_not_loaded(tmp_path):
    file = tmp_path / "own" / "function.o"
    keep(file, b"object")
    assert kept(file) == b"object"
    assert file.stat().st_mode & 0o777 == 0o600
    for mode in (0o620, 0o602):
        file.chmod(mode)
        assert kept(file) is None
    file.chmod(0o600)
    file.parent.chmod(0o777)
    assert kept(file) is None
    file.parent.chmod(0o700)
    link = file.with_name("link.o")
    link.symlink_to(file)
    assert kept(link) is None


def test_a_pipe_in_place_of_an_object_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / "function.o")
    assert kept(tmp_path / "function.o") is None


def test_an_object_that_finds_no_room_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="No space"):
        keep(tmp_path / "function.o", b"object")
    assert list(tmp_path.iterdir()) == []


def test_processes_that_start_together_on_a_cold_cache_all_run(tmp_path):
    together = [run_apart(tmp_path) for _ in range(2)]
    assert [finished(process) for process in together] == ["False", "False"]
    assert all(kept(file) for file in tmp_path.rglob("*.o"))
    assert not [file for file in next(tmp_path.glob("ebpf-*")).iterdir() if file.suffix != ".o"]


def test_where_others_can_write_the_folder_of_objects_nothing_is_loaded_from_it(tmp_path):
    assert finished(run_apart(tmp_path)) == "False"
    next(tmp_path.glob("ebpf-*")).chmod(0o777)
    assert finished(run_apart(tmp_path)) == "True"
