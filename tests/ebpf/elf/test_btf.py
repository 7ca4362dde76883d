import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowshunt_ebpf.elf import Btf, Kind, ObjectError, load_object, read_btf

STRINGS = b"\0int\0pair\0a\0b\0color\0RED\0BIG\0.data\0x\0"
NAME = {name.decode(): STRINGS.index(b"\0" + name + b"\0") + 1 for name in STRINGS.strip(b"\0").split(b"\0")}


def record(name: str, kind: int, reference: int, *rest: int, count: int = 0, flag: int = 0, order: str = "<") -> bytes:
    """A type: name, kind, size or type, then what follows it."""
    head = struct.pack(order + "III", NAME.get(name, 0), flag << 31 | kind << 24 | count, reference)
    return head + b"".join(struct.pack(order + "I", word & 0xFFFFFFFF) for word in rest)


def blob(*records: bytes, strings: bytes = STRINGS, order: str = "<") -> bytes:
    types = b"".join(records)
    return struct.pack(order + "HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings)) + types + strings


SAMPLE = (
    record("int", 1, 4, 1 << 24 | 32),  # 1: int
    record("pair", 4, 8, NAME["a"], 1, 0, NAME["b"], 1, 5 << 24 | 32, count=2, flag=1),  # 2: struct pair, b: 5 bits
    record("", 2, 2),  # 3: struct pair *
    record("", 3, 0, 2, 1, 6),  # 4: struct pair[6]
    record("color", 6, 4, NAME["RED"], -1, count=1, flag=1),  # 5: enum color { RED = -1 }
    record("color", 19, 8, NAME["BIG"], 1, 2, count=1),  # 6: enum color { BIG = 2^33 + 1 }
    record("x", 14, 4, 1),  # 7: a variable: struct pair x[6]
    record(".data", 15, 0, 7, 0, 48, count=1),  # 8
    record("", 13, 1, NAME["a"], 3, count=1),  # 9: int (struct pair *a)
    record("x", 8, 10),  # 10: a typedef of itself
)


@pytest.fixture
def btf() -> Btf:
    return Btf(blob(*SAMPLE), "sample")


def test_types_by_number(btf):
    assert len(btf) == 11
    assert (btf.type(1).kind, btf.type(1).name, btf.type(1).size, btf.type(1).encoding) == (Kind.INT, "int", 4, 1)
    pair = btf.type(2)
    assert [(m.name, m.type, m.offset, m.bits) for m in pair.members] == [("a", 1, 0, 0), ("b", 1, 32, 5)]
    assert (btf.type(4).type, btf.type(4).length) == (2, 6)
    assert [(m.name, m.value) for m in btf.type(5).members] == [("RED", -1)]
    assert [(m.name, m.value) for m in btf.type(6).members] == [("BIG", (1 << 33) + 1)]
    assert [(m.type, m.bits) for m in btf.type(8).members] == [(7, 48)]
    assert [(m.name, m.type) for m in btf.type(9).members] == [("a", 3)]
    assert btf.type(0).kind is Kind.VOID


def test_types_by_name(btf):
    assert btf.find("pair").id == 2
    assert btf.find("color", Kind.ENUM64).id == 6
    assert btf.find("x", Kind.VAR).id == 7
    assert btf.find("nobody") is None


def test_sizes(btf):
    assert [btf.size_of(n) for n in (1, 2, 3, 4, 6, 7)] == [4, 8, 8, 48, 8, 48]
    with pytest.raises(ObjectError, match="has no size"):
        btf.size_of(9)


def test_big_endian_reads_alike():
    other = Btf(blob(record("int", 1, 4, 1 << 24 | 32, order=">"), order=">"), "big")
    assert other.type(1).size == 4
    assert other.type(1).name == "int"


def test_a_circle_of_typedefs_ends(btf):
    with pytest.raises(ObjectError, match="round in a circle"):
        btf.strip(10)


def test_an_array_of_arrays_of_2_to_the_64_bytes_is_refused():
    huge = [record("int", 1, 4, 1 << 24 | 32)] + [record("", 3, 0, n, 1, 0xFFFFFFFF) for n in range(1, 5)]
    with pytest.raises(ObjectError, match="4 GiB"):
        Btf(blob(*huge), "huge").size_of(5)


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"", "shorter than its header"),
        (bytes(24), "magic"),
        (blob(record("int", 31, 4)), "unknown kind 31"),
        (blob(record("int", 1, 4)), "ends inside it"),
        (blob(strings=b"abc\0"), "do not start and end"),
        (blob(strings=b"\0abc"), "do not start and end"),
    ],
)
def test_broken_blobs_are_refused(raw, what):
    with pytest.raises(ObjectError, match=what):
        Btf(raw, "broken").type(1)


def test_a_type_that_is_not_there(btf):
    with pytest.raises(ObjectError, match="10 is the last"):
        btf.type(11)
    with pytest.raises(ObjectError, match="no such type"):
        btf.type(-1)


def test_a_string_that_is_not_there(btf):
    with pytest.raises(ObjectError, match="lies outside"):
        btf.string(4000)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(24, len(blob(*SAMPLE)) - 1), st.integers(0, 255)), max_size=6))
def test_any_damage_is_refused_or_harmless(changes):
    raw = bytearray(blob(*SAMPLE))
    for at, value in changes:
        raw[at] = value
    try:
        damaged = Btf(bytes(raw), "damaged")
        for number in range(len(damaged)):
            damaged.size_of(damaged.strip(number).id)
    except ObjectError:
        pass


def test_from_an_elf_file(objects):
    path = objects / "load_balancer.o"
    assert read_btf(path.read_bytes(), str(path)).find("service_key", Kind.STRUCT).size == 8
    with pytest.raises(ObjectError, match=r"no section \.BTF"):
        read_btf(b"\x7fELF" + bytes(100), "other")


def test_every_type_of_an_object_is_read(objects):
    btf = load_object(objects / "connection_tracker.o").btf
    kinds = {btf.type(n).kind for n in range(len(btf))}
    assert {Kind.INT, Kind.PTR, Kind.ARRAY, Kind.STRUCT, Kind.FUNC, Kind.FUNC_PROTO, Kind.VAR, Kind.DATASEC} <= kinds
    assert [m.name for m in btf.find("totals", Kind.STRUCT).members] == ["lock", "open", "opened", "ended", "refused"]


@pytest.mark.parametrize("name", ["load_balancer", "loader/features.clang11", "loader/externs"])
def test_what_the_compiler_left_out_is_filled_in(objects, name):
    """Every section has its size, and its variables lie in it, one behind the other; nothing is extern."""
    held = load_object(objects / f"{name}.o", settings={"LINUX_KERNEL_VERSION": 1, "CONFIG_HZ": 1})
    complete = Btf(held.program(held.names[0]).btf, "complete")
    assert len(complete.raw) == len(held.btf.raw)
    for type_ in map(complete.type, range(len(complete))):
        if type_.kind is Kind.DATASEC:
            ends = 0
            for member in type_.members:
                assert member.offset >= ends
                ends = member.offset + member.bits
            assert 0 < ends <= type_.size
        elif type_.kind in (Kind.VAR, Kind.FUNC):
            assert type_.encoding != 2
