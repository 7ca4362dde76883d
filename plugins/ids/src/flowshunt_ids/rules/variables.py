"""Address and port lists of rule headers: variables, nesting, negation, ranges."""

import functools
import ipaddress
from collections.abc import Mapping
from typing import Protocol

import attrs

from flowshunt_ids.rules.intervals import Interval, Intervals, subtract, union
from flowshunt_ids.rules.lexer import RuleError

MAX_NESTING = 64
"""How deep lists and variables may nest."""
MAX_ENTRIES = 200_000
"""How many entries a list may have after its variables are filled in."""

IPV4_ALL: Intervals = ((0, (1 << 32) - 1),)
IPV6_ALL: Intervals = ((0, (1 << 128) - 1),)
PORTS_ALL: Intervals = ((0, 65535),)

DEFAULT_ADDRESSES: Mapping[str, str] = {
    "HOME_NET": "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]",
    "EXTERNAL_NET": "!$HOME_NET",
    "HTTP_SERVERS": "$HOME_NET",
    "SMTP_SERVERS": "$HOME_NET",
    "SQL_SERVERS": "$HOME_NET",
    "DNS_SERVERS": "$HOME_NET",
    "TELNET_SERVERS": "$HOME_NET",
    "AIM_SERVERS": "$EXTERNAL_NET",
    "DC_SERVERS": "$HOME_NET",
    "DNP3_SERVER": "$HOME_NET",
    "DNP3_CLIENT": "$HOME_NET",
    "MODBUS_CLIENT": "$HOME_NET",
    "MODBUS_SERVER": "$HOME_NET",
    "ENIP_CLIENT": "$HOME_NET",
    "ENIP_SERVER": "$HOME_NET",
}
"""What Suricata's own configuration file sets, for a run without one."""

DEFAULT_PORTS: Mapping[str, str] = {
    "HTTP_PORTS": "80",
    "SHELLCODE_PORTS": "!80",
    "ORACLE_PORTS": "1521",
    "SSH_PORTS": "22",
    "DNP3_PORTS": "20000",
    "MODBUS_PORTS": "502",
    "FILE_DATA_PORTS": "[$HTTP_PORTS,110,143]",
    "FTP_PORTS": "21",
    "GENEVE_PORTS": "6081",
    "VXLAN_PORTS": "4789",
    "TEREDO_PORTS": "3544",
}


@attrs.frozen
class Addresses:
    """A set of addresses. `negated`: some entry was negated (Suricata then inspects every packet of a flow)."""

    ipv4: Intervals
    ipv6: Intervals
    negated: bool = attrs.field(default=False, eq=False)

    def contains(self, address: bytes) -> bool:
        """Whether an address of 4 or 16 bytes is one of them."""
        value = int.from_bytes(address, "big")
        return any(low <= value <= high for low, high in (self.ipv4 if len(address) == 4 else self.ipv6))


@attrs.frozen
class Ports:
    """A set of ports."""

    ports: Intervals


ANY_ADDRESS = Addresses(IPV4_ALL, IPV6_ALL)
ANY_PORT = Ports(PORTS_ALL)


@attrs.frozen
class Variables:
    """The `vars` of a configuration: address groups and port groups by name, without the `$`."""

    addresses: Mapping[str, str] = DEFAULT_ADDRESSES
    ports: Mapping[str, str] = DEFAULT_PORTS


def split_list(text: str) -> list[str]:
    """The entries of a comma-separated list, brackets within it kept whole."""
    entries, depth, start = list[str](), 0, 0
    for at, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == "," and depth == 0:
            entries.append(text[start:at])
            start = at + 1
    entries.append(text[start:])
    return entries


class _Entry(Protocol):
    def __call__(self, text: str) -> tuple[tuple[Interval, ...], tuple[Interval, ...]]: ...


