"""Objects that lie: each is refused with a reason and a place, and none does harm."""

import struct
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowshunt.errors import InputError
from flowshunt_ebpf.asm import disassemble
from flowshunt_ebpf.elf import Btf, ObjectError, load_object
from flowshunt_ebpf.elf.reader import read_elf
from flowshunt_ebpf.program import control_flow, liveness

HEADER, SECTION, SYMBOL, RELOCATION = 64, 64, 24, 16
FIELDS = {"name": 0, "type": 4, "flags": 8, "offset": 24, "size": 32, "link": 40, "info": 44, "entry": 56}


class Forger:
    """A sound object, and the means to change one field of it."""

    def __init__(self, raw: bytes) -> None:
        self.raw = bytearray(raw)
        self.elf = read_elf(raw, "sound.o")
        (self.table,) = struct.unpack_from("<Q", raw, 40)

    def section(self, name: str, field: str, value: int, code: str = "") -> None:
        index = self.elf.section(name).index
        wide = field in ("flags", "offset", "size", "entry")
        struct.pack_into("<" + (code or ("Q" if wide else "I")), self.raw, self.place(index) + FIELDS[field], value)

    def place(self, index: int) -> int:
        return self.table + index * SECTION

    def offset(self, name: str) -> int:
        return struct.unpack_from("<Q", self.raw, self.place(self.elf.section(name).index) + FIELDS["offset"])[0]

    def symbol(self, name: str) -> int:
        index = next(s.index for s in self.elf.symbols if s.name == name)
        return self.offset(".symtab") + index * SYMBOL

    def put(self, code: str, at: int, value: int) -> None:
        struct.pack_into("<" + code, self.raw, at, value)


@pytest.fixture(scope="session")
def sound(objects) -> bytes:
    return (objects / "loader" / "features.clang14.o").read_bytes()


@pytest.fixture
def forger(sound) -> Forger:
    return Forger(sound)


def use(raw: bytes) -> None:
    """All that a user may do with an object."""
    held = load_object(bytes(raw), file="forged.o", settings={"LINUX_KERNEL_VERSION": 1})
    for name in held.names:
        program = held.program(name)
        disassemble(program)
        liveness(control_flow(program))


