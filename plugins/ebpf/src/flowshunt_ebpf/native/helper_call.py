"""Helper calls from Python: arguments checked by their kinds, then the same native code that compiled programs call."""

import ctypes
import struct
from collections.abc import Callable
from typing import Final

from flowshunt.errors import InputError
from flowshunt_ebpf.maps import header as h
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.maps.supported import HELPER_KINDS, MAP_OPERATIONS, TARGET_MAPS, Argument
from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.image import Image
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import MapType

_SIGNATURE: Final = ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_uint64] * 6)
_STRING_LIMIT: Final = 4096
TRACE_HELPER: Final = 6
_KINDS: Final = {
    Argument.PROGRAMS: frozenset({MapType.PROG_ARRAY}),
    Argument.RING: frozenset({MapType.RINGBUF}),
    Argument.EVENTS: frozenset({MapType.PERF_EVENT_ARRAY}),
    Argument.TARGETS: TARGET_MAPS,
}


class HelperCalls:
    """The helpers that an image may call on a machine."""

    def __init__(self, image: Image, machine: Machine) -> None:
        self.image = image
        self.machine = machine
        self._functions: dict[int, Callable[..., int]] = {}

    def call(self, number: int, arguments: list[int]) -> int:
        """Call a helper whose arguments were checked; gives r0."""
        operation = MAP_OPERATIONS.get(number)
        if operation is not None:
            chosen = self.map_at(arguments[0])
            assert chosen is not None
            address = chosen.operation(operation)
        else:
            from flowshunt_ebpf.maps.helpers import helper_address

            address = helper_address(number)
        function = self._functions.get(address)
        if function is None:
            function = self._functions[address] = _SIGNATURE(address)
        return function(*arguments, self.machine.address)

    def map_at(self, address: int) -> Map | None:
        """The map that a map pointer names; None where it names none."""
        return next((m for m in every_map(self.machine) if m.address == address), None)

    def program_at(self, address: int, index: int) -> Image | None:
        """The program at an index of a program array; None where there is none."""
        chosen = self.map_at(address)
        if chosen is None or index >= chosen.definition.max_entries:
            return None
        (number,) = struct.unpack_from("<Q", chosen.values_view, index * h.PROG_ARRAY_STRIDE)
        return self.machine.programs[number - 1] if 0 < number <= len(self.machine.programs) else None

    def wrong_argument(self, number: int, arguments: list[int], inside: Callable[[int, int, int], bool]) -> int:
        """The first argument, from 1, that is not what the helper takes; 0 where all are.

        `inside(address, size, flags)`: whether the program may access memory.
        """
        kinds = HELPER_KINDS[number]
        chosen: Map | None = None
        for at, kind in enumerate(kinds):
            value = arguments[at]
            fine = True
            if kind == Argument.CONTEXT:
                fine = value == self.machine.get64(state.CONTEXT)
            elif kind in _KINDS or kind == Argument.MAP:
                chosen = self.map_at(value)
                fine = chosen is not None and (kind == Argument.MAP or chosen.definition.type in _KINDS[kind])
            elif kind in (Argument.KEY, Argument.VALUE, Argument.VALUE_OUT):
                assert chosen is not None
                size = chosen.definition.key_size if kind == Argument.KEY else chosen.definition.value_size
                fine = inside(value, size, state.WRITABLE if kind == Argument.VALUE_OUT else 0)
            elif kind in (Argument.READ, Argument.READ_OR_NULL, Argument.WRITE):
                size = arguments[at + 1] & 0xFFFFFFFF
                fine = size > 0 and inside(value, size, state.WRITABLE if kind == Argument.WRITE else 0)
                fine = arguments[at + 1] < 1 << 31 and (fine or (size == 0 and kind == Argument.READ_OR_NULL))
            elif kind == Argument.FUNCTION:
                fine = value in self.image.callbacks
            elif kind in (Argument.LOCK, Argument.LONG_OUT):
                fine = inside(value, 4 if kind == Argument.LOCK else 8, state.WRITABLE)
            elif kind == Argument.STRING:
                fine = self._is_string(value)
            if not fine:
                return at + 1
        return 0

    def _is_string(self, address: int) -> bool:
        """Whether a zero byte lies within 4096 readable bytes, all in one element of one region."""
        for base, length, stride, limit, _ in self.machine.regions():
            distance = address - base
            if 0 <= distance < length:
                left = limit - distance % stride if stride else length - distance
                if left > 0 and b"\0" in ctypes.string_at(address, min(left, _STRING_LIMIT)):
                    return True
        return False


def every_map(machine: Machine) -> list[Map]:
    """The maps that programs on a machine may use, inner ones included."""
    return [*machine.maps, *(inner for m in machine.maps for inner in m.inner_maps())]


def bind_all(image: Image, machine: Machine, *, checked: bool = False) -> None:
    """Make the native code of the maps and helpers that an image needs ready; `checked`: that of their check, too."""
    if machine.context is not image.context:
        raise InputError(
            f"it was made ready for the context {image.context.name}, the machine has {machine.context.name}",
            f"program {image.program.name}",
            "make the machine with the program's context",
        )
    if image.helpers:
        from flowshunt_ebpf.maps.helpers import CHECK, helper_name, prototypes_address
        from flowshunt_ebpf.maps.native_code import ensure
        from flowshunt_ebpf.maps.operations import operation_name

        machine.put64(state.PROTOTYPES, prototypes_address())
        operations = {MAP_OPERATIONS[number] for number in image.helpers if number in MAP_OPERATIONS}
        maps = every_map(machine) if operations else []
        names = [operation_name(m, operation) for m in maps for operation in operations]
        names += [name for name in map(helper_name, image.helpers) if name is not None]
        ensure([*names, CHECK] if checked else names)
        for m in maps:
            for operation in operations:
                m.operation(operation)
    if TRACE_HELPER in image.helpers:
        machine.start_trace()
    missing = [m.name for m in image.maps if m not in machine.maps]
    if missing:
        raise InputError(
            f"it uses maps that the machine lacks: {', '.join(missing)}", f"program {image.program.name}", "attach them"
        )
