"""Maps against plain Python models, through the operations that programs and Python share."""

import struct
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowshunt.errors import InputError
from flowshunt_ebpf.maps.create import create
from flowshunt_ebpf.maps.map import EXIST, NO_EXIST
from flowshunt_ebpf.program import MapDefinition, MapFlag, MapType

HASHES = (MapType.HASH, MapType.PERCPU_HASH, MapType.LRU_HASH, MapType.LRU_PERCPU_HASH)


def key(number, size=4):
    return number.to_bytes(size, "little")


@pytest.mark.parametrize("kind", HASHES)
@pytest.mark.parametrize(("key_size", "value_size"), [(1, 1), (4, 8), (8, 3), (13, 9), (40, 64)])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_hash_table_is_a_dictionary(kind, key_size, value_size, data):
    m = create(MapDefinition("table", kind, key_size, value_size, 64))
    model = {}
    for step in range(data.draw(st.integers(1, 60))):
        chosen = bytes([data.draw(st.integers(0, 7))] * key_size)
        if data.draw(st.booleans()):
            model[chosen] = bytes([step]) * value_size
            m.update(chosen, model[chosen])
        else:
            assert m.delete(chosen) == (chosen in model)
            model.pop(chosen, None)
        assert m.lookup(chosen) == model.get(chosen)
    assert dict(m.items()) == model
    assert len(m) == len(model)


def test_update_flags():
    m = create(MapDefinition("table", MapType.HASH, 4, 4, 4))
    m.update(key(1), b"aaaa", NO_EXIST)
    with pytest.raises(InputError, match="there already"):
        m.update(key(1), b"bbbb", NO_EXIST)
    m.update(key(1), b"cccc", EXIST)
    with pytest.raises(InputError, match="no such key"):
        m.update(key(2), b"dddd", EXIST)
    with pytest.raises(InputError, match="not valid"):
        m.update(key(2), b"dddd", 9)
    assert dict(m.items()) == {key(1): b"cccc"}


def test_a_full_table_refuses_and_a_freed_place_serves_again():
    m = create(MapDefinition("table", MapType.HASH, 4, 4, 3))
    for number in range(3):
        m.update(key(number), b"xxxx")
    with pytest.raises(InputError, match="full"):
        m.update(key(3), b"xxxx")
    m.delete(key(1))
    m.update(key(3), b"yyyy")
    assert sorted(k for k, _ in m.items()) == [key(0), key(2), key(3)]


def test_a_full_lru_table_keeps_what_programs_use():
    m = create(MapDefinition("table", MapType.LRU_HASH, 4, 4, 8))
    for number in range(8):
        m.update(key(number), b"xxxx")
    for number in range(8, 40):
        m.update(key(number), b"xxxx")
        assert len(m) == 8
        assert m.lookup(key(number)) == b"xxxx"


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 32), st.integers(0, (1 << 32) - 1)), max_size=80),
    probes=st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=10),
)
def test_a_trie_finds_the_longest_prefix(steps, probes):
    m = create(MapDefinition("trie", MapType.LPM_TRIE, 8, 4, 64, flags=MapFlag.NO_PREALLOC))
    model = {}

    def masked(length, address):
        return length, address >> (32 - length) << (32 - length) if length else 0

    for number, (action, length, address) in enumerate(steps):
        prefix = masked(length, address & 0xC3000001)
        packed = struct.pack("<I", prefix[0]) + struct.pack(">I", prefix[1])
        if action:
            m.update(packed, key(number))
            model[prefix] = key(number)
        else:
            assert m.delete(packed) == (prefix in model)
            model.pop(prefix, None)
    assert {(struct.unpack("<I", k[:4])[0], struct.unpack(">I", k[4:])[0]): v for k, v in m.items()} == model
    for probe in probes:
        address = probe & 0xC3000001
        expected = next((model[masked(n, address)] for n in range(32, -1, -1) if masked(n, address) in model), None)
        assert m.lookup(struct.pack("<I", 32) + struct.pack(">I", address)) == expected


@pytest.mark.parametrize("size", [1, 3, 5, 16])
def test_a_trie_of_any_key_size(size):
    m = create(MapDefinition("trie", MapType.LPM_TRIE, 4 + size, 1, 300, flags=MapFlag.NO_PREALLOC))
    for number in range(250):
        m.update(struct.pack("<I", 8 * size) + bytes(size - 1) + bytes([number]), bytes([number]))
    m.update(struct.pack("<I", 0) + bytes(size), b"\xff")
    for number in range(256):
        found = m.lookup(struct.pack("<I", 8 * size) + bytes(size - 1) + bytes([number]))
        assert found == (bytes([number]) if number < 250 else b"\xff")


def test_a_trie_refuses_a_prefix_that_is_too_long():
    m = create(MapDefinition("trie", MapType.LPM_TRIE, 8, 4, 8, flags=MapFlag.NO_PREALLOC))
    with pytest.raises(InputError, match="not valid"):
        m.update(struct.pack("<I", 33) + bytes(4), b"xxxx")
    assert m.lookup(struct.pack("<I", 33) + bytes(4)) is None


@pytest.mark.parametrize(("kind", "last"), [(MapType.QUEUE, False), (MapType.STACK, True)])
@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.integers(0, 3), max_size=40))
def test_queues_and_stacks(kind, last, steps):
    m = create(MapDefinition("queue", kind, 0, 4, 5))
    model = []
    for number, step in enumerate(steps):
        if step == 3:
            m.push(key(number), EXIST)
            model = [*model, key(number)][-5:]
        elif step == 2 and len(model) < 5:
            m.push(key(number))
            model.append(key(number))
        elif step == 2:
            with pytest.raises(InputError, match="full"):
                m.push(key(number))
        elif step == 1:
            assert m.peek() == (model[-1 if last else 0] if model else None)
        else:
            assert m.pop() == (model.pop(-1 if last else 0) if model else None)
        assert len(m) == len(model)


