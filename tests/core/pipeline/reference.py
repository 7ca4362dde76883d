"""Which frames of a capture reach the host in hardware bypass: a plain reference, slow and written from the text.

The rules it obeys:

- Frames are taken in bursts. A flow whose frame matches a bypass rule is learned by the card when the burst is over:
  what follows of it in that burst still reaches the host, which skips it; from the next burst on the card acts alone.
- A flow is two endpoints, the VLAN ids, protocol and IP version, both directions alike. A later fragment has the ports
  of its datagram's first one, if that was seen in the last 60 s.
- A TCP flow leaves the card with the frame that resets it, or that acknowledges the second of both FINs; any flow after
  100 s without a frame, and a TCP flow that is over also with the next SYN. The host hears of it at the end of the
  burst, and until then skips what it gets of the flow; after that such a frame starts a new flow. A fragment without
  the TCP header closes nothing.
- A burst covers 10 s at most: a later frame begins one of its own. Where the frame that begins a burst comes more than
  10 s after all before, flows end that are idle by then, on the card and in the host, before it is looked at.
- A TCP flow that is not bypassed is forgotten after 60 s without a frame, or 600 s where its handshake was seen: a SYN
  (a SYN-ACK says that there was one), a SYN of the other end, and an ACK of the initiator. That may be a SYN-ACK, where
  both ends have sent a SYN at once (RFC 9293, section 3.5). A flow that did not begin with either has no handshake.
- A flow that is already over when its burst ends is not learned; the host skips what follows of it until it has been
  idle for 100 s, or a SYN begins a new one.

It takes for granted what the sample keeps to: Ethernet, no tunnels, room for all flows, time that does not jump.
"""

import enum
import struct
from pathlib import Path

import attrs

ICMP, TCP, UDP, ICMP6 = 1, 6, 17, 58
FIN, SYN, RST, ACK = 1, 2, 4, 16
SECOND = 1_000_000_000
FRAGMENT_SECONDS = 60
LONGEST = 10 * SECOND


class Fate(enum.Enum):
    """What became of a frame. All but CARD reached the host."""

    CARD = "the card acted on it alone"
    SKIPPED = "the host skipped it, since its flow is bypassed"
    DROPPED = "the host inspected it, and a rule dropped it"
    INSPECTED = "the host inspected it"


@attrs.frozen
class BypassRules:
    """The two rules of the sample: pass all from and to an address, drop TCP but for some ports; both bypass."""

    trusted: bytes = bytes((10, 99, 0, 10))
    clear_ports: frozenset = frozenset((80, 20, 21, 23, 25, 53, 67, 68))

    def verdict(self, packet):
        """The fate of a frame that a rule bypasses from; None where no rule matches."""
        if packet is None:
            return None
        if self.trusted in (packet.source[0], packet.destination[0]):
            return Fate.INSPECTED
        ports = {packet.source[1], packet.destination[1]}
        if packet.protocol == TCP and not packet.later and not ports & self.clear_ports:
            return Fate.DROPPED
        return None


@attrs.frozen
class Packet:
    source: tuple  # address, port
    destination: tuple
    vlans: tuple
    protocol: int
    fragment: int | None = None  # the datagram's identification
    later: bool = False  # a fragment without the transport header
    flags: int | None = None  # of TCP
    end: int = 0  # the sequence number after the segment, without its FIN
    ack: int = 0


@attrs.define(eq=False)
class Flow:
    initiator: tuple
    midstream: bool  # TCP that did not begin with a SYN
    seen: int
    bypassed_by: str = ""  # "card" or "host"
    fin: list = attrs.Factory(lambda: [None, None])  # by direction: the number that acknowledges it
    fin_acked: list = attrs.Factory(lambda: [False, False])
    reset: bool = False
    syn_both: set = attrs.Factory(set)
    handshake: bool = False
    senders: set = attrs.Factory(set)
    matched: bool = False  # a bypass rule has matched
    over: bool = False  # no longer in its table
    host_flow: tuple = ()  # on the card: key and flow of the host's that it was learned from

    @property
    def closed(self):
        return self.reset or all(self.fin_acked)

    @property
    def restarts(self):
        """Whether a SYN on its tuple begins a new connection."""
        return self.closed or None not in self.fin or (self.midstream and self.fin == [None, None])

    def step(self, packet):
        """Follow the connection through a TCP header."""
        way = 0 if packet.source == self.initiator else 1
        self.senders.add(way)
        if packet.flags is None:
            return
        if packet.flags & RST:
            self.reset = True
            return
        if self.syn_both == {0, 1} and way == 0 and packet.flags & ACK and not self.midstream:
            self.handshake = True
        if packet.flags & SYN:
            self.syn_both.add(way)
        if packet.flags & FIN:
            self.fin[way] = (packet.end + 1) % (1 << 32)
        other = 1 - way
        if packet.flags & ACK and self.fin[other] is not None and (packet.ack - self.fin[other]) % (1 << 32) < 1 << 31:
            self.fin_acked[other] = True


