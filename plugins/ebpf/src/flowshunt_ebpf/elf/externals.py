"""What an object needs from the kernel by name: functions, variables, and settings (`extern ... __kconfig`).

Kernel functions and variables are found in the target's BTF where there is one. Settings become a read-only map
`.kconfig`, filled from the running kernel or from what the caller gives.
"""

import gzip
import os
import struct
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

import attrs

from flowshunt_ebpf.elf.btf import ENUMS, Btf, Kind, Type
from flowshunt_ebpf.elf.error import ObjectError
from flowshunt_ebpf.program import MapDefinition, MapFlag, MapType

SETTINGS: Final = ".kconfig"
"""The section of settings, and the name of the map that holds them."""


@attrs.frozen
class Externals:
    """The externals of one object.

    Attributes:
        btf: the object's own BTF, which says the settings' types; None: it has none.
        target: the kernel's BTF; None: not known.
        settings: given values by name, such as {"CONFIG_HZ": "250"} or {"LINUX_KERNEL_VERSION": 0x60100}.
    """

    file: str
    btf: Btf | None
    target: Btf | None
    settings: Mapping[str, str | int]
    big_endian: bool = False
    _filled: dict[str, bytes] = attrs.field(factory=dict)

    def function(self, name: str) -> int | None:
        """The BTF id of a kernel function; None where it is not known."""
        found = self.target.find(_bare(name), Kind.FUNC) if self.target is not None else None
        return found.id if found is not None else None

    def variable(self, name: str) -> int | None:
        """The BTF id of a kernel variable, or of a function whose address is asked for; None where it is not known."""
        found = self.target.find(_bare(name), Kind.VAR, Kind.FUNC) if self.target is not None else None
        return found.id if found is not None else None

    @cached_property
    def _layout(self) -> dict[str, tuple[int, int, Type]]:
        """Setting to byte offset, bytes and type: in the order of their section, each aligned to its size."""
        layout: dict[str, tuple[int, int, Type]] = {}
        btf = self.btf
        section = btf.find(SETTINGS, Kind.DATASEC) if btf is not None else None
        at = 0
        if btf is None or section is None:
            return layout
        for member in section.members:
            variable = btf.type(member.type)
            type_ = btf.strip(variable.type)
            size = btf.size_of(variable.type)
            align = 1 if type_.kind is Kind.ARRAY else min(max(size, 1), 8)
            at = -(-at // align) * align
            layout[variable.name] = (at, size, type_)
            at += size
            if at > 1 << 16:
                raise ObjectError("has more than 64 KiB", f"{self.file}: section .kconfig", "name fewer settings")
        return layout

    def setting(self, name: str, where: str, *, weak: bool) -> int | None:
        """The byte offset of a setting in the map `.kconfig`; None where the name is no setting.

        Raises ObjectError where the setting has no value and is not weak, or its value does not fit its type.
        """
        if name not in self._layout:
            return None
        at, size, type_ = self._layout[name]
        if name not in self._filled:
            value = self._value(name)
            if value is None and not weak:
                raise ObjectError(f"the setting {name} has no value", where, "give one, or declare it __weak")
            self._filled[name] = b"" if value is None else self._encode(name, value, size, type_, where)
        return at

    def settings_map(self) -> MapDefinition:
        """The map `.kconfig`, with the settings that have been asked for so far."""
        size = max((at + size for at, size, _ in self._layout.values()), default=0)
        contents = bytearray(size)
        for name, value in self._filled.items():
            at = self._layout[name][0]
            contents[at : at + len(value)] = value
        return MapDefinition(SETTINGS, MapType.ARRAY, 4, size, 1, MapFlag.RDONLY_PROG, contents=bytes(contents))

    def _value(self, name: str) -> str | int | None:
        if name in self.settings:
            return self.settings[name]
        if name == "LINUX_KERNEL_VERSION":
            return _kernel_version(os.uname().release)
        if name.startswith("CONFIG_"):
            return _kernel_settings().get(name)
        return None

    def _encode(self, name: str, value: str | int, size: int, type_: Type, where: str) -> bytes:
        order = ">" if self.big_endian else "<"
        if isinstance(value, str) and value.startswith('"'):
            text = value.strip('"').encode()
            if type_.kind is not Kind.ARRAY or not size:
                raise ObjectError(f"the setting {name} is text, its type is not", where, "declare it as char[]")
            return text[: size - 1].ljust(size, b"\0")
        number = {"y": 1, "n": 0, "m": 2}.get(value) if isinstance(value, str) else value
        if number is None and isinstance(value, str):
            try:
                number = int(value, 0)
            except ValueError:
                raise ObjectError(f"the setting {name} is {value!r}, no number", where, "give a number") from None
        assert number is not None
        if type_.kind is Kind.INT and type_.encoding & 2:  # char: the letter itself
            return str(value)[:1].encode().ljust(size, b"\0")
        if type_.kind not in (Kind.INT, *ENUMS) or size not in (1, 2, 4, 8):
            raise ObjectError(f"the setting {name} is a number, its type is not", where, "declare it as an integer")
        if not -(1 << (8 * size - 1)) <= number < 1 << 8 * size:
            raise ObjectError(f"the setting {name} is {number}, too large for {size} bytes", where, "widen its type")
        return struct.pack(order + "Q", number & (1 << 64) - 1)[-size if self.big_endian else 0 :][:size]


def _bare(name: str) -> str:
    """A symbol without the suffix that separates flavors of one kernel function."""
    return name.split("___", maxsplit=1)[0]


def _kernel_version(release: str) -> int:
    """KERNEL_VERSION(a, b, c) of a release such as 6.1.0-13-amd64."""
    parts = release.split("-", maxsplit=1)[0].split(".")
    numbers = [int(p) if p.isdigit() else 0 for p in (*parts, "0", "0")][:3]
    return numbers[0] << 16 | numbers[1] << 8 | min(numbers[2], 255)


def _kernel_settings() -> dict[str, str]:
    """The running kernel's configuration; empty where it can't be read."""
    release = os.uname().release
    for place in (Path("/proc/config.gz"), Path(f"/boot/config-{release}"), Path(f"/lib/modules/{release}/config")):
        try:
            raw = place.read_bytes()
        except OSError:
            continue
        text = (gzip.decompress(raw) if place.suffix == ".gz" else raw).decode("utf-8", "replace")
        rows = (line.split("=", 1) for line in text.splitlines() if line.startswith("CONFIG_") and "=" in line)
        return dict(rows)
    return {}
