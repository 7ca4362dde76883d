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
    """Whether a zero byte lies within 4096 readable bytes, all in one element of one region."""
    regions = load64(machine + REGIONS)
    for row in range(load64(machine + REGION_COUNT)):
        region = regions + REGION_BYTES * row
        distance = address - load64(region)
        left = load64(region + 8) - distance
        if distance < 0 or left <= 0:
            continue
        stride = load32(region + 16)
        if stride != 0:
            left = load32(region + 20) - distance % stride
        for at in range(min(left, STRING_LIMIT)):
            if load8(address + at) == 0:
                return True
    return False


@piece
def _needed(kind: Any, following: Any, m: Any) -> Any:
    """How many bytes of memory an argument has to name; 0: none, -1: the size is not valid."""
    if kind == 3:
        return load32(m + KEY_SIZE)
    if 4 <= kind <= 5:
        return load32(m + VALUE_SIZE)
    if 6 <= kind <= 8:
        if not below(following, 1 << 31):
            return -1
        return following if following > 0 or kind == 7 else -1
    if 11 <= kind <= 12:
        return 4 if kind == 11 else 8
    return 0


@piece
def _is_kind(kind: Any, m: Any) -> Any:
    """Whether a map is of the kind that a helper takes."""
    found = load32(m + TYPE)
    if kind == 15:
        return found == 3
    if kind == 16:
        return found == 27
    if kind == 17:
        return found == 4
    return kind == 2 or found == 14 or found == 16 or found == 17 or found == 25  # noqa: PLR1714


def check_arguments(a: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """The first argument, from 1, that is not what the helper takes; 0 where all are."""
    kinds = load64(machine + PROTOTYPES) + 8 * load32(machine + HELPER)
    m = 0
    for at in range(5):
        value = a if at == 0 else b if at == 1 else c if at == 2 else d if at == 3 else e
        following = b if at == 0 else c if at == 1 else d if at == 2 else e
        kind = load8(kinds + at)
        size = _needed(kind, following, m)
        fine = size >= 0
        if kind == 1:
            fine = value == load64(machine + CONTEXT)
        elif kind == 2 or kind >= 15:
            fine = _is_map(machine, value) and _is_kind(kind, value)
            m = value
        elif kind == 13:
            fine = _is_string(machine, value)
        elif size > 0:
            fine = inside(machine, value, size, WRITABLE if kind == 5 or kind == 8 or kind >= 11 else 0)  # noqa: PLR1714
        if not fine:
            return at + 1
    return 0