def test_a_bloom_filter_forgets_nothing():
    m = create(MapDefinition("filter", MapType.BLOOM_FILTER, 0, 8, 1000, map_extra=3))
    for number in range(1000):
        m.push(key(number, 8))
    assert all(m.holds(key(number, 8)) for number in range(1000))
    assert sum(m.holds(key(number, 8)) for number in range(1000, 3000)) < 800


@pytest.mark.parametrize("kind", [MapType.ARRAY, MapType.HASH, MapType.LRU_HASH])
def test_bulk_access_is_the_same_as_one_by_one(kind):
    rng = np.random.default_rng(1)
    m = create(MapDefinition("table", kind, 4, 12, 100))
    keys = rng.permutation(100).astype("<u4")[:60]
    values = rng.integers(0, 256, (60, 12), dtype=np.uint8)
    m.write(keys, values)
    for number, value in zip(keys, values, strict=True):
        assert m.lookup(struct.pack("<I", number)) == value.tobytes()
    read_keys, read_values = m.read()
    found = {k.tobytes(): v.tobytes() for k, v in zip(read_keys, read_values, strict=True)}
    assert found == dict(m.items())


def test_bulk_write_stops_at_what_the_map_refuses():
    m = create(MapDefinition("table", MapType.HASH, 4, 4, 2))
    with pytest.raises(InputError, match="row 2"):
        m.write(np.arange(5, dtype="<u4"), np.arange(5, dtype="<u4"))
    assert len(m) == 2
    with pytest.raises(InputError, match="8 bytes"):
        m.write(np.arange(2, dtype="<u8"), np.arange(2, dtype="<u4"))
    array = create(MapDefinition("array", MapType.ARRAY, 4, 4, 2))
    with pytest.raises(InputError, match="below 2"):
        array.write(np.arange(3, dtype="<u4"), np.arange(3, dtype="<u4"))


@pytest.mark.parametrize("cpus", [1, 3])
@pytest.mark.parametrize("kind", [MapType.ARRAY, MapType.HASH, MapType.PERCPU_HASH, MapType.PERCPU_ARRAY])
def test_bulk_write_of_nothing_and_of_unequal_columns(kind, cpus):
    m = create(MapDefinition("table", kind, 4, 8, 4), cpus=cpus)
    before = dict(m.items())
    m.write(np.empty(0, "<u4"), np.empty(0, "<u8"))
    with pytest.raises(InputError, match="2 keys and 1 values"):
        m.write(np.zeros(2, "<u4"), np.zeros(1, "<u8"))
    assert dict(m.items()) == before


@pytest.mark.parametrize("kind", [MapType.PERCPU_HASH, MapType.PERCPU_ARRAY])
def test_values_of_each_cpu(kind):
    m = create(MapDefinition("counters", kind, 4, 4, 4), cpus=3)
    m.update(key(1), b"same")
    assert m.lookup(key(1)) == b"same" * 3
    m.update(key(1), b"one1two2tre3")
    assert m.lookup(key(1)) == b"one1two2tre3"
    _, values = m.read()
    assert values.shape[1:] == (3, 4)
    with pytest.raises(InputError, match="8 bytes"):
        m.update(key(1), bytes(8))


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (MapDefinition("m", MapType.SOCKMAP, 4, 4, 4), "not there in user space"),
        (MapDefinition("m", 999, 4, 4, 4), "999"),
        (MapDefinition("m", MapType.ARRAY, 8, 4, 4), "keys of arrays have 4"),
        (MapDefinition("m", MapType.ARRAY, 4, 0, 4), "no size"),
        (MapDefinition("m", MapType.HASH, 0, 4, 4), "no size"),
        (MapDefinition("m", MapType.HASH, 4, 4, 0), "no entry"),
        (MapDefinition("m", MapType.RINGBUF, 0, 0, 1000), "power of two"),
        (MapDefinition("m", MapType.QUEUE, 4, 4, 4), "keys"),
        (MapDefinition("m", MapType.LPM_TRIE, 4, 4, 4), "5 to 260"),
        (MapDefinition("m", MapType.ARRAY, 4, 1 << 20, 1 << 20), "GiB"),
    ],
)
def test_what_a_map_cannot_be(definition, message):
    with pytest.raises(InputError, match=message):
        create(definition)


def test_wrong_sizes_are_named():
    m = create(MapDefinition("m", MapType.HASH, 4, 4, 4))
    with pytest.raises(InputError, match="key of 3 bytes"):
        m.lookup(b"abc")
    with pytest.raises(InputError, match="value of 5 bytes"):
        m.update(b"abcd", b"12345")


def test_the_order_of_a_lru_table_is_that_of_its_hand():
    """Entries that were looked up by programs survive one round; Python's own lookups don't count as use."""
    m = create(MapDefinition("m", MapType.LRU_HASH, 4, 4, 4))
    model = OrderedDict()
    for number in range(4):
        m.update(key(number), b"xxxx")
        model[key(number)] = None
        m.lookup(key(0))
    m.update(key(9), b"xxxx")
    assert m.lookup(key(9)) == b"xxxx"
    assert len(m) == 4
