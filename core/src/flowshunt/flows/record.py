"""Flow records: what is known of a flow, one row a flow. Direction 0 is from the initiator, direction 1 to it."""

import enum

import attrs
import numpy as np

FLOW = np.dtype(
    [
        ("id", "<u8"),  # never used twice in a table; 0: the row is free
        ("source", "u1", (16,)),  # the initiator's address, network byte order; IPv4 in the first 4 bytes, rest 0
        ("destination", "u1", (16,)),
        ("source_port", "<u2"),  # 0 where the protocol has none (ICMP: 0)
        ("destination_port", "<u2"),
        ("vlan", "<u2"),  # NO_VLAN where there is none
        ("inner_vlan", "<u2"),
        ("protocol", "u1"),
        ("ip_version", "u1"),
        ("tcp_state", "u1"),  # TcpState
        ("end_reason", "u1"),  # EndReason
        ("tcp_flags", "u1", (2,)),  # all flags seen, per direction
        ("action", "u1"),  # 0: inspected; otherwise the number of an offload action in the table of its owner
        ("bypass", "u1"),  # Bypass
        ("port", "<u2"),  # NIC port that the first frame came in by
        ("flags", "<u2"),
        ("first", "<i8"),  # timestamp of the first frame, ns since 1970-01-01 UTC
        ("last", "<i8"),  # timestamp of the last frame
        ("packets", "<u8", (2,)),  # all packets of the flow, bypassed ones included
        ("bytes", "<u8", (2,)),  # their bytes on the wire
        ("bypassed_packets", "<u8", (2,)),
        ("bypassed_bytes", "<u8", (2,)),
        ("state", "<u8", (4,)),  # 32 bytes that belong to the flow's offload action
    ],
    align=False,
)


class TcpState(enum.IntEnum):
    """Where a TCP connection stands, seen from the middle. NONE: not TCP, or picked up in the middle."""

    NONE = 0
    SYN_SENT = 1
    SYN_RECEIVED = 2
    ESTABLISHED = 3
    CLOSING = 4
    CLOSED = 5


class EndReason(enum.IntEnum):
    """Why a flow's record was closed."""

    NONE = 0
    TCP_END = 1
    TIMEOUT = 2
    UNLEARNED = 3
    DISPLACED = 4
    SHUTDOWN = 5


class Bypass(enum.IntEnum):
    """Who acts on the rest of a flow."""

    NONE = 0
    LOCAL = 1
    CAPTURE = 2


@attrs.frozen
class FlowTimeouts:
    """Idle time in seconds of packet time after which a flow ends. `new`: packets seen one way only, or no handshake.

    The defaults are Suricata's (`flow-timeouts` in its configuration guide).
    """

    tcp_new: float = 60.0
    tcp_established: float = 600.0
    tcp_closed: float = 60.0
    udp_new: float = 30.0
    udp_established: float = 300.0
    icmp_new: float = 30.0
    icmp_established: float = 300.0
    other_new: float = 30.0
    other_established: float = 300.0
    bypassed: float = 100.0