class Table:
    """The flows that the card or the host knows of."""

    def __init__(self, timeout):
        self.timeout = timeout  # of a flow and its protocol, in seconds; None: never
        self.flows = {}
        self.datagrams = {}
        self.now = 0

    def key(self, packet):
        """A frame's flow. Remembers the ports of a first fragment, and gives them to later ones."""
        ends = packet.source, packet.destination
        if packet.fragment is not None:
            datagram = (ends[0][0], ends[1][0], packet.protocol, packet.vlans, packet.fragment)
            if packet.later:
                ports, seen = self.datagrams.get(datagram, ((0, 0), 0))
                if self.now - seen > FRAGMENT_SECONDS * SECOND:
                    ports = (0, 0)
                ends = (ends[0][0], ports[0]), (ends[1][0], ports[1])
            else:
                self.datagrams[datagram] = ((ends[0][1], ends[1][1]), self.now)
        return (packet.protocol, packet.vlans, frozenset(ends)), ends

    def advance(self, time):
        """Let time pass. In every new second, flows end whose time was up in an earlier one."""
        if time // SECOND > self.now // SECOND:
            for key, flow in list(self.flows.items()):
                limit = self.timeout(flow, key[0])
                if limit is not None and (flow.seen + limit * SECOND) // SECOND < time // SECOND:
                    self.end(key)
        self.now = max(self.now, time)

    def end(self, key):
        self.flows.pop(key).over = True

    def find(self, packet, key):
        """The flow of a frame, if it is there and not over with this frame."""
        flow = self.flows.get(key)
        if flow is None:
            return None
        limit = self.timeout(flow, key[0])
        idle = limit is not None and self.now - flow.seen > limit * SECOND
        begins = packet.flags is not None and packet.flags & (SYN | ACK | RST | FIN) == SYN
        if idle or (begins and flow.restarts):
            self.end(key)
            return None
        return flow


class Card(Table):
    def __init__(self, idle):
        super().__init__(lambda flow, protocol: idle)
        self.ended = []  # the host's flows whose entries have left the table since the last burst

    def learn(self, key, flow):
        """Take over a flow of the host's. FINs that the host saw count as acknowledged."""
        entry = Flow(flow.initiator, flow.midstream, self.now, host_flow=(key, flow))
        entry.fin = [None if fin is None else 0 for fin in flow.fin]
        entry.fin_acked = [fin is not None for fin in flow.fin]
        if key in self.flows:
            self.end(key)
        self.flows[key] = entry

    def end(self, key):
        self.ended.append(self.flows[key].host_flow)
        super().end(key)

    def takes(self, packet):
        """Whether the card acts on a frame alone."""
        key, ends = self.key(packet)
        flow = self.find(packet, key)
        if flow is None:
            return False
        flow.seen = self.now
        flow.step(attrs.evolve(packet, source=ends[0], destination=ends[1]))
        if flow.closed and packet.flags is not None:
            self.end(key)
        return True


class Host(Table):
    def __init__(self, idle):
        super().__init__(lambda flow, protocol: _host_timeout(flow, protocol, idle))
        self.matched = []

    def takes(self, packet, verdict):
        """The fate of a frame that reaches the host."""
        key, ends = self.key(packet)
        packet = attrs.evolve(packet, source=ends[0], destination=ends[1])
        flow = self.find(packet, key)
        if flow is None:
            answers = packet.flags is not None and packet.flags & (SYN | ACK) == SYN | ACK
            midstream = packet.protocol == TCP and not (packet.flags or 0) & SYN
            flow = self.flows[key] = Flow(ends[1] if answers else ends[0], midstream, self.now)
            if answers:
                flow.syn_both.add(0)
        flow.seen = self.now
        flow.step(packet)
        if flow.matched:
            return Fate.SKIPPED
        if verdict is None:
            return Fate.INSPECTED
        flow.matched = True
        self.matched.append((key, flow))
        return verdict


def _host_timeout(flow, protocol, idle):
    """Seconds of idle time after which the host forgets a flow: `flowshunt.flows.record.FlowTimeouts`."""
    if flow.bypassed_by:
        return None if flow.bypassed_by == "card" else idle
    if protocol == TCP:
        return 60 if flow.closed or not flow.handshake else 600
    return 300 if len(flow.senders) == 2 else 30


