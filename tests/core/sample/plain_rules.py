"""A search for rules' matches in plain Python: whole streams, every rule tried everywhere.

It knows the keywords that the sample's rules use, and no others.
"""

import ipaddress
import re
from collections import defaultdict

import attrs
from plain_packets import ACK, ICMP, ICMP6, SYN, TCP, UDP, whole_packets

HOME = ipaddress.ip_network("10.0.0.0/8")
PROTOCOLS = {"tcp": (TCP,), "tcp-pkt": (TCP,), "udp": (UDP,), "icmp": (ICMP, ICMP6), "ip": (TCP, UDP, ICMP, ICMP6)}
MODIFIERS = {"depth", "offset", "distance", "within", "nocase", "startswith", "endswith", "rawbytes", "fast_pattern"}
IGNORED = {"msg", "classtype", "rev", "sid", "noalert", "bypass"}


@attrs.define
class Rule:
    action: str
    protocol: str
    source: str
    source_port: str
    arrow: str
    destination: str
    destination_port: str
    options: list
    sid: int = 0
    tests: list = attrs.Factory(list)  # what has to hold in the payload, in order
    flow: set = attrs.Factory(set)
    flags: int | None = None
    dsize: str = ""
    sets: str = ""
    needs: str = ""

    @property
    def silent(self):
        return ("noalert", "") in self.options or ("flowbits", "noalert") in self.options

    @property
    def bypasses(self):
        return ("bypass", "") in self.options

    @property
    def over_packets(self):
        return self.protocol in ("tcp-pkt", "udp", "icmp") or self.flags is not None


def read_rules(text):
    rules = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        header, _, body = line.partition("(")
        options = re.findall(r'(\w+)(?::((?:"[^"]*"|[^;"])*))?;', body)
        rule = Rule(*header.split(), options=[(name, value.strip()) for name, value in options])
        _interpret(rule)
        rules.append(rule)
    return rules


def _interpret(rule):
    for name, value in rule.options:
        if name == "content":
            rule.tests.append({"kind": "content", "not": value.startswith("!"), "bytes": _bytes(value.lstrip("!"))})
        elif name in MODIFIERS:
            rule.tests[-1][name] = int(value) if value else True
        elif name == "pcre":
            body, _, modifiers = value.strip('"')[1:].rpartition("/")
            flags = sum({"i": re.I, "m": re.M, "R": 0}[letter] for letter in modifiers)
            rule.tests.append({"kind": "pcre", "re": re.compile(body.encode(), flags), "relative": "R" in modifiers})
        elif name == "isdataat":
            size, relative = value.split(",")
            assert relative == "relative"
            rule.tests.append({"kind": "isdataat", "size": int(size)})
        elif name == "flow":
            rule.flow = set(value.split(","))
        elif name == "flags":
            rule.flags = (
                0 if value == "0" else sum({"F": 1, "S": 2, "R": 4, "P": 8, "A": 16, "U": 32}[c] for c in value)
            )
        elif name == "dsize":
            rule.dsize = value
        elif name == "flowbits":
            verb, _, bit = value.partition(",")
            rule.sets = bit if verb == "set" else rule.sets
            rule.needs = bit if verb == "isset" else rule.needs
        elif name == "sid":
            rule.sid = int(value)
        else:
            assert name in IGNORED, name


def _bytes(value):
    parts = value.strip('"').split("|")
    return b"".join(bytes.fromhex(part) if at % 2 else part.encode() for at, part in enumerate(parts))


def payload_matches(tests, data, cursor=0):
    """Whether all tests hold in order, trying every place of every content."""
    if not tests:
        return True
    test, rest = tests[0], tests[1:]
    if test["kind"] == "isdataat":
        return cursor + test["size"] <= len(data) and payload_matches(rest, data, cursor)
    if test["kind"] == "pcre":
        start = cursor if test["relative"] else 0
        found = test["re"].finditer(data[start:])
        return any(payload_matches(rest, data, start + match.end()) for match in found)
    pattern, nocase = test["bytes"], test.get("nocase")
    low, high = test.get("offset", 0), len(data)
    if "depth" in test:
        high = min(high, low + test["depth"])
    if "distance" in test or "within" in test:
        low = max(low, cursor + test.get("distance", 0))
        if "within" in test:
            high = min(high, cursor + test.get("distance", 0) + test["within"])
    where, what = (data.lower(), pattern.lower()) if nocase else (data, pattern)
    if test["not"]:
        return where.find(what, low, high) < 0 and payload_matches(rest, data, cursor)
    at = where.find(what, low, high)
    while at >= 0:
        fits = (not test.get("startswith") or at == 0) and (not test.get("endswith") or at + len(what) == len(data))
        if fits and payload_matches(rest, data, at + len(pattern)):
            return True
        at = where.find(what, at + 1, high)
    return False


