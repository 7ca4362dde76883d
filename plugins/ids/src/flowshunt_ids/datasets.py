"""Datasets: named sets of values that rules look buffers up in, fill, and rate."""

import binascii
import ipaddress
from collections.abc import Callable, Iterable
from pathlib import Path

from flowshunt.errors import InputError
from flowshunt_ids.rules.rule import Dataset, DatasetMatch, ReputationMatch
from flowshunt_ids.rules.text_files import read_text

MAX_FILE = 256 * 1024 * 1024
"""The largest file of a set in bytes."""
MAX_VALUES = 1 << 22
"""The most values that one set holds; more are not added, and counted."""
MAX_VALUE = 64 * 1024
"""The longest value that is added while running, in bytes."""

_SIZES = {"md5": (16,), "sha256": (32,), "ipv4": (4,), "ip": (4, 16)}


def _string(text: str) -> bytes:
    return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)


def _ip(text: str) -> bytes:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed


def _ipv4(text: str) -> bytes:
    return ipaddress.IPv4Address(text).packed


_READ: dict[str, Callable[[str], bytes]] = {
    "string": _string,
    "md5": bytes.fromhex,
    "sha256": bytes.fromhex,
    "ipv4": _ipv4,
    "ip": _ip,
}


class _Values:
    """The values of one set, each with its reputation."""

    def __init__(self, dataset: Dataset) -> None:
        self.sizes = _SIZES.get(dataset.kind)
        self.values: dict[bytes, int] = {}
        if dataset.load:
            self._read(dataset)

    def fits(self, value: bytes) -> bool:
        return bool(value) and (self.sizes is None or len(value) in self.sizes)

    def _read(self, dataset: Dataset) -> None:
        text = read_text(Path(dataset.load), f"dataset {dataset.name}", MAX_FILE)
        read = _READ[dataset.kind]
        for number, line in enumerate(text.splitlines(), 1):
            entry, _comma, rating = line.strip().partition(",")
            if not entry:
                continue
            try:
                value = read(entry.strip())
                reputation = int(rating) if rating else 0
            except ValueError as problem:
                raise InputError(
                    f"dataset {dataset.name}: {entry[:60]!r} is not a value of type {dataset.kind} ({problem})",
                    f"{dataset.load}:{number}",
                    "strings are in base64, digests in hexadecimal",
                ) from None
            if not self.fits(value) or not 0 <= reputation <= 65535:
                raise InputError(
                    f"dataset {dataset.name}: {line.strip()[:60]!r} is not a value of type {dataset.kind}",
                    f"{dataset.load}:{number}",
                )
            if len(self.values) >= MAX_VALUES:
                raise InputError(f"dataset {dataset.name}: more than {MAX_VALUES} values", dataset.load, "split it")
            self.values[value] = reputation


class Datasets:
    """The sets of a run. Several rules that name one set share it."""

    def __init__(self) -> None:
        self._sets: dict[str, _Values] = {}
        self.refused = 0

    def __len__(self) -> int:
        return len(self._sets)

    def open(self, datasets: Iterable[Dataset]) -> None:
        """Make the sets, and read their files. Raises `InputError`."""
        for dataset in datasets:
            if dataset.name not in self._sets:
                self._sets[dataset.name] = _Values(dataset)

    def _get(self, dataset: Dataset) -> _Values:
        found = self._sets.get(dataset.name)
        if found is None:
            found = self._sets[dataset.name] = _Values(dataset)
        return found

    def judge(self, match: DatasetMatch | ReputationMatch, buffer: bytes) -> bool:
        """Whether a `dataset` or `datarep` holds for a buffer. A `set` that adds a value, or `unset` that takes one
        out, holds; where nothing changes it does not."""
        found = self._get(match.dataset)
        if isinstance(match, ReputationMatch):
            if not found.fits(buffer) or buffer not in found.values:
                return False
            rating = found.values[buffer]
            return {">": rating > match.value, "<": rating < match.value}.get(match.operator, rating == match.value)
        if not buffer:
            return False
        if match.command == "isnotset":
            return buffer not in found.values
        if not found.fits(buffer):
            return False
        if match.command == "isset":
            return buffer in found.values
        if match.dataset.kind == "ip" and len(buffer) == 4:
            # Suricata changes sets of this type for IPv6 addresses alone.
            return False
        if match.command == "unset":
            return found.values.pop(buffer, None) is not None
        if buffer in found.values:
            return False
        if len(found.values) >= MAX_VALUES or len(buffer) > MAX_VALUE:
            self.refused += 1
            return False
        found.values[buffer] = 0
        return True