def fates(path, burst, rules=None, idle=100):
    """The Fate of each frame of a pcap file, in order, with `burst` frames a burst and a timeout of `idle` seconds."""
    rules = rules or BypassRules()
    card, host = Card(idle), Host(idle)
    answer = []
    records = list(read_pcap(path))
    for part in _bursts(records, burst):
        began = part[0][0]
        if card.now and began - max(card.now, host.now) > LONGEST:
            _end_of_burst(card, host, began)
        # The card takes the whole burst before the host sees any of it.
        taken = []
        for time, frame in part:
            card.advance(time)
            packet = parse(frame)
            taken.append((time, packet, packet is not None and card.takes(packet)))
        for time, packet, by_card in taken:
            if by_card:
                answer.append(Fate.CARD)
                continue
            host.advance(time)
            answer.append(Fate.INSPECTED if packet is None else host.takes(packet, rules.verdict(packet)))
        for key, flow in host.matched:
            if flow.over or flow.closed:
                flow.bypassed_by = "host"
            else:
                flow.bypassed_by = "card"
                card.learn(key, flow)
            flow.seen = host.now
        host.matched.clear()
        _end_of_burst(card, host, max(card.now, host.now))
    return answer


def _end_of_burst(card, host, now):
    card.advance(now)
    for key, flow in card.ended:
        if host.flows.get(key) is flow:
            host.end(key)
    card.ended.clear()
    host.advance(now)


def _bursts(records, size):
    for start in range(0, len(records), size):
        part = []
        for time, frame in records[start : start + size]:
            if part and time - part[0][0] > LONGEST:
                yield part
                part = []
            part.append((time, frame))
        yield part


def reaching_host(path, burst, rules=None, idle=100):
    """The numbers, from 0, of the frames that reach the host."""
    return [number for number, fate in enumerate(fates(path, burst, rules, idle)) if fate is not Fate.CARD]


def read_pcap(path):
    """(time in ns, frame) of each record of a pcap file."""
    data = Path(path).read_bytes()
    order = "<" if data[0] in (0xD4, 0x4D) else ">"
    magic = struct.unpack_from(order + "I", data)[0]
    unit = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}[magic]
    assert struct.unpack_from(order + "I", data, 20)[0] == 1
    at = 24
    while at < len(data):
        seconds, fraction, captured, _ = struct.unpack_from(order + "IIII", data, at)
        at += 16
        yield seconds * SECOND + fraction * unit, data[at : at + captured]
        at += captured


def parse(frame):
    """The packet in an Ethernet frame, or None where there is no IP."""
    l3, vlans = 14, []
    kind = frame[12:14]
    while kind in (b"\x81\x00", b"\x88\xa8", b"\x91\x00"):
        vlans.append(int.from_bytes(frame[l3 : l3 + 2], "big") & 0xFFF)
        kind = frame[l3 + 2 : l3 + 4]
        l3 += 4
    fragment, later = None, False
    if kind == b"\x08\x00":
        header = (frame[l3] & 15) * 4
        length, ident, offset = struct.unpack_from(">HHH", frame, l3 + 2)
        protocol = frame[l3 + 9]
        addresses = frame[l3 + 12 : l3 + 16], frame[l3 + 16 : l3 + 20]
        body = frame[l3 + header : l3 + length]
        if offset & 0x3FFF:
            fragment, later = ident, offset & 0x1FFF != 0
    elif kind == b"\x86\xdd":
        length, protocol = struct.unpack_from(">HB", frame, l3 + 4)
        addresses = frame[l3 + 8 : l3 + 24], frame[l3 + 24 : l3 + 40]
        body = frame[l3 + 40 : l3 + 40 + length]
        if protocol == 44:
            protocol, _, offset, fragment = struct.unpack_from(">BBHI", body)
            later = offset & ~7 != 0
            body = body[8:]
    else:
        return None
    ports, flags, end, ack = (0, 0), None, 0, 0
    if protocol in (TCP, UDP) and not later:
        ports = struct.unpack_from(">HH", body)
    if protocol == TCP and not later:
        sequence, ack, offset, flags = struct.unpack_from(">IIBB", body, 4)
        end = sequence + len(body) - (offset >> 4) * 4 + bool(flags & SYN)
    source, destination = zip(addresses, ports, strict=True)
    return Packet(source, destination, tuple(vlans), protocol, fragment, later, flags, end, ack)