def header_matches(rule, ends, protocol):
    """Whether the rule's header fits a packet from ends[0] to ends[1]."""
    if protocol not in PROTOCOLS[rule.protocol]:
        return False
    there = _end_fits(rule.source, rule.source_port, ends[0]) and _end_fits(
        rule.destination, rule.destination_port, ends[1]
    )
    if there or rule.arrow == "->":
        return there
    return _end_fits(rule.source, rule.source_port, ends[1]) and _end_fits(
        rule.destination, rule.destination_port, ends[0]
    )


def _end_fits(address, ports, end):
    host = ipaddress.ip_address(end[0])
    home = host.version == 4 and host in HOME
    if address == "$HOME_NET":
        fits = home
    elif address == "$EXTERNAL_NET":
        fits = not home
    else:
        fits = address == "any" or host in ipaddress.ip_network(address)
    return fits and _port_fits(ports, end[1])


def _port_fits(ports, port):
    if ports == "any":
        return True
    if ports.startswith("!"):
        return not _port_fits(ports[1:], port)
    if ports.startswith("["):
        items = ports[1:-1].split(",")
        wanted = [item for item in items if not item.startswith("!")]
        return any(_port_fits(item, port) for item in wanted or ["any"]) and all(
            _port_fits(item, port) for item in items if item.startswith("!")
        )
    low, colon, high = ports.partition(":")
    return int(low) <= port <= int(high) if colon else port == int(low)


def search(rules, packets):
    """(sid, packet) for every alert: the packet is the one that completes the match."""
    flows = defaultdict(list)
    for packet in whole_packets(packets):
        flows[packet.flow].append(packet)
    detecting = [rule for rule in rules if not rule.bypasses]
    found = []
    for flow in flows.values():
        found += _search_flow(detecting, flow)
    return sorted(found, key=lambda alert: (alert[1].number, alert[0]))


def _search_flow(rules, packets):
    initiator = packets[0].ends[0]
    streams = {way: _reassembled([p for p in packets if p.ends[0] == way]) for way in packets[0].ends}
    candidates = []
    for rule in rules:
        for way in packets[0].ends:
            ends = (way, packets[0].ends[1] if way == packets[0].ends[0] else packets[0].ends[0])
            if not header_matches(rule, ends, packets[0].protocol) or not _flow_fits(rule, way == initiator, packets):
                continue
            if rule.over_packets or packets[0].protocol != TCP:
                candidates += [(p.number, rule.sid, rule, p) for p in packets if p.ends[0] == way and _hit(rule, p)]
            elif payload_matches(rule.tests, streams[way][-1][1] if streams[way] else b""):
                done = next(p for p, data in streams[way] if payload_matches(rule.tests, data))
                candidates.append((done.number, rule.sid, rule, done))
    found, bits = [], set()
    for _, sid, rule, packet in sorted(candidates, key=lambda candidate: candidate[:2]):
        if rule.needs and rule.needs not in bits:
            continue
        if rule.sets:
            bits.add(rule.sets)
        if not rule.silent:
            found.append((sid, packet))
    return found


def _flow_fits(rule, to_server, packets):
    if not rule.flow:
        return True
    if packets[0].protocol == TCP and not any(p.flags & (SYN | ACK) == ACK for p in packets):
        return False
    return ("to_server" not in rule.flow or to_server) and ("to_client" not in rule.flow or not to_server)


def _hit(rule, packet):
    if rule.flags is not None and packet.flags != rule.flags:
        return False
    if rule.dsize and not len(packet.payload) > int(rule.dsize.lstrip(">")):
        return False
    return payload_matches(rule.tests, packet.payload)


def _reassembled(packets):
    """(packet, stream so far) for each packet that makes the stream grow; only the last one keeps all that came before.

    Streams are long and matches rare, so the steps share one list, and are joined when they are asked for.
    """
    steps = Steps()
    expected, waiting = None, {}
    for packet in packets:
        if packet.protocol != TCP:
            continue
        if packet.flags & SYN:
            expected = packet.sequence + 1 & 0xFFFFFFFF
            continue
        if not packet.payload or expected is None:
            continue
        waiting.setdefault(packet.sequence, packet.payload)
        grown = []
        while expected in waiting:
            part = waiting.pop(expected)
            grown.append(part)
            expected = expected + len(part) & 0xFFFFFFFF
        if grown:
            steps.add(packet, b"".join(grown))
    return steps


class Steps:
    """The states of a stream."""

    def __init__(self):
        self.packets, self.parts = [], []
        self.whole = None

    def add(self, packet, part):
        self.packets.append(packet)
        self.parts.append(part)

    def __len__(self):
        return len(self.packets)

    def __getitem__(self, at):
        assert at == -1
        if self.whole is None:
            self.whole = b"".join(self.parts)
        return self.packets[-1], self.whole

    def __iter__(self):
        data = b""
        for packet, part in zip(self.packets, self.parts, strict=True):
            data += part
            yield packet, data
