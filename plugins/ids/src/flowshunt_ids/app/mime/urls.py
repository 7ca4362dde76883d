"""URLs in the text of mails."""

import re
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address

import attrs

MOST_URLS = 1024
"""URLs of one part that are kept."""
LONGEST_URL = 2048
"""Bytes of a URL that are kept."""
_EXECUTABLE = (
    b".exe", b".vbs", b".bin", b".cmd", b".bat", b".jar", b".js", b".ps", b".ps1", b".sh", b".run", b".hta", b".elf",
)  # fmt: skip


@attrs.frozen
class Url:
    """A URL in small letters; executable: it names a kind of file that can be run; version: of the address in it."""

    text: bytes
    executable: bool
    version: int


def search(schemes: Sequence[str]) -> "re.Pattern[bytes]":
    """The expression that finds URLs of these schemes ("http"); the scheme is its first group, the rest its second."""
    names = b"|".join(re.escape(scheme.encode()) for scheme in schemes)
    return re.compile(rb"((?:" + names + rb")://)([^ \"'<>\]\t\r\n\0]{1,%d})" % LONGEST_URL, re.IGNORECASE)


def describe(text: bytes, host: bytes) -> Url:
    """A URL's properties. host: the text from the host on."""
    executable = False
    for extension in _EXECUTABLE:
        at = text.find(extension)
        if at >= 0 and text[at + len(extension) : at + len(extension) + 1] in (b"", b"?"):
            executable = True
            break
    return Url(text, executable, _version(host.partition(b"/")[0]))


def _version(host: bytes) -> int:
    text = host.decode("latin-1")
    try:
        IPv4Address(text)
    except AddressValueError:
        try:
            IPv6Address(text)
        except AddressValueError:
            return 0
        return 6
    return 4
