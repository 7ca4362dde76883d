"""Keywords on packet headers: flags, dsize, ttl, tos, itype, icode, ip_proto, sameip, id, fragbits, seq, ack, ..."""

import re

from flowshunt_ids.events import find as find_event
from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, whole_number
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Condition, Field, PacketTest

_FLAG_BITS = {
    "F": 1,
    "S": 2,
    "R": 4,
    "P": 8,
    "A": 16,
    "U": 32,
    "2": 64,
    "E": 64,
    "1": 128,
    "C": 128,
}
_RANGE = re.compile(r"(\d{1,10})\s*(?:<>|-)\s*(\d{1,10})")
_COMPARISON = re.compile(r"(<=|>=|<|>|=|!=|!|)\s*(\d{1,10})")


def parse_range(field: Field, value: str, keyword: str, maximum: int, *, inclusive: bool) -> PacketTest:
    """A number with an optional comparison before it, or `low<>high`, as a test. Raises `RuleError`.

    `inclusive`: whether the two ends of a range belong to it.
    """
    span = _RANGE.fullmatch(value)
    if span:
        low, high = int(span[1]), int(span[2])
        if not inclusive:
            low, high = low + 1, high - 1
        if low > high or int(span[2]) > maximum:
            raise RuleError(f"{keyword}: {value!r} is an empty range or goes past {maximum}")
        return PacketTest(field, low, high)
    single = _COMPARISON.fullmatch(value)
    if not single:
        raise RuleError(f"{keyword}: {value!r} is neither a number, a comparison nor a range")
    operator, number = single[1], int(single[2])
    if number > maximum:
        raise RuleError(f"{keyword}: {number} is more than {maximum}")
    low, high = {
        "<": (0, number - 1),
        "<=": (0, number),
        ">": (number + 1, maximum),
        ">=": (number, maximum),
    }.get(operator, (number, number))
    if low > high:
        raise RuleError(f"{keyword}: {value!r} can never match")
    return PacketTest(field, low, high, negated=operator in ("!", "!="))


def _ranged(
    field: Field, keyword: str, maximum: int, *, inclusive: bool = False, protocols: frozenset[int] | None = None
) -> Keyword:
    def read(rule: RuleBuilder, value: str) -> None:
        _needs_protocol(rule, keyword, protocols)
        rule.tests.append(parse_range(field, value, keyword, maximum, inclusive=inclusive))
        rule.needs_packet = True

    return Keyword(read)


def _needs_protocol(rule: RuleBuilder, keyword: str, protocols: frozenset[int] | None) -> None:
    if protocols is not None and (rule.header.protocols is None or not rule.header.protocols <= protocols):
        raise RuleError(f"{keyword}: can't be used with protocol {rule.header.protocol}")


def _exact(field: Field, keyword: str, maximum: int) -> Keyword:
    def read(rule: RuleBuilder, value: str) -> None:
        number = whole_number(value.strip('"'), keyword, 0, maximum)
        rule.tests.append(PacketTest(field, number, number))
        rule.needs_packet = True

    return Keyword(read)


def _dsize(rule: RuleBuilder, value: str) -> None:
    if any(test.field is Field.PAYLOAD_LENGTH for test in rule.tests):
        raise RuleError("dsize: given twice")
    test = parse_range(Field.PAYLOAD_LENGTH, value, "dsize", 65535, inclusive=False)
    rule.tests.append(test)
    if test.negated:
        # Suricata looks for a size that differs only where there is a payload.
        rule.tests.append(PacketTest(Field.PAYLOAD_LENGTH, 1, 65535))
    rule.needs_packet = True


def _bits(letters: str, table: dict[str, int], keyword: str) -> int:
    bits = 0
    for letter in letters:
        bit = table.get(letter)
        if bit is None:
            raise RuleError(f"{keyword}: {letter!r} is not a flag")
        bits |= bit
    return bits


