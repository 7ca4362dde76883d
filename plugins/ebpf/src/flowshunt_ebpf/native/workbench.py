"""A program with everything that it needs to run: maps by name, a machine, and the programs that it tail-calls."""

from collections.abc import Callable, Mapping
from typing import Any

from flowshunt.errors import InputError
from flowshunt_ebpf.contexts.layout import Context
from flowshunt_ebpf.maps.arrays import MapArrayMap, ProgramArrayMap
from flowshunt_ebpf.maps.create import create
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.native.image import Image, context_of, prepare
from flowshunt_ebpf.native.machine import PACKET_ROOM, Machine
from flowshunt_ebpf.native.verdict import Verdict
from flowshunt_ebpf.program import MapDefinition, Program

Judge = Callable[[Image, Machine], Verdict]
"""A verifier."""


class Workbench:
    """A program, its maps and its machine.

    Maps that the programs of an object name alike are one map. What the object itself puts into arrays of programs and
    of maps is put in.

    Args:
        program: the program.
        others: the other programs of its object, by name, for tail calls.
        context: what r1 is; None: by the program's type.
        packet_room: bytes that a packet may have.
        cpus: for how many CPUs per-CPU maps have values.

    Attributes:
        maps: by name.
        machine: the machine.
        image: the program, ready to run.
    """

    def __init__(
        self,
        program: Program,
        others: Mapping[str, Callable[[], Program]] | None = None,
        *,
        context: Context | None = None,
        packet_room: int = PACKET_ROOM,
        cpus: int = 1,
    ) -> None:
        self.program = program
        self.maps: dict[str, Map] = {}
        self._others = others or {}
        self._handles: dict[str, int] = {}
        self._cpus = cpus
        chosen = context or context_of(program)
        self._add_maps(program)
        self.machine = Machine(chosen, tuple(self.maps.values()), packet_room=packet_room)
        self._fill(program.maps)
        self.image = self._image(program)

    def _add_maps(self, program: Program) -> None:
        for definition in program.maps:
            known = self.maps.get(definition.name)
            if known is None:
                self.maps[definition.name] = create(definition, cpus=self._cpus)
            elif _shape(known.definition) != _shape(definition):
                raise InputError(
                    f"two programs name a map {definition.name}, of different sizes",
                    f"program {program.name}",
                    "give them different names",
                )

    def _image(self, program: Program) -> Image:
        self.machine.attach(tuple(self.maps.values()))
        return prepare(program, [self.maps[d.name] for d in program.maps], context=self.machine.context)

    def _fill(self, definitions: tuple[MapDefinition, ...]) -> None:
        for definition in definitions:
            m = self.maps[definition.name]
            for key, name in definition.values:
                if isinstance(m, ProgramArrayMap):
                    m.set_handle(key, self.handle(name))
                elif isinstance(m, MapArrayMap) and name in self.maps:
                    m.put(key, self.maps[name])

    def handle(self, name: str) -> int:
        """The handle of another program of the object, for `ProgramArrayMap.set_handle`. Raises InputError."""
        if name not in self._handles:
            if name not in self._others:
                known = ", ".join(self._others) or "none"
                raise InputError(f"there is no program {name}", f"program {self.program.name}", f"there are: {known}")
            other = self._others[name]()
            self._add_maps(other)
            self._handles[name] = self.machine.add_program(self._image(other))
            self._fill(other.maps)
        return self._handles[name]

    def judge(self, verifier: Judge) -> Verdict:
        """Have the program and those that it tail-calls verified; gives the verdict about the program.

        Raises what the verifier raises.
        """
        machine = self.machine
        for number, image in enumerate(machine.programs):
            machine.verdicts[number] = verifier(image, machine)
        return verifier(self.image, machine)


def _shape(definition: MapDefinition) -> tuple[Any, ...]:
    return definition.type, definition.key_size, definition.value_size, definition.max_entries