FORGERIES = {
    "not ELF": (lambda f: f.put("I", 0, 0), "no ELF file"),
    "32 bits": (lambda f: f.put("B", 4, 1), "no 64-bit ELF file"),
    "linked": (lambda f: f.put("H", 16, 2), "ELF type 2, not 1"),
    "another machine": (lambda f: f.put("H", 18, 62), "machine 62, not eBPF"),
    "section headers of another size": (lambda f: f.put("H", 58, 40), "headers have 40 bytes"),
    "section table behind the end": (lambda f: f.put("Q", 40, 1 << 40), "section table: lies outside"),
    "section table near 2^64": (lambda f: f.put("Q", 40, (1 << 64) - 32), "section table: lies outside"),
    "too many sections": (lambda f: f.put("H", 60, 0xFF00), "sections do not fit"),
    "a section count of 2^64": (
        lambda f: (f.put("H", 60, 0), f.put("Q", f.place(0) + FIELDS["size"], (1 << 64) - 1)),
        "sections do not fit",
    ),
    "names in a section that is not there": (lambda f: f.put("H", 62, 0xFE00), "names stand in section 65024"),
    "4 GB of code": (lambda f: f.section("xdp/first", "size", 1 << 32), "lie outside the file"),
    "code near 2^64": (lambda f: f.section("xdp/first", "offset", (1 << 64) - 8), "lie outside the file"),
    "4 GB of zeros": (lambda f: f.section(".bss", "size", 1 << 32), "claims 4294967296 bytes"),
    "2^63 zeros": (lambda f: f.section(".bss", "size", 1 << 63), "claims 9223372036854775808 bytes"),
    "sections that overlap": (
        lambda f: f.section("tc/ingress", "offset", f.offset("xdp/first") + 8),
        "overlaps section",
    ),
    "a section over the header": (lambda f: f.section("xdp/first", "offset", 0), "overlaps the ELF header"),
    "a name outside its table": (lambda f: f.section("license", "name", 1 << 30), "name lies outside its string table"),
    "symbols of another size": (lambda f: f.section(".symtab", "entry", 16), "entries have 16 bytes"),
    "symbols without names": (lambda f: f.section(".symtab", "link", 1 << 20), "has no string table"),
    "symbols whose names are themselves": (
        lambda f: f.section(".symtab", "link", f.elf.section(".symtab").index),
        "has no string table",
    ),
    "a symbol in no section": (lambda f: f.put("H", f.symbol("count") + 6, 0x7000), "stands in section 28672"),
    "a symbol behind its section": (
        lambda f: f.put("Q", f.symbol("count") + 8, 1 << 20),
        "lie outside section xdp/first",
    ),
    "a symbol of 2^64 bytes": (lambda f: f.put("Q", f.symbol("count") + 16, (1 << 64) - 8), "lie outside section"),
    "a common symbol": (lambda f: f.put("H", f.symbol("count") + 6, 0xFFF2), "is common"),
    "a function of half a slot": (lambda f: f.put("Q", f.symbol("count") + 16, 12), "no whole slots"),
    "functions that overlap": (lambda f: f.put("Q", f.symbol("look") + 8, 8), "overlaps another function"),
    "relocations of another size": (lambda f: f.section(".relxdp/first", "entry", 24), "entries have 24 bytes, not 16"),
    "relocations of no section": (lambda f: f.section(".relxdp/first", "info", 0), "fills in section 0"),
    "a relocation behind the code": (
        lambda f: f.put("Q", f.offset(".relxdp/first"), 1 << 32),
        "byte 4294967296 lies outside section xdp/first",
    ),
    "a relocation of no symbol": (
        lambda f: f.put("I", f.offset(".relxdp/first") + 12, 1 << 20),
        "names symbol 1048576",
    ),
    "a relocation between instructions": (
        lambda f: f.put("Q", f.offset(".relxdp/first"), 3),
        "is not at an instruction",
    ),
    "a relocation of another kind": (lambda f: f.put("I", f.offset(".relxdp/first") + 8, 3), "R_BPF_64_ABS32"),
    "code of half a slot": (lambda f: f.section("tc/ingress", "size", 20), "tc/ingress"),
    "BTF without its magic": (lambda f: f.put("H", f.offset(".BTF"), 0), "magic"),
    "BTF types outside it": (lambda f: f.put("I", f.offset(".BTF") + 12, 1 << 31), "types lie outside it"),
    "BTF strings outside it": (lambda f: f.put("I", f.offset(".BTF") + 16, 1 << 31), "strings lie outside it"),
    "BTF that ends inside a type": (lambda f: f.put("I", f.offset(".BTF") + 12, 40), "ends inside it"),
    "source lines outside their table": (
        lambda f: f.put("I", f.offset(".BTF.ext") + 20, 1 << 31),
        "lines lie outside it",
    ),
    "records of no size": (lambda f: f.put("I", f.offset(".BTF.ext") + 32, 0), "records of 0 bytes"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_field_is_refused_with_its_place(forger, name):
    forge, what = FORGERIES[name]
    forge(forger)
    with pytest.raises(ObjectError) as caught:
        use(forger.raw)
    assert what in str(caught.value)
    assert str(caught.value).startswith("forged.o")


def test_the_sound_object_is_used(sound):
    use(sound)


def test_one_broken_program_does_not_stop_the_others(forger):
    """A relocation that can't be filled in is told with section, symbol and kind, when its program is asked for."""
    forger.put("I", forger.offset(".reltc/ingress") + 8, 2)
    held = load_object(bytes(forger.raw), file="forged.o")
    assert len(held.program("count")) > 20
    with pytest.raises(ObjectError, match=r"section tc/ingress, relocation R_BPF_64_ABS64 at byte \d+, symbol pinned"):
        held.program("shape")


def test_a_call_into_the_middle_of_a_function(forger):
    """The distance of the call to a static function, which is named by section and distance."""
    code = forger.offset(".text")
    for at in range(code, code + forger.elf.section(".text").size, 8):
        if forger.raw[at] == 0x85:
            forger.put("i", at + 4, 1)
    with pytest.raises(ObjectError, match=r"no function starts at byte \d+ of section \.text"):
        use(forger.raw)


def test_a_data_section_that_holds_addresses_is_refused_where_it_is_used(forger):
    forger.section(".reltc/ingress", "info", forger.elf.section(".rodata").index)
    forger.put("Q", forger.offset(".reltc/ingress"), 0)
    forger.put("Q", forger.offset(".reltc/ingress") + RELOCATION, 0)
    with pytest.raises(ObjectError, match=r"points into section \.rodata, which itself holds addresses"):
        load_object(bytes(forger.raw), file="forged.o").program("count")


def test_names_that_would_steer_a_terminal_are_refused(forger, sound):
    at = sound.index(b"Dual BSD/GPL")
    forger.raw[at : at + 4] = b"\x1b[2J"
    with pytest.raises(ObjectError, match="can't be printed"):
        use(forger.raw)
    forger = Forger(sound)
    at = sound.index(b"\0pinned\0", forger.offset(".strtab"))
    forger.raw[at + 1 : at + 4] = b"\x1b[H"
    with pytest.raises(ObjectError, match="can't be printed"):
        use(forger.raw)


def test_a_typedef_that_is_itself_ends(forger):
    """Every type that refers to another is made to refer to itself."""
    start = forger.offset(".BTF")
    _, type_offset, type_bytes = struct.unpack_from("<III", forger.raw, start + 4)
    at, number = start + 24 + type_offset, 1
    trailing = {1: (4, 0), 3: (12, 0), 4: (0, 12), 5: (0, 12), 6: (0, 8), 13: (0, 8), 14: (4, 0), 15: (0, 12)}
    while at < start + 24 + type_offset + type_bytes:
        (info,) = struct.unpack_from("<I", forger.raw, at + 4)
        kind = info >> 24 & 31
        if kind in (2, 8, 9, 10, 11):
            forger.put("I", at + 8, number)
        if kind == 3:
            forger.put("I", at + 12, number)
        fixed, each = trailing.get(kind, (0, 0))
        at += 12 + fixed + each * (info & 0xFFFF)
        number += 1
    with pytest.raises(ObjectError):
        use(forger.raw)


@pytest.mark.parametrize("length", [0, 3, 16, 63, 64, 100, 1000, 4000, 8000])
def test_a_file_that_ends_early_is_refused(sound, length):
    with pytest.raises(ObjectError):
        use(sound[:length])


SOURCES = ("loader/features.clang14.o", "loader/core.o", "loader/externs.o", "loader/legacy_maps.o", "load_balancer.o")


@pytest.fixture(scope="session")
def samples(objects) -> list[bytes]:
    return [(objects / name).read_bytes() for name in SOURCES]


@pytest.fixture(scope="session")
def target(objects) -> Btf:
    return load_object(objects / "loader" / "core_target.o").btf


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_damage_is_refused_or_harmless(samples, target, data):
    raw = bytearray(data.draw(st.sampled_from(samples)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        width = data.draw(st.sampled_from((1, 1, 2, 4, 8)))
        value = data.draw(st.sampled_from((0, 1, 7, 8, 0x7F, 0xFF, 0xFFFF, 1 << 31, 0xFFFFFFFF, (1 << 64) - 8)))
        raw[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    started = time.process_time()
    try:
        held = load_object(bytes(raw), file="damaged.o", settings={"LINUX_KERNEL_VERSION": 1}, target=target)
    except ObjectError:
        return
    for name in held.names:
        try:
            program = held.program(name)
            disassemble(program)
            liveness(control_flow(program))
        except InputError:
            continue
    assert time.process_time() - started < 20, "damage must not cost more than the file is worth"
