"""What the verifier knows of a map: sizes, who may write, and the fields of its values that only helpers touch."""

from typing import Final

import attrs

from flowshunt_ebpf.elf.btf import Btf, Kind, read_btf
from flowshunt_ebpf.elf.error import ObjectError
from flowshunt_ebpf.program import MapDefinition, MapFlag, MapType, Program

_SPECIAL: Final = frozenset(
    {
        "bpf_spin_lock", "bpf_res_spin_lock", "bpf_timer", "bpf_wq", "bpf_list_head", "bpf_list_node", "bpf_rb_root",
        "bpf_rb_node", "bpf_refcount", "bpf_task_work",
    }
)  # fmt: skip
LOCK: Final = "bpf_spin_lock"
_TARGETS: Final = frozenset({MapType.DEVMAP, MapType.DEVMAP_HASH, MapType.CPUMAP, MapType.XSKMAP})


@attrs.frozen(eq=False)
class MapFacts:
    """A map that a program names, or what its inner maps look like. Each is equal to itself alone.

    Attributes:
        number: its index in the program's maps; for inner maps that of the outer one.
        special: (type, offset, bytes) of the fields of a value that only helpers touch.
        inner: for a map of maps, what its maps look like.
    """

    name: str
    number: int
    definition: MapDefinition
    special: tuple[tuple[str, int, int], ...] = ()
    inner: "MapFacts | None" = None

    @property
    def type(self) -> int:
        """Its `MapType`."""
        return self.definition.type

    @property
    def key_size(self) -> int:
        """Bytes of a key."""
        return self.definition.key_size

    @property
    def value_size(self) -> int:
        """Bytes of a value."""
        return self.definition.value_size

    @property
    def read_only(self) -> bool:
        """Whether programs may not write it: those of redirect targets are read alone, as in the kernel."""
        return bool(self.definition.flags & MapFlag.RDONLY_PROG) or self.type in _TARGETS

    @property
    def write_only(self) -> bool:
        """Whether programs may not read it."""
        return bool(self.definition.flags & MapFlag.WRONLY_PROG)

    @property
    def constants(self) -> bytes | None:
        """The bytes of its only value where nothing can change them: not the program, nor others once it is loaded."""
        d = self.definition
        if not d.is_constant or d.type != MapType.ARRAY or d.max_entries != 1:
            return None
        return (d.contents or b"").ljust(d.value_size, b"\0")

    @property
    def lock(self) -> int | None:
        """Where in a value its spin lock is; None: it has none."""
        return next((at for name, at, _ in self.special if name == LOCK), None)


def map_facts(program: Program) -> tuple[MapFacts, ...]:
    """The maps of a program, in their order."""
    btf: Btf | None = None
    if program.btf and any(d.value_type_id for d in program.maps):
        try:
            btf = read_btf(program.btf, program.name)
        except ObjectError:
            btf = None
    return tuple(_facts(d, n, btf) for n, d in enumerate(program.maps))


def _facts(definition: MapDefinition, number: int, btf: Btf | None) -> MapFacts:
    special: tuple[tuple[str, int, int], ...] = ()
    if btf is not None and definition.value_type_id and definition.contents is None:
        try:
            special = tuple(_special(btf, definition.value_type_id, 0, 0))
        except ObjectError:
            special = ()
    inner = None
    if definition.inner is not None and definition.type in (MapType.ARRAY_OF_MAPS, MapType.HASH_OF_MAPS):
        inner = _facts(definition.inner, number, btf)
    return MapFacts(definition.name, number, definition, special, inner)


def _special(btf: Btf, id_: int, at: int, depth: int) -> list[tuple[str, int, int]]:
    """The special fields of a type at byte `at`."""
    type_ = btf.strip(id_)
    if type_.kind is not Kind.STRUCT or depth > 4:
        return []
    if type_.name in _SPECIAL:
        return [(type_.name, at, btf.size_of(type_.id))]
    found: list[tuple[str, int, int]] = []
    for member in type_.members:
        found += _special(btf, member.type, at + member.offset // 8, depth + 1)
    return found
