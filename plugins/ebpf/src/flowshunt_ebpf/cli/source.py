"""What `asm`, `disasm` and `info` read: an object, a text in either form, or bare instructions."""

import re
import sys
from pathlib import Path
from typing import BinaryIO, Final

from flowshunt.errors import InputError
from flowshunt_ebpf.asm import Form, assemble
from flowshunt_ebpf.elf import Btf, Object, load_object, read_btf
from flowshunt_ebpf.program import Program

_ELF: Final = b"\x7fELF"
_HEX: Final = re.compile(rb"(?:0[xX])?[0-9a-fA-F]{2}(?:[\s,]*(?:0[xX])?[0-9a-fA-F]{2})*\s*")
MOST_BYTES: Final = 1 << 26


def read_file(file: str, way_out: str) -> bytes:
    """The bytes of a file. Raises InputError, with this way out, where there is none, or none to read as a whole."""
    path = Path(file)
    if not path.exists():
        raise InputError("there is no such file", file, way_out)
    if not path.is_file():
        raise InputError("is a folder" if path.is_dir() else "is no regular file", file, way_out)
    with path.open("rb") as stream:
        return _bounded(stream, file)


def read_bytes(file: str) -> bytes:
    """A file's bytes; "-": of standard input. Raises InputError."""
    if file == "-":
        return _bounded(sys.stdin.buffer, file)
    return read_file(file, "give an eBPF object, a text, or bare instructions; - is standard input")


def _bounded(stream: BinaryIO, file: str) -> bytes:
    data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InputError(f"has more than {MOST_BYTES >> 20} MiB", file, "give a smaller one")
    return data


def read_text(file: str) -> str:
    """A file as text. Raises InputError where it is none."""
    data = read_bytes(file)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is no text", file, "give assembly text") from None


def read_program(file: str, name: str | None, form: Form | None, btf: str | None) -> Program:
    """A program out of an object, a text, or bare instructions (bytes, or hexadecimal).

    `name` chooses one of an object's programs. Raises InputError.
    """
    data = read_bytes(file)
    if data[:4] == _ELF:
        return load_object(data, file=file, target=read_target(btf)).program(name)
    if name is not None:
        raise InputError("is no object, so it has no programs to choose from", file, "leave out --program")
    if form is None and data.strip() and _HEX.fullmatch(data.strip()):
        digits = re.sub(rb"0[xX]|[\s,]", b"", data).decode()
        return Program.from_bytes(bytes.fromhex(digits))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Program.from_bytes(data)
    if "\0" in text:
        return Program.from_bytes(data)
    return assemble(text, form=form, file=file)


def read_object(file: str, btf: str | None) -> Object | None:
    """An object; None where the file is something else."""
    data = read_bytes(file)
    return load_object(data, file=file, target=read_target(btf)) if data[:4] == _ELF else None


def read_target(btf: str | None) -> Btf | None:
    """The types that an object is relocated against, from a file; None: not given."""
    if btf is None:
        return None
    return read_btf(read_file(btf, "give a file with BTF, such as /sys/kernel/btf/vmlinux"), btf)
