"""eBPF objects: what a compiler's output holds, and its programs, linked when they are asked for."""

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from flowshunt_ebpf.elf.btf import Btf, read_btf
from flowshunt_ebpf.elf.btf_ext import BtfExt, read_btf_ext
from flowshunt_ebpf.elf.complete_btf import complete_btf
from flowshunt_ebpf.elf.core_relocate import CoreRelocator
from flowshunt_ebpf.elf.error import ObjectError
from flowshunt_ebpf.elf.externals import Externals
from flowshunt_ebpf.elf.functions import CodeFunction, code_functions
from flowshunt_ebpf.elf.link import Linker
from flowshunt_ebpf.elf.map_section import maps_of
from flowshunt_ebpf.elf.reader import EM_BPF, EM_NONE, LIMIT, STB_LOCAL, Elf, read_elf
from flowshunt_ebpf.program import MapDefinition, Program

KERNEL_BTF: Final = Path("/sys/kernel/btf/vmlinux")


@attrs.frozen
class Object:
    """An object.

    Attributes:
        file: its name.
        license: what its section `license` says; empty: nothing.
        version: what its section `version` says; 0: nothing.
        maps: by name, in the order of the file; data sections among them.
        btf: its own types; None: it has none.
    """

    file: str
    license: str
    version: int
    maps: Mapping[str, MapDefinition]
    btf: Btf | None
    _linker: Linker = attrs.field(repr=False)
    _mains: Mapping[str, CodeFunction] = attrs.field(repr=False)
    _linked: dict[str, Program] = attrs.field(factory=dict, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The programs' names, in the order of the file."""
        return tuple(self._mains)

    def section_of(self, name: str) -> str:
        """The section that a program stands in. Raises ObjectError where there is none of the name."""
        return self._linker.elf.sections[self._main(name).section].name

    def program(self, name: str | None = None) -> Program:
        """A program by its function's name, or by its section's where only one stands there; the only one for None.

        Raises ObjectError where there is no such program, or where it can't be linked: which section, symbol and
        relocation, and why.
        """
        main = self._main(name)
        key = main.symbol.name
        if key not in self._linked:
            self._linked[key] = self._linker.program(main)
        return self._linked[key]

    @property
    def programs(self) -> dict[str, Program]:
        """All programs by name. Raises ObjectError for the first that can't be linked."""
        return {name: self.program(name) for name in self._mains}

    def _main(self, name: str | None) -> CodeFunction:
        mains = self._mains
        known = f"it has {', '.join(mains)}" if mains else "it has none"
        if name is None:
            if len(mains) != 1:
                raise ObjectError(f"has {len(mains)} programs", self.file, f"name one: {known}" if mains else known)
            return next(iter(mains.values()))
        if name in mains:
            return mains[name]
        there = [f for f in mains.values() if self._linker.elf.sections[f.section].name == name]
        if len(there) != 1:
            what = f"section {name} has {len(there)} programs" if there else f"has no program {name}"
            raise ObjectError(what, self.file, known)
        return there[0]


def load_object(
    source: str | os.PathLike[str] | bytes,
    *,
    target: Btf | None = None,
    settings: Mapping[str, str | int] | None = None,
    file: str | None = None,
) -> Object:
    """Open an object.

    Arguments:
        source: a path, or the file's bytes.
        target: the BTF that CO-RE relocations, kernel functions and variables are looked up in; None: the running
            kernel's, opened only where the object needs it.
        settings: values of `__kconfig` variables; those of the running kernel serve where none is given.
        file: the name in messages; the path where it is None.

    Raises ObjectError for what is not an eBPF object or is broken, naming section and symbol. Programs are linked when
    they are asked for, so that one which can't be does not stand in the way of the others.
    """
    data, name = _bytes_of(source, file)
    elf = read_elf(data, name)
    if elf.machine not in (EM_BPF, EM_NONE):
        raise ObjectError(f"is for machine {elf.machine}, not eBPF ({EM_BPF})", name, "compile with clang -target bpf")
    btf = _btf(elf)
    ext = _btf_ext(elf, btf)
    maps = maps_of(elf, btf)
    functions = code_functions(elf)
    mains = _mains(elf, functions)
    no_target = "give a target's BTF (--btf FILE)"
    if target is None and _needs_target(elf, ext):
        target = kernel_btf()
        no_target += f"; {KERNEL_BTF} is not here" if target is None else ""
    relocator = None
    if btf is not None and target is not None:
        relocator = CoreRelocator(btf, target, big_endian=elf.big_endian)
    license_ = _license(elf)
    linker = Linker(
        elf,
        btf,
        ext,
        maps,
        functions,
        license_,
        Externals(name, btf, target, settings or {}, elf.big_endian),
        relocator,
        no_target,
        complete_btf(elf, btf),
    )
    return Object(name, license_, _version(elf), {m.name: m for m in maps.values()}, btf, linker, mains)


def kernel_btf() -> Btf | None:
    """The running kernel's BTF; None where it can't be read."""
    try:
        return read_btf(KERNEL_BTF.read_bytes(), str(KERNEL_BTF))
    except OSError:
        return None


def _bytes_of(source: str | os.PathLike[str] | bytes, file: str | None) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, file or "object"
    path = Path(source)
    try:
        with path.open("rb") as stream:
            return stream.read(LIMIT + 1), file or str(path)
    except OSError as error:
        raise ObjectError(f"can't be read: {error.strerror}", str(path), "check the path") from None


def _btf(elf: Elf) -> Btf | None:
    section = elf.section(".BTF")
    return Btf(bytes(section.data), elf.file) if section is not None and section.size else None


def _btf_ext(elf: Elf, btf: Btf | None) -> BtfExt | None:
    section = elf.section(".BTF.ext")
    if section is None or btf is None or not section.size:
        return None
    return read_btf_ext(section.data, btf, elf.file)


def _needs_target(elf: Elf, ext: BtfExt | None) -> bool:
    """Whether anything in the object is to be looked up in a kernel's BTF."""
    undefined = any(s.name and not s.section for s in elf.symbols)
    return undefined or (ext is not None and any(ext.relocations.values()))


def _mains(elf: Elf, functions: Mapping[tuple[int, int], CodeFunction]) -> dict[str, CodeFunction]:
    """Programs: the global functions of every section but .text, or of .text where no other section has code.

    A section that has static functions only gives those.
    """
    sections: dict[int, list[CodeFunction]] = {}
    for function in functions.values():
        sections.setdefault(function.section, []).append(function)
    if any(elf.sections[index].name != ".text" for index in sections):
        sections = {index: f for index, f in sections.items() if elf.sections[index].name != ".text"}
    mains: dict[str, CodeFunction] = {}
    for found in sections.values():
        for function in [f for f in found if f.symbol.binding != STB_LOCAL] or found:
            mains.setdefault(function.symbol.name, function)
    return mains


def _license(elf: Elf) -> str:
    section = elf.section("license")
    if section is None:
        return ""
    text = bytes(section.data[:128]).split(b"\0")[0].decode("ascii", "replace")
    if not text.isprintable():
        raise ObjectError("holds characters that can't be printed", f"{elf.file}: section license", 'such as "GPL"')
    return text


def _version(elf: Elf) -> int:
    section = elf.section("version")
    if section is None or len(section.data) < 4:
        return 0
    (version,) = struct.unpack_from(">I" if elf.big_endian else "<I", section.data)
    return int(version)
