"""X.509 certificates: the few fields that rules and records look at, from DER, read strictly."""

import calendar
import hashlib
import time
from typing import Final

import attrs

_SEQUENCE, _SET, _INTEGER, _OID, _UTC_TIME, _TIME, _VERSION = 0x30, 0x31, 0x02, 0x06, 0x17, 0x18, 0xA0
_BMP, _UNIVERSAL = 0x1E, 0x1C
_NAMES: Final = {
    "2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "serialNumber", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST",
    "2.5.4.9": "street", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.12": "title", "2.5.4.13": "description",
    "2.5.4.15": "businessCategory", "2.5.4.17": "postalCode", "2.5.4.41": "name", "2.5.4.42": "givenName",
    "2.5.4.43": "initials", "2.5.4.44": "generationQualifier", "2.5.4.46": "dnQualifier", "2.5.4.65": "pseudonym",
    "1.2.840.113549.1.9.1": "emailAddress", "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
    "1.3.6.1.4.1.311.60.2.1.1": "jurisdictionL", "1.3.6.1.4.1.311.60.2.1.2": "jurisdictionST",
    "1.3.6.1.4.1.311.60.2.1.3": "jurisdictionC",
}  # fmt: skip


class CertificateError(ValueError):
    """What is no certificate, with the event's name."""

    def __init__(self, event: str) -> None:
        super().__init__(event)
        self.event = event


@attrs.frozen
class Certificate:
    """What is looked at.

    Attributes:
        subject, issuer: as "C=US, O=..., CN=...".
        serial, fingerprint: hexadecimal bytes with colons, upper and lower case; the fingerprint is SHA-1.
        not_before, not_after: seconds since 1970.
    """

    subject: str
    issuer: str
    serial: str
    fingerprint: str
    not_before: int
    not_after: int


def _element(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Tag, and where the contents of the element at a place start and end. Raises CertificateError."""
    if end - at < 2:
        raise CertificateError("certificate_invalid_der")
    tag, length, at = data[at], data[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4 or end - at < count:
            raise CertificateError("certificate_invalid_der")
        length = int.from_bytes(data[at : at + count], "big")
        at += count
    if length > end - at:
        raise CertificateError("certificate_invalid_der")
    return tag, at, at + length


def _expect(data: bytes, at: int, end: int, tag: int, event: str = "certificate_invalid_der") -> tuple[int, int]:
    found, start, stop = _element(data, at, end)
    if found != tag:
        raise CertificateError(event)
    return start, stop


def _oid(data: bytes) -> str:
    if not data:
        return ""
    numbers, value = [], 0
    for byte in data[:64]:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        return ""
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _text(tag: int, data: bytes) -> str:
    """A string of a name. What follows a zero byte counts for nothing, as in Suricata, whose texts end there."""
    return _whole_text(tag, data).partition("\0")[0]


def _whole_text(tag: int, data: bytes) -> str:
    if tag == _BMP:
        return data.decode("utf-16-be", "replace")
    if tag == _UNIVERSAL:
        return data.decode("utf-32-be", "replace")
    return data.decode("utf-8", "replace")


def _name(data: bytes, at: int, end: int, event: str) -> tuple[str, int]:
    start, stop = _expect(data, at, end, _SEQUENCE, event)
    parts: list[str] = []
    place = start
    while place < stop:
        inside, after = _expect(data, place, stop, _SET, event)
        while inside < after:
            pair, behind = _expect(data, inside, after, _SEQUENCE, event)
            key, key_end = _expect(data, pair, behind, _OID, event)
            tag, value, value_end = _element(data, key_end, behind)
            oid = _oid(data[key:key_end])
            parts.append(f"{_NAMES.get(oid, oid)}={_text(tag, data[value:value_end])}")
            inside = behind
        place = after
    return ", ".join(parts), stop


def _moment(data: bytes, at: int, end: int) -> tuple[int, int]:
    tag, start, stop = _element(data, at, end)
    text = data[start:stop].decode("ascii", "replace").rstrip("Z")
    if tag == _UTC_TIME and len(text) >= 10 and text[:10].isdigit():
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    elif tag != _TIME:
        raise CertificateError("certificate_invalid_validity")
    text = (text + "00" if len(text) == 12 else text)[:14]
    try:
        return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%S")), stop
    except (ValueError, OverflowError):
        raise CertificateError("certificate_invalid_date") from None


def read_certificate(data: bytes) -> Certificate:
    """A certificate from its DER bytes. Raises CertificateError."""
    start, stop = _expect(data, 0, len(data), _SEQUENCE)
    start, stop = _expect(data, start, stop, _SEQUENCE)
    tag, inside, after = _element(data, start, stop)
    at = after if tag == _VERSION else start
    inside, after = _expect(data, at, stop, _INTEGER, "certificate_invalid_serial")
    serial = data[inside:after]
    _, at = _expect(data, after, stop, _SEQUENCE, "certificate_invalid_algorithmidentifier")
    issuer, at = _name(data, at, stop, "certificate_invalid_issuer")
    inside, behind = _expect(data, at, stop, _SEQUENCE, "certificate_invalid_validity")
    not_before, inside = _moment(data, inside, behind)
    not_after, _ = _moment(data, inside, behind)
    subject, _ = _name(data, behind, stop, "certificate_invalid_subject")
    return Certificate(
        subject,
        issuer,
        serial.hex(":").upper(),
        hashlib.sha1(data, usedforsecurity=False).digest().hex(":"),
        not_before,
        not_after,
    )
