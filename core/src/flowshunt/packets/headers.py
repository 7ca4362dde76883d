"""What header decoding finds in a frame: one 64-byte row a frame, offsets counted from the frame's first byte."""

import numpy as np

HEADER = np.dtype(
    [
        ("l3", "<u4"),  # offset of the innermost IP header; 0 with ip_version 0: none
        ("l4", "<u4"),  # offset of the transport header; 0: none (no IP, a later fragment, cut off)
        ("payload", "<u4"),  # offset of the transport payload (of the IP payload, where the transport isn't known)
        ("payload_length", "<u4"),  # its bytes that were captured and belong to the packet (no Ethernet padding)
        ("outer_l3", "<u4"),  # offset of the outermost IP header; equals l3 where there is no tunnel
        ("flags", "<u4"),  # the bits below
        ("fragment_id", "<u4"),  # IP identification, where FRAGMENT is set
        ("seq", "<u4"),  # TCP sequence number
        ("ack", "<u4"),  # TCP acknowledgement number
        ("source_port", "<u2"),  # TCP, UDP, SCTP; ICMP: the type in source_port, the code in destination_port
        ("destination_port", "<u2"),
        ("window", "<u2"),  # TCP window, unscaled
        ("vlan", "<u2"),  # outer VLAN id; NO_VLAN where there is none
        ("inner_vlan", "<u2"),  # second VLAN id; NO_VLAN where there is none
        ("ethertype", "<u2"),  # of the innermost frame, after VLAN tags and MPLS labels
        ("fragment_offset", "<u2"),  # bytes / 8
        ("ip_version", "u1"),  # 4, 6, or 0: no IP packet
        ("protocol", "u1"),  # transport protocol, after IPv6 extension headers
        ("tcp_flags", "u1"),
        ("ttl", "u1"),  # IPv4 TTL or IPv6 hop limit
        ("tunnel", "u1"),  # innermost tunnel kind, the TUNNEL_ values
        ("depth", "u1"),  # how many tunnel headers were passed
        ("pad", "u1", (8,)),
    ],
    align=False,
)
assert HEADER.itemsize == 64

NO_VLAN = 0xFFFF

FRAGMENT = 1 << 0
"""Part of a fragmented datagram (first fragment included)."""
LATER_FRAGMENT = 1 << 1
"""A fragment that does not hold the transport header."""
TRUNCATED = 1 << 2
"""The capture ends inside a header, or before the end that the IP header states."""
MALFORMED = 1 << 3
"""A length or version field contradicts the frame: decoding stopped at that header."""
IP_OPTIONS = 1 << 4
"""IPv4 options or IPv6 extension headers are present."""
MORE_FRAGMENTS = 1 << 5
"""A fragment that another one follows."""
UNKNOWN_LINK = 1 << 6
"""A link type that is not decoded."""
TOO_DEEP = 1 << 7
"""More tunnels or tags than the limit: decoded down to the limit."""

TUNNEL_NONE = 0
TUNNEL_IP4_IN_IP4 = 1
TUNNEL_IP6_IN_IP4 = 2
TUNNEL_IP4_IN_IP6 = 3
TUNNEL_IP6_IN_IP6 = 4
TUNNEL_GRE = 5
TUNNEL_NVGRE = 6
TUNNEL_VXLAN = 7
TUNNEL_GTPU = 8
TUNNEL_GENEVE = 9
TUNNEL_TEREDO = 10
