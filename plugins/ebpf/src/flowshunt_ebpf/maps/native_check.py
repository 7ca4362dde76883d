"""The check of a helper's arguments where there is no verdict: each against the regions and maps of the machine.

The kinds are those of `maps.supported.Argument`, eight bytes a helper in the table that the state block points to.
"""

from typing import Any, Final

from flowshunt.compiled import piece
from flowshunt_ebpf.maps.header import KEY_SIZE, TYPE, VALUE_SIZE
from flowshunt_ebpf.maps.native_ring import MACHINE_MAP_COUNT, MACHINE_MAPS
from flowshunt_ebpf.maps.raw import below, load8, load32, load64

# Offsets in the state block, those of native.state.
HELPER: Final = 44
REGIONS: Final = 56
REGION_COUNT: Final = 64
CONTEXT: Final = 88
PROTOTYPES: Final = 184
REGION_BYTES: Final = 32
WRITABLE: Final = 1
STRING_LIMIT: Final = 4096


@piece
def inside(machine: Any, address: Any, size: Any, flags: Any) -> Any:
    """Whether the program may access memory."""
    regions = load64(machine + REGIONS)
    for row in range(load64(machine + REGION_COUNT)):
        region = regions + REGION_BYTES * row
        distance = address - load64(region)
        length = load64(region + 8)
        if distance < 0 or size > length or distance > length - size or flags & ~load64(region + 24) != 0:
            continue
        stride = load32(region + 16)
        if stride == 0 or distance % stride + size <= load32(region + 20):
            return True
    return False


@piece
def _is_map(machine: Any, address: Any) -> Any:
    maps = load64(machine + MACHINE_MAPS)
    found = False
    for number in range(load64(machine + MACHINE_MAP_COUNT)):
        found = found or load64(maps + 8 * number) == address
    return found


@piece
def _is_string(machine: Any, address: Any) -> Any:
    for at in range(STRING_LIMIT):
        if not inside(machine, address + at, 1, 0):
            return False
        if load8(address + at) == 0:
            return True
    return False


@piece
def _fits(machine: Any, kind: Any, value: Any, following: Any, m: Any) -> Any:
    if kind == 1:
        return value == load64(machine + CONTEXT)
    if kind == 2 or kind >= 15:
        if not _is_map(machine, value):
            return False
        found = load32(value + TYPE)
        if kind == 15:
            return found == 3
        if kind == 16:
            return found == 27
        if kind == 17:
            return found == 4
        return kind == 2 or found in (14, 16, 17, 25)
    if kind == 3:
        return inside(machine, value, load32(m + KEY_SIZE), 0)
    if kind == 4:
        return inside(machine, value, load32(m + VALUE_SIZE), 0)
    if kind == 5:
        return inside(machine, value, load32(m + VALUE_SIZE), WRITABLE)
    if 6 <= kind <= 8:
        if not below(following, 1 << 31):
            return False
        if kind == 7 and following == 0:
            return True
        return inside(machine, value, following, WRITABLE if kind == 8 else 0)
    if 11 <= kind <= 12:
        return inside(machine, value, 4 if kind == 11 else 8, WRITABLE)
    if kind == 13:
        return _is_string(machine, value)
    return True


def check_arguments(a: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """The first argument, from 1, that is not what the helper takes; 0 where all are."""
    kinds = load64(machine + PROTOTYPES) + 8 * load32(machine + HELPER)
    m = 0
    for at in range(5):
        value = a if at == 0 else b if at == 1 else c if at == 2 else d if at == 3 else e
        following = b if at == 0 else c if at == 1 else d if at == 2 else e
        kind = load8(kinds + at)
        if not _fits(machine, kind, value, following, m):
            return at + 1
        if kind == 2:
            m = value
    return 0