_BEGIN_OR_END = 1 | 2 | 4
_UNUSUAL = 32 | 64 | 128
_SYN = 2


def parse_flags(value: str) -> list[PacketTest]:
    """`[+|*|!|=]flags[,ignored]` as tests on the TCP flags. Raises `RuleError`.

    As in Suricata, rules that name S, F or R are looked at on packets with any of these only, those that name U, E or
    C on packets with any of those, and those that ask for S on packets with SYN.
    """
    wanted, comma, ignored = (part.strip() for part in value.partition(","))
    if comma and not ignored:
        raise RuleError(f"flags: no flags after ',' in {value!r}")
    modifier = ""
    for at in (0, len(wanted) - 1):
        if wanted and wanted[at] in "+*!=":
            modifier = wanted[at]
            wanted = wanted[:at] + wanted[at + 1 :]
            break
    mask = 0xFF & ~_bits(ignored.replace("0", ""), _FLAG_BITS, "flags")
    if not wanted:
        raise RuleError(f"flags: {value!r} names no flag")
    bits = _bits("" if wanted == "0" else wanted, _FLAG_BITS, "flags")
    if modifier == "+":
        test = PacketTest(Field.TCP_FLAGS, bits & mask, bits & mask, mask & bits)
    elif modifier == "*":
        test = PacketTest(Field.TCP_FLAGS, 1, 255, mask & bits)
    elif modifier == "!":
        test = PacketTest(Field.TCP_FLAGS, bits & mask, bits & mask, mask & bits, negated=True)
    else:
        test = PacketTest(Field.TCP_FLAGS, bits & mask, bits & mask, mask)
    tests = [test]
    if modifier in ("*", "!"):
        for family in (_BEGIN_OR_END, _UNUSUAL, _SYN if modifier == "*" else 0):
            if bits & family:
                tests.append(PacketTest(Field.TCP_FLAGS, 1, 255, family))
    return tests


def _flags(rule: RuleBuilder, value: str) -> None:
    _needs_protocol(rule, "flags", frozenset({6}))
    rule.tests.extend(parse_flags(value))
    rule.needs_packet = True


_FRAGMENT_LETTERS = {"M": 0x2000, "D": 0x4000, "R": 0x8000}


def _fragbits(rule: RuleBuilder, value: str) -> None:
    """`+` asks for further bits beside those named, as Suricata does it."""
    modifier = value[0] if value[:1] in ("+", "*", "!") else value[-1] if value[-1:] in ("+", "*", "!") else ""
    letters = value.replace(modifier, "", 1) if modifier else value
    if not letters:
        raise RuleError(f"fragbits: {value!r} names no flag")
    bits = _bits(letters, _FRAGMENT_LETTERS, "fragbits")
    if modifier == "+":
        tests = [
            PacketTest(Field.FRAGMENT_BITS, bits, bits, bits),
            PacketTest(Field.FRAGMENT_BITS, 1, 0xFFFF, 0xE000 & ~bits),
        ]
    elif modifier == "*":
        tests = [PacketTest(Field.FRAGMENT_BITS, 1, 0xFFFF, bits)]
    elif modifier == "!":
        tests = [PacketTest(Field.FRAGMENT_BITS, bits, bits, bits, negated=True)]
    else:
        tests = [PacketTest(Field.FRAGMENT_BITS, bits, bits, 0xE000)]
    rule.tests.extend(tests)
    rule.needs_packet = True


_PROTOCOL_NAMES = {
    "icmp": 1,
    "igmp": 2,
    "ipip": 4,
    "tcp": 6,
    "udp": 17,
    "ipv6": 41,
    "gre": 47,
    "esp": 50,
    "ah": 51,
    "ipv6-icmp": 58,
    "icmpv6": 58,
    "ospf": 89,
    "pim": 103,
    "sctp": 132,
}