def _collect(text: str, variables: Mapping[str, str], kind: str, entry: _Entry) -> tuple[list[list[Interval]], bool]:
    """Intervals of the entries: [positive first kind, positive second kind, negative first, negative second].

    Lists are flattened as Suricata does it: an entry counts as negated where an odd number of '!' stand before it or
    the lists and variables around it, and negated entries are taken off the whole.
    """
    found: list[list[Interval]] = [[], [], [], []]
    negated = False
    entries = 0

    def walk(part: str, minus: bool, depth: int) -> None:
        nonlocal negated, entries
        if depth > MAX_NESTING:
            raise RuleError(f"{kind} list nested more than {MAX_NESTING} deep (a variable that contains itself?)")
        part = part.strip()
        items = split_list(part)
        if len(items) > 1:
            for item in items:
                walk(item, minus, depth + 1)
            return
        while part.startswith("!"):
            part, minus = part[1:].strip(), not minus
        if part.startswith("["):
            if not part.endswith("]"):
                raise RuleError(f"{kind} list {part[:40]!r} is not closed")
            for item in split_list(part[1:-1]):
                walk(item, minus, depth + 1)
            return
        if part.startswith("$"):
            value = variables.get(part[1:])
            if value is None:
                raise RuleError(f"variable {part} is not defined as {kind} group in the configuration")
            walk(value, minus, depth + 1)
            return
        if not part:
            raise RuleError(f"an empty entry in the {kind} list")
        entries += 1
        if entries > MAX_ENTRIES:
            raise RuleError(f"{kind} list with more than {MAX_ENTRIES} entries")
        first, second = entry(part)
        negated = negated or minus
        found[2 if minus else 0].extend(first)
        found[3 if minus else 1].extend(second)

    walk(text, False, 0)
    return found, negated


def _address(text: str) -> tuple[tuple[Interval, ...], tuple[Interval, ...]]:
    if text.lower() == "any":
        return IPV4_ALL, IPV6_ALL
    try:
        if "-" in text:
            low, high = (ipaddress.ip_address(part.strip()) for part in text.split("-", 1))
            if low.version != high.version or int(low) > int(high):
                raise RuleError(f"{text!r} is not a range of addresses")
            interval, version = (int(low), int(high)), low.version
        else:
            network = ipaddress.ip_network(text, strict=False)
            interval = (int(network.network_address), int(network.broadcast_address))
            version = network.version
    except ValueError:
        raise RuleError(f"{text!r} is not an address, a network or a range") from None
    return ((interval,), ()) if version == 4 else ((), (interval,))


def _port_number(text: str, given: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or int(text) > 65535:
        raise RuleError(f"{given!r} is not a port or a range of ports")
    return int(text)


def _port(text: str) -> tuple[tuple[Interval, ...], tuple[Interval, ...]]:
    if text.lower() == "any":
        return PORTS_ALL, ()
    low, colon, high = (part.strip() for part in text.partition(":"))
    if not colon:
        number = _port_number(low, text)
        return ((number, number),), ()
    first = _port_number(low, text) if low else 0
    last = _port_number(high, text) if high else 65535
    if first > last:
        raise RuleError(f"{text!r} is not a range of ports")
    return ((first, last),), ()


def _difference(positive: list[Interval], negative: list[Interval], everything: Intervals, empty: bool) -> Intervals:
    return subtract(everything if empty else union(positive), union(negative))


@functools.lru_cache(maxsize=4096)
def _addresses(text: str, key: tuple[tuple[str, str], ...]) -> Addresses:
    found, negated = _collect(text, dict(key), "address", _address)
    empty = not found[0] and not found[1]
    result = Addresses(
        _difference(found[0], found[2], IPV4_ALL, empty),
        _difference(found[1], found[3], IPV6_ALL, empty),
        negated,
    )
    if not result.ipv4 and not result.ipv6:
        raise RuleError(f"no address is left of {text!r}")
    return result


@functools.lru_cache(maxsize=4096)
def _ports(text: str, key: tuple[tuple[str, str], ...]) -> Ports:
    found, _negated = _collect(text, dict(key), "port", _port)
    result = Ports(_difference(found[0], found[2], PORTS_ALL, not found[0]))
    if not result.ports:
        raise RuleError(f"no port is left of {text!r}")
    return result


def parse_addresses(text: str, variables: Mapping[str, str]) -> Addresses:
    """The addresses that a rule's header names. Raises `RuleError`."""
    return ANY_ADDRESS if text == "any" else _addresses(text, tuple(variables.items()))


def parse_ports(text: str, variables: Mapping[str, str]) -> Ports:
    """The ports that a rule's header names. Raises `RuleError`."""
    return ANY_PORT if text == "any" else _ports(text, tuple(variables.items()))
