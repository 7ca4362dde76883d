"""Make maps from their definitions."""

from collections.abc import Sequence

from flowshunt_ebpf.maps.map import Map, check_type
from flowshunt_ebpf.program import MapDefinition, MapType


def create(definition: MapDefinition, *, cpus: int = 1) -> Map:
    """A new map.

    `cpus`: how many CPUs a per-CPU map has values for. Raises InputError for a type that is not there in user space and
    for sizes that the type does not allow.
    """
    check_type(definition)
    from flowshunt_ebpf.maps.arrays import ARRAYS

    if definition.type in ARRAYS:
        return ARRAYS[MapType(definition.type)](definition, cpus=cpus)
    from flowshunt_ebpf.maps.tables import TABLES

    if definition.type in TABLES:
        return TABLES[MapType(definition.type)](definition, cpus=cpus)
    from flowshunt_ebpf.maps.rings import RINGS

    return RINGS[definition.type](definition, cpus=cpus)


def create_all(definitions: Sequence[MapDefinition], *, cpus: int = 1) -> tuple[Map, ...]:
    """A new map for each definition."""
    return tuple(create(definition, cpus=cpus) for definition in definitions)