def _ip_proto(rule: RuleBuilder, value: str) -> None:
    if rule.header.protocols is not None:
        raise RuleError(f"ip_proto: needs protocol ip, not {rule.header.protocol}")
    operator, name = re.fullmatch(r"([!<>]?)\s*(.*)", value.strip('"')).groups()  # type: ignore[union-attr]
    number = _PROTOCOL_NAMES.get(name.lower())
    if number is None:
        number = whole_number(name, "ip_proto", 0, 255)
    low, high = {"<": (0, number - 1), ">": (number + 1, 255)}.get(operator, (number, number))
    if low > high:
        raise RuleError(f"ip_proto: {value!r} can never match")
    if not operator and any(test.field is Field.IP_PROTOCOL and not test.negated for test in rule.tests):
        raise RuleError("ip_proto: a second protocol can only be excluded")
    rule.tests.append(PacketTest(Field.IP_PROTOCOL, low, high, negated=operator == "!"))


_OPTIONS = {
    "eol": 0,
    "nop": 1,
    "rr": 7,
    "ts": 68,
    "sec": 130,
    "lsrr": 131,
    "esec": 133,
    "satid": 136,
    "ssrr": 137,
}


def _ipopts(rule: RuleBuilder, value: str) -> None:
    name = value.strip('"').lower()
    if name == "any":
        # Suricata asks for all options at once then, which no header has room for.
        rule.tests.append(PacketTest(Field.IP_OPTIONS, 1, 0))
        rule.warnings.append("ipopts:any never matches")
    elif name in _OPTIONS:
        bit = 1 << (_OPTIONS[name] & 31)
        rule.tests.append(PacketTest(Field.IP_OPTIONS, bit, bit, bit))
    else:
        raise RuleError(f"ipopts: {value!r} is not one of {', '.join(_OPTIONS)}")
    rule.needs_packet = True


_TOS = re.compile(r"(!?)\s*(\d{1,3}|[xX][0-9a-fA-F]{1,2})")


def _tos(rule: RuleBuilder, value: str) -> None:
    form = _TOS.fullmatch(value.strip('"').strip())
    if form is None:
        raise RuleError("tos: takes '[!]number' or '[!]xHH'")
    number = int(form[2][1:], 16) if form[2][0] in "xX" else whole_number(form[2], "tos", 0, 255)
    rule.tests.append(PacketTest(Field.TOS, number, number, negated=bool(form[1])))
    rule.needs_packet = True


_FRAGOFFSET = re.compile(r"(<|>|)\s*(\d{1,5})")


def _fragoffset(rule: RuleBuilder, value: str) -> None:
    form = _FRAGOFFSET.fullmatch(value.strip('"').strip())
    if form is None:
        raise RuleError("fragoffset: takes '[<|>]number'")
    rule.tests.append(parse_range(Field.FRAGMENT_OFFSET, form[1] + form[2], "fragoffset", 65535, inclusive=False))
    rule.needs_packet = True


def _rpc(rule: RuleBuilder, value: str) -> None:
    parts = [part.strip() for part in value.split(",")]
    if len(parts) > 3:
        raise RuleError("rpc: takes 'program[,version|*[,procedure|*]]'")
    program, version, procedure = [*parts, "*", "*"][:3]
    wanted = [whole_number(program, "rpc", 0, 0xFFFFFFFF)]
    wanted += [-1 if part in ("*", "") else whole_number(part, "rpc", 0, 0xFFFFFFFF) for part in (version, procedure)]
    rule.conditions.append(Condition("rpc", tuple(wanted)))
    rule.needs_packet = True


def _checksum(layer: str, version: int) -> Keyword:
    def read(rule: RuleBuilder, value: str) -> None:
        word = value.strip('"').strip().lower()
        if word not in ("valid", "invalid"):
            raise RuleError(f"{layer}v{version}-csum: takes valid or invalid")
        rule.conditions.append(Condition("checksum", (layer, version, word == "valid")))
        rule.needs_packet = True

    return Keyword(read)


def _refused(name: str, why: str) -> Keyword:
    def read(_rule: RuleBuilder, _value: str) -> None:
        raise RuleError(f"{name}: {why}")

    return Keyword(read, value=None)


