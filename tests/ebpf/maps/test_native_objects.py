"""Operations and helpers are loaded from kept objects, without Numba; broken objects are refused."""

import os
import subprocess
import sys

import pytest

from flowshunt_ebpf.maps import native_code
from flowshunt_ebpf.maps.helpers import CHECK, helper_name
from flowshunt_ebpf.maps.object_code import ObjectCode, UnusableObjectError
from flowshunt_ebpf.maps.operations import EVERY
from flowshunt_ebpf.maps.supported import HELPER_KINDS
from flowshunt_ebpf.native.host import architecture

pytestmark = pytest.mark.skipif(architecture() != "x86_64", reason="objects are read on x86-64 alone")

NAMES = sorted({*EVERY, CHECK, *(name for name in map(helper_name, HELPER_KINDS) if name)})


@pytest.mark.parametrize("name", NAMES)
def test_every_function_loads_from_its_object(name):
    code = ObjectCode(native_code.object_file(name).read_bytes())
    assert sum(symbol.startswith("cfunc.") for symbol in code.symbols) == 1


def test_a_program_with_maps_and_helpers_needs_no_numba():
    code = (
        "import sys\n"
        "from flowshunt_ebpf.asm import assemble\n"
        "from flowshunt_ebpf.native import Workbench, host\n"
        "bench = Workbench(assemble('.type xdp\\n.map m hash key=4 value=8 entries=4\\n*(u64 *)(r10 - 8) = 1\\n"
        "r2 = r10\\nr2 += -8\\nr3 = r2\\nr4 = 0\\nr1 = map[m]\\ncall bpf_map_update_elem\\nexit'))\n"
        "bench.machine.set_packet(bytes(64))\n"
        "assert host(bench.image, bench.machine).run().value == 0\n"
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
    data = native_code.object_file("native_hash:update").read_bytes()
    for size in range(0, len(data), 97):
        with pytest.raises(UnusableObjectError):
            ObjectCode(data[:size])
    for at in (4, 16, 18, 40, 58, 60):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        with pytest.raises(UnusableObjectError):
            ObjectCode(bytes(damaged))
