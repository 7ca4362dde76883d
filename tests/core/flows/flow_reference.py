"""A flow table in plain Python, with the semantics that `flowshunt.flows.table` states, written from the text.

It has no capacity: eviction and rows are tested on their own.
"""

import ipaddress

import attrs
from flow_frames import ACK, FIN, ICMP, ICMPV6, RST, SCTP, SECOND, START, SYN, TCP, UDP, wire

from flowshunt.flows.record import Bypass, EndReason, FlowTimeouts, TcpState

NEW, ESTABLISHED = 1, 2
HOUR = 3600 * SECOND
FRAGMENT_LIFETIME = 60 * SECOND


@attrs.define
class Flow:
    id: int
    version: int
    protocol: int
    vlans: tuple
    initiator: tuple
    responder: tuple
    first: int
    port: int
    last: int = 0
    seen: int = 0
    state: TcpState = TcpState.NONE
    reason: EndReason = EndReason.NONE
    tcp_flags: list = attrs.Factory(lambda: [0, 0])
    packets: list = attrs.Factory(lambda: [0, 0])
    bytes: list = attrs.Factory(lambda: [0, 0])
    bypassed_packets: list = attrs.Factory(lambda: [0, 0])
    bypassed_bytes: list = attrs.Factory(lambda: [0, 0])
    both_ways: set = attrs.Factory(set)
    handshake: bool = False
    fin: list = attrs.Factory(lambda: [None, None])
    fin_acked: list = attrs.Factory(lambda: [False, False])
    action: int = 0
    bypass: Bypass = Bypass.NONE

    def record(self):
        return {
            "id": self.id,
            "source": self.initiator[0],
            "destination": self.responder[0],
            "source_port": self.initiator[1],
            "destination_port": self.responder[1],
            "vlan": self.vlans[0],
            "inner_vlan": self.vlans[1],
            "protocol": self.protocol,
            "ip_version": self.version,
            "tcp_state": int(self.state),
            "end_reason": int(self.reason),
            "tcp_flags": self.tcp_flags,
            "action": self.action,
            "bypass": int(self.bypass),
            "port": self.port,
            "first": self.first,
            "last": self.last,
            "packets": self.packets,
            "bytes": self.bytes,
            "bypassed_packets": self.bypassed_packets,
            "bypassed_bytes": self.bypassed_bytes,
        }


