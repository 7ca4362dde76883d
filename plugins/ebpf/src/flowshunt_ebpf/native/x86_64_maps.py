"""Lookups in hash tables on x86-64, written out for one map: its key size, mask and addresses are constants.

The same as `maps.native_hash.lookup`, which other architectures and unverified programs call; a test holds them equal.
"""

from typing import Final

from flowshunt_ebpf.maps.header import NODE_HASH, NODE_KEY, SEED
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.maps.tables import HashMap
from flowshunt_ebpf.native import state
from flowshunt_ebpf.program import MapType

_MULTIPLIER: Final = 0x9E3779B97F4A7C15
_MASK64: Final = (1 << 64) - 1
_MOST_KEY_BYTES: Final = 64

TYPES: Final = frozenset({MapType.HASH, MapType.PERCPU_HASH, MapType.LRU_HASH, MapType.LRU_PERCPU_HASH})


def written_out(m: Map | None) -> bool:
    """Whether there is a routine for lookups in a map."""
    return m is not None and m.definition.type in TYPES and m.definition.key_size <= _MOST_KEY_BYTES


def _pieces(size: int) -> list[tuple[int, int]]:
    """A key in pieces of 8, 4 and 1 bytes: (offset, size), as the hash function takes them."""
    pieces = [(at, 8) for at in range(0, size - 7, 8)]
    at = size & ~7
    if size - at >= 4:
        pieces.append((at, 4))
        at += 4
    return pieces + [(byte, 1) for byte in range(at, size)]


_LOAD: Final = {8: "mov r10, qword ptr", 4: "mov r10d, dword ptr", 1: "movzx r10d, byte ptr"}
_COMPARE: Final = {8: ("r11", "qword"), 4: ("r11d", "dword"), 1: ("r11b", "byte")}


def lookup_routine(label: str, m: Map) -> list[str]:
    """A routine that takes the key's address in rsi and gives the value's in rax, 0 for none. Changes r9 to r11."""
    assert isinstance(m, HashMap)
    size = m.definition.key_size
    pieces = _pieces(size)
    start = (m.get32(SEED) * _MULTIPLIER + size) & _MASK64
    buckets = m.memory.addresses[2]
    lines = [f"{label}:", f"mov rax, {start}", f"mov r11, {_MULTIPLIER}"]
    for offset, width in pieces:
        lines += [f"{_LOAD[width]} [rsi+{offset}]", "xor rax, r10", "imul rax, r11"]
        lines += ["mov r10, rax", "shr r10, 32", "xor rax, r10"]
    lines += ["imul rax, r11", "shr rax, 32"]  # the hash
    lines += ["mov r10d, eax", f"and r10d, {m.buckets - 1}", f"mov r9, {buckets}", "mov r10d, dword ptr [r9+r10*4]"]
    lines += [f"mov r9, {m.values_address - m.stride}", "test r10d, r10d", f"je {label}_none"]
    lines += [f"{label}_node:", f"imul r10, r10, {m.stride}", "add r10, r9"]
    lines += [f"cmp eax, dword ptr [r10+{NODE_HASH}]", f"jne {label}_next"]
    for offset, width in pieces:
        register, name = _COMPARE[width]
        lines += [f"mov {register}, {name} ptr [rsi+{offset}]", f"cmp {register}, {name} ptr [r10+{NODE_KEY + offset}]"]
        lines.append(f"jne {label}_next")
    if m.lru:
        lines.append(f"mov byte ptr [r10+{m.stride - 8}], 1")
    if m.cpus > 1:
        lines += [f"mov eax, dword ptr [r12+{state.CPU}]", f"imul rax, rax, {m.value_stride}", "add r10, rax"]
    lines += [f"lea rax, [r10+{m.value_offset}]", "ret"]
    lines += [f"{label}_next:", "mov r10d, dword ptr [r10]", "test r10d, r10d", f"jne {label}_node"]
    return [*lines, f"{label}_none:", "xor eax, eax", "ret"]
