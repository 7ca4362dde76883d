"""Maps of maps take only maps as their definition declares them: what was verified rests on their sizes."""

import attrs
import pytest

from flowshunt.errors import InputError
from flowshunt_ebpf.maps import create
from flowshunt_ebpf.program import MapDefinition, MapType

INNER = MapDefinition("inner", MapType.ARRAY, 4, 16, 8)
OUTER = MapDefinition("outer", MapType.ARRAY_OF_MAPS, 4, 4, 2, inner=INNER)


@pytest.mark.parametrize("kind", [MapType.ARRAY_OF_MAPS, MapType.HASH_OF_MAPS])
@pytest.mark.parametrize(
    "other", [{"type": MapType.HASH}, {"key_size": 8, "type": MapType.HASH}, {"value_size": 8}, {"max_entries": 4}]
)
def test_another_kind_of_map_is_refused(kind, other):
    outer = create(attrs.evolve(OUTER, type=kind))
    key = 0 if kind == MapType.ARRAY_OF_MAPS else bytes(4)
    with pytest.raises(InputError, match="map inner has"):
        outer.put(key, create(attrs.evolve(INNER, **other)))
    outer.put(key, create(INNER))
    assert len(outer.inner_maps()) == 1