class ReferenceTable:
    def __init__(self, timeouts=None):
        self.timeouts = timeouts or FlowTimeouts()
        self.flows = {}
        self.ended = []
        self.next_id = 1
        self.clock = None
        self.shift = 0
        self.stray = None  # (side, time, flow) of the last frame, where its time was not believed
        self.datagrams = {}
        self.fragments_matched = 0
        self.fragments_unmatched = 0

    # Packet time and timers

    def observe(self, timestamp):
        """Returns the frame's own time and whether it is a stray."""
        if self.clock is None:
            self.clock = timestamp
            for flow in self.flows.values():
                flow.seen = timestamp
            return timestamp, 0
        own = timestamp + self.shift
        side = (own > self.clock + HOUR) - (own < self.clock - HOUR)
        before, self.stray = self.stray, None
        second = self.clock // SECOND
        if side == 0:
            self.clock = max(self.clock, own)
        elif before is not None and before[0] == side:
            if side > 0:
                self.clock = min(own, before[1] + self.shift)
                if before[2] is not None:
                    before[2].seen = self.clock
            else:
                self.shift = self.clock - max(timestamp, before[1])
            side = 0
        else:
            self.stray = (side, timestamp, None)
        if self.clock // SECOND > second:
            for flow in list(self.flows.values()):
                if (flow.seen + self.timeout(flow)) // SECOND < self.clock // SECOND:
                    self.end(flow, EndReason.TIMEOUT)
        return max(own, self.clock), side

    def expire(self, now):
        if self.stray is None or self.stray[1] != now:
            self.observe(now)

    def timeout(self, flow):
        if flow.bypass == Bypass.CAPTURE:
            return 1 << 61
        if flow.bypass == Bypass.LOCAL:
            seconds = self.timeouts.bypassed
        elif flow.protocol == TCP:
            if flow.state == TcpState.CLOSED:
                seconds = self.timeouts.tcp_closed
            else:
                seconds = self.timeouts.tcp_established if flow.handshake else self.timeouts.tcp_new
        else:
            name = {UDP: "udp", ICMP: "icmp", ICMPV6: "icmp"}.get(flow.protocol, "other")
            kind = "established" if len(flow.both_ways) == 2 else "new"
            seconds = getattr(self.timeouts, f"{name}_{kind}")
        return int(seconds * SECOND)

    def end(self, flow, reason):
        flow.reason = reason
        for key, other in list(self.flows.items()):
            if other is flow:
                del self.flows[key]
        self.ended.append(flow)

    # Frames

    def endpoints(self, packet):
        version = ipaddress.ip_address(packet.source).version
        vlans = tuple(0xFFFF if v is None else v for v in (packet.vlan, packet.inner_vlan))
        ports = (0, 0)
        if packet.protocol in (TCP, UDP, SCTP):
            if packet.transport:
                ports = (packet.source_port, packet.destination_port)
            if packet.fragment:
                datagram = (packet.source, packet.destination, packet.protocol, packet.fragment.identification, vlans)
                if packet.later:
                    seen, known = self.datagrams.get(datagram, (None, None))
                    if seen is not None and self.clock - seen <= FRAGMENT_LIFETIME:
                        ports = known
                        self.fragments_matched += 1
                    else:
                        ports = (0, 0)
                        self.fragments_unmatched += 1
                else:
                    self.datagrams[datagram] = (self.clock, ports)
        source = (ipaddress.ip_address(packet.source), ports[0])
        destination = (ipaddress.ip_address(packet.destination), ports[1])
        return version, vlans, source, destination

    def frame(self, packet, *, create=True, auto_unlearn=False):
        """Returns (flow or None, direction, events)."""
        own, side = self.observe(START + packet.time)
        if not packet.ip:
            return None, 0, 0
        version, vlans, source, destination = self.endpoints(packet)
        key = (version, packet.protocol, vlans, frozenset([source, destination]))
        flags = packet.flags if packet.protocol == TCP and packet.transport and not packet.later else None
        flow = self.flows.get(key)
        events = 0
        if flow and own - flow.seen > self.timeout(flow):
            self.end(flow, EndReason.TIMEOUT)
            flow = None
        elif flow and flags is not None and flags & (SYN | ACK | RST | FIN) == SYN:
            both_closing = None not in flow.fin
            if flow.state in (TcpState.NONE, TcpState.CLOSED) or both_closing:
                self.end(flow, EndReason.TCP_END)
                flow = None
        if flow is None:
            if not create:
                return None, 0, 0
            flow = self.start(packet, key, version, vlans, source, destination, flags)
            events = NEW
        direction = 0 if source == flow.initiator else 1
        flow.seen = self.clock
        if side:
            self.stray = (side, START + packet.time, flow)
        flow.last = START + packet.time
        flow.packets[direction] += 1
        flow.bytes[direction] += wire(packet)
        if create and flow.bypass != Bypass.NONE:
            flow.bypassed_packets[direction] += 1
            flow.bypassed_bytes[direction] += wire(packet)
        flow.both_ways.add(direction)
        if flags is not None:
            self.tcp(flow, direction, packet)
        if flow.handshake if packet.protocol == TCP else len(flow.both_ways) == 2:
            events |= ESTABLISHED
        if auto_unlearn and packet.protocol == TCP and flow.state == TcpState.CLOSED:
            self.end(flow, EndReason.TCP_END)
        return flow, direction, events

    def start(self, packet, key, version, vlans, source, destination, flags):
        state = TcpState.NONE
        if flags is not None and flags & SYN:
            state = TcpState.SYN_SENT
            if flags & ACK:
                state = TcpState.SYN_RECEIVED
                source, destination = destination, source
        flow = Flow(
            self.next_id, version, packet.protocol, vlans, source, destination, START + packet.time, packet.port
        )
        flow.state = state
        self.next_id += 1
        self.flows[key] = flow
        return flow

    def tcp(self, flow, direction, packet):
        other = 1 - direction
        flow.tcp_flags[direction] |= packet.flags
        if packet.flags & RST:
            flow.state = TcpState.CLOSED
            return
        if flow.state == TcpState.SYN_SENT and direction == 1 and packet.flags & SYN:
            flow.state = TcpState.SYN_RECEIVED
        elif flow.state == TcpState.SYN_RECEIVED and direction == 0 and packet.flags & ACK:
            flow.state = TcpState.ESTABLISHED
            flow.handshake = True
        if packet.flags & FIN:
            syn = 1 if packet.flags & SYN else 0
            flow.fin[direction] = (packet.seq + syn + packet.payload + 1) % (1 << 32)
        if packet.flags & ACK and flow.fin[other] is not None and (packet.ack - flow.fin[other]) % (1 << 32) < 1 << 31:
            flow.fin_acked[other] = True
        if all(flow.fin_acked):
            flow.state = TcpState.CLOSED
        elif flow.state in (TcpState.NONE, TcpState.ESTABLISHED) and flow.fin != [None, None]:
            flow.state = TcpState.CLOSING

    # What the owner does

    def live(self):
        return {flow.id: flow for flow in self.flows.values()}

    def bypass(self, ids, action, kind):
        for number in ids:
            flow = self.live()[number]
            flow.action = action
            flow.bypass = kind
            flow.seen = self.clock if self.clock is not None else 0

    def account(self, number, packets, octets, last):
        flow = self.live()[number]
        for direction in (0, 1):
            flow.packets[direction] += packets[direction]
            flow.bypassed_packets[direction] += packets[direction]
            flow.bytes[direction] += octets[direction]
            flow.bypassed_bytes[direction] += octets[direction]
        flow.last = max(flow.last, last)
        flow.seen = self.clock

    def insert(self, record, action):
        """Take a copy of another table's flow, as a NIC does."""
        flow = Flow(
            record.id,
            record.version,
            record.protocol,
            record.vlans,
            record.initiator,
            record.responder,
            record.first,
            record.port,
        )
        flow.last = record.last
        flow.state = record.state
        flow.tcp_flags = list(record.tcp_flags)
        flow.handshake = record.state >= TcpState.ESTABLISHED
        flow.both_ways = {direction for direction in (0, 1) if record.packets[direction]}
        for direction in (0, 1):
            if record.tcp_flags[direction] & FIN:
                flow.fin[direction] = 0
                flow.fin_acked[direction] = True
        flow.action = action
        flow.seen = self.clock if self.clock is not None else 0
        key = (record.version, record.protocol, record.vlans, frozenset([record.initiator, record.responder]))
        if key in self.flows:
            self.end(self.flows[key], EndReason.UNLEARNED)
        self.flows[key] = flow

    def close(self):
        for flow in list(self.flows.values()):
            self.end(flow, EndReason.SHUTDOWN)

    def drain(self):
        ended, self.ended = self.ended, []
        return ended


def records(ended):
    """FLOW[k] as a list of dictionaries like `Flow.record`."""
    rows = []
    for record in ended:
        row = {name: record[name].tolist() for name in record.dtype.names if name not in ("flags", "state")}
        size = 4 if row["ip_version"] == 4 else 16
        for side in ("source", "destination"):
            octets = bytes(row[side])
            assert not any(octets[size:])
            row[side] = ipaddress.ip_address(octets[:size])
        rows.append(row)
    return rows
