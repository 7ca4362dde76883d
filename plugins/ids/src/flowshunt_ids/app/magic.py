"""What a file seems to be by its first bytes, in libmagic's words, for the kinds that rules ask for."""

import re

_PE = b"PE\0\0"
_MACHINES = {0x014C: "Intel 80386", 0x8664: "x86-64", 0x01C0: "ARM", 0xAA64: "Aarch64"}
_SUBSYSTEMS = {1: "native", 2: "GUI", 3: "console"}

_BEGINS: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "PDF document, version "),
    (b"\x89PNG\r\n\x1a\n", "PNG image data"),
    (b"GIF87a", "GIF image data, version 87a"),
    (b"GIF89a", "GIF image data, version 89a"),
    (b"\xff\xd8\xff", "JPEG image data"),
    (b"BM", "PC bitmap"),
    (b"II*\0", "TIFF image data, little-endian"),
    (b"MM\0*", "TIFF image data, big-endian"),
    (b"PK\x03\x04", "Zip archive data, at least v2.0 to extract"),
    (b"PK\x05\x06", "Zip archive data (empty)"),
    (b"Rar!\x1a\x07\x01\0", "RAR archive data, v5"),
    (b"Rar!\x1a\x07\0", "RAR archive data, v4"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip archive data"),
    (b"\x1f\x8b", "gzip compressed data"),
    (b"BZh", "bzip2 compressed data"),
    (b"\xfd7zXZ\0", "XZ compressed data"),
    (b"MSCF", "Microsoft Cabinet archive data"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "Composite Document File V2 Document"),
    (b"{\\rtf", "Rich Text Format data"),
    (b"\xca\xfe\xba\xbe", "compiled Java class data"),
    (b"CWS", "Macromedia Flash data (compressed)"),
    (b"FWS", "Macromedia Flash data"),
    (b"ZWS", "Macromedia Flash data (lzma compressed)"),
    (b"\x7fELF\x01", "ELF 32-bit"),
    (b"\x7fELF\x02", "ELF 64-bit"),
    (b"OggS", "Ogg data"),
    (b"ID3", "Audio file with ID3"),
    (b"fLaC", "FLAC audio bitstream data"),
    (b"wOFF", "Web Open Font Format"),
    (b"wOF2", "Web Open Font Format (Version 2)"),
    (b"#!/bin/sh", "POSIX shell script, ASCII text executable"),
    (b"#!/bin/bash", "Bourne-Again shell script, ASCII text executable"),
    (b"<?php", "PHP script, ASCII text"),
    (b"From ", "mbox"),
)
_MARKUP = re.compile(rb"\s*<(?:!doctype\s+html|html|head|title|body|script)", re.IGNORECASE)
_TEXT = re.compile(rb"[\t\n\r\f\x08\x1b\x20-\x7e]*")


def describe(data: bytes) -> str:
    """The kind of a file; "data" where it is not known."""
    if not data:
        return "empty"
    if data.startswith(b"MZ"):
        return _executable(data)
    for begin, words in _BEGINS:
        if data.startswith(begin):
            if words.endswith("version "):
                return words + data[5:8].decode("latin-1")
            return words
    if data[:4] == b"RIFF":
        kind = data[8:12]
        return "RIFF (little-endian) data" + (", WAVE audio" if kind == b"WAVE" else ", AVI" if kind == b"AVI " else "")
    if data[4:8] == b"ftyp":
        return "ISO Media"
    if _MARKUP.match(data):
        return "HTML document, ASCII text"
    if data.lstrip()[:5].lower() == b"<?xml":
        return "XML document text" if b"<svg" not in data[:512] else "SVG Scalable Vector Graphics image"
    if _TEXT.fullmatch(data):
        return "ASCII text" + (", with CRLF line terminators" if b"\r\n" in data else "")
    try:
        data.decode()
    except UnicodeDecodeError as problem:
        if problem.start < len(data) - 3 or problem.reason != "unexpected end of data":
            return "data"
    return "UTF-8 Unicode text" if b"\0" not in data else "data"


def _executable(data: bytes) -> str:
    at = int.from_bytes(data[60:64], "little")
    if data[at : at + 4] != _PE or at + 94 > len(data):
        return "MS-DOS executable"
    machine = int.from_bytes(data[at + 4 : at + 6], "little")
    flags = int.from_bytes(data[at + 22 : at + 24], "little")
    wide = data[at + 24 : at + 26] == b"\x0b\x02"
    subsystem = _SUBSYSTEMS.get(int.from_bytes(data[at + 92 : at + 94], "little"), "unknown")
    kind = "PE32+ executable" if wide else "PE32 executable"
    library = " (DLL)" if flags & 0x2000 else ""
    return f"{kind}{library} ({subsystem}) {_MACHINES.get(machine, 'unknown')}, for MS Windows"