def _ignored(_rule: RuleBuilder, _value: str) -> None:
    """Of no effect outside the kernel's packet queues."""


def _sameip(rule: RuleBuilder, _value: str) -> None:
    rule.tests.append(PacketTest(Field.SAME_IP, 1, 1))
    rule.needs_packet = True


def _window(rule: RuleBuilder, value: str) -> None:
    negated = value.startswith("!")
    number = whole_number(value.removeprefix("!"), "window", 0, 65535)
    rule.tests.append(PacketTest(Field.TCP_WINDOW, number, number, negated=negated))
    rule.needs_packet = True


def _alias(keywords: dict[str, Keyword], names: dict[str, str]) -> dict[str, Keyword]:
    return keywords | {new: keywords[old] for new, old in names.items()}


def _event(keyword: str) -> Keyword:
    def read(builder: RuleBuilder, value: str) -> None:
        event = find_event(keyword, value)
        if event is None:
            raise RuleError(f"{keyword}: there is no event {value.strip()!r}")
        builder.conditions.append(Condition("event", event))

    return Keyword(read)


_BASE: dict[str, Keyword] = {
    "dsize": Keyword(_dsize),
    "flags": Keyword(_flags),
    "ttl": _ranged(Field.TTL, "ttl", 255),
    "itype": _ranged(Field.ICMP_TYPE, "itype", 255),
    "icode": _ranged(Field.ICMP_CODE, "icode", 255),
    "icmp_id": _exact(Field.ICMP_ID, "icmp_id", 65535),
    "icmp_seq": _exact(Field.ICMP_SEQ, "icmp_seq", 65535),
    "id": _exact(Field.IP_ID, "id", 65535),
    "seq": _exact(Field.TCP_SEQ, "seq", 0xFFFFFFFF),
    "ack": _exact(Field.TCP_ACK, "ack", 0xFFFFFFFF),
    "window": Keyword(_window),
    "fragbits": Keyword(_fragbits),
    "ip_proto": Keyword(_ip_proto, first_only=True),
    "sameip": Keyword(_sameip, value=False),
    "ipopts": Keyword(_ipopts),
    "tos": Keyword(_tos),
    "fragoffset": Keyword(_fragoffset),
    "tcp.mss": _ranged(Field.TCP_MSS, "tcp.mss", 65535, protocols=frozenset({6})),
    "icmpv6.mtu": _ranged(Field.ICMPV6_MTU, "icmpv6.mtu", 0xFFFFFFFF),
    "rpc": Keyword(_rpc),
    "ipv4-csum": _checksum("ip", 4),
    "tcpv4-csum": _checksum("tcp", 4),
    "tcpv6-csum": _checksum("tcp", 6),
    "udpv4-csum": _checksum("udp", 4),
    "udpv6-csum": _checksum("udp", 6),
    "icmpv4-csum": _checksum("icmp", 4),
    "icmpv6-csum": _checksum("icmp", 6),
    "decode-event": _event("decode-event"),
    "engine-event": _event("engine-event"),
    "stream-event": _event("stream-event"),
    "nfq_set_mark": Keyword(_ignored),
    "geoip": _refused("geoip", "needs a database of countries, which this engine doesn't read"),
    "iprep": _refused("iprep", "IP reputation is not supported"),
    "lua": _refused("lua", "scripts are not run"),
    "luajit": _refused("luajit", "scripts are not run"),
    "flowvar": _refused("flowvar", "what expressions capture is not compared"),
    "pktvar": _refused("pktvar", "what expressions capture is not compared"),
    "asn1": _refused("asn1", "not supported"),
    "frame": _refused("frame", "frames of application layers are not supported"),
}

PACKET_KEYWORDS = _alias(_BASE, {"tcp.flags": "flags", "tcp.seq": "seq", "tcp.ack": "ack", "tcp.window": "window"})
