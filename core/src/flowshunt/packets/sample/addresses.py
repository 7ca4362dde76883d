"""The address plan of sample traffic: who talks to whom, from which port, in which VLAN.

Inside is 10.0.0.0/8 and 2001:db8:1::/48. Outside are documentation and benchmark ranges (RFC 5737, RFC 2544, RFC 3849)
and some ranges that look public. The capture is taken between the inside hosts and their router, so that everything
from outside carries the router's MAC address.
"""

import struct

import attrs

from flowshunt.packets.sample.dice import Dice

CLIENTS = 2048
PORTS = 28232
"""Ephemeral ports, from FIRST_PORT on, as Linux uses them."""
FIRST_PORT = 32768

ROUTER_MAC = bytes.fromhex("00000c07ac01")
INSIDE_MAC = bytes.fromhex("3c5282")

CLIENT_NET = 1  # 10.1.0.0/16 to 10.8.0.0/16
SERVER_NET = 20
BACKUP_NET = 99

_OUTSIDE = (
    (0xC6120000, 1 << 17),  # 198.18.0.0/15, benchmarks
    (0xC0000200, 1 << 8),  # 192.0.2.0/24
    (0x68100000, 1 << 18),  # 104.16.0.0/14
    (0x2D210000, 1 << 16),  # 45.33.0.0/16
    (0x97650000, 1 << 16),  # 151.101.0.0/16
)
_ATTACKERS = (0xC6336400, 0xCB007100)  # 198.51.100.0/24, 203.0.113.0/24


@attrs.frozen
class Host:
    """One end of a flow: its IP address (4 or 16 bytes, network byte order) and its MAC address in the capture."""

    address: bytes
    mac: bytes


@attrs.frozen
class Ends:
    """Where a flow runs: the initiator's end, the other end, their ports, and the VLAN ids, outer first."""

    client: Host
    server: Host
    client_port: int
    server_port: int
    vlans: tuple[int, ...] = ()

    @property
    def version(self) -> int:
        """The IP version, 4 or 6."""
        return 4 if len(self.client.address) == 4 else 6


def inside(net: int, index: int, version: int = 4) -> Host:
    """The inside host number `index` (0 to 65533) of network `net`: 10.net.x.y, or 2001:db8:1:net::x."""
    index += 1
    mac = INSIDE_MAC + struct.pack(">BH", net, index)
    if version == 4:
        return Host(struct.pack(">BBH", 10, net, index), mac)
    return Host(struct.pack(">HHHHQ", 0x2001, 0x0DB8, 1, net, index), mac)


BACKUP_SERVER = inside(BACKUP_NET, 9)
"""The trusted server, 10.99.0.10: everything from and to it may be bypassed."""
RESOLVER = 52
MAIL_SERVER = 24
FTP_SERVER = 20
SYSLOG_SERVER = 13
"""Indices in SERVER_NET; the rest of the net's hosts are web and login servers."""


def outside(dice: Dice, version: int = 4) -> Host:
    """Some server on the Internet."""
    if version == 4:
        first, size = _OUTSIDE[min(int(dice.quantile(((0, 0), (0.5, 1), (1, 5)))), 4)]
        return Host((first + 1 + dice.below(size - 2)).to_bytes(4, "big"), ROUTER_MAC)
    return Host(struct.pack(">HHIQ", 0x2001, 0x0DB8, 0xF0000000 + dice.below(4096), 1 + dice.below(65535)), ROUTER_MAC)


def attacker(number: int, version: int = 4) -> Host:
    """The host that the attack flow of this number comes from or reports to."""
    if version == 4:
        return Host((_ATTACKERS[number & 1] + 1 + number % 254).to_bytes(4, "big"), ROUTER_MAC)
    return Host(struct.pack(">HHIQ", 0x2001, 0x0DB8, 0xBAD00000, 1 + number % 65535), ROUTER_MAC)


def client_index(number: int) -> int:
    """Which client opens flow `number`. Together with `client_port`, no two of CLIENTS * PORTS flows are alike."""
    turn, place = divmod(number, PORTS)
    return (turn + (place * 0x9E3779B1 >> 7)) % CLIENTS


def client_port(number: int) -> int:
    """The port that flow `number` is opened from; steps through all ports in an order that looks random."""
    return FIRST_PORT + number * 7919 % PORTS


def client(number: int, version: int = 4) -> Host:
    """The inside client that opens flow `number`."""
    index = client_index(number)
    return inside(CLIENT_NET + index // 256, index % 256, version)


def vlans(number: int) -> tuple[int, ...]:
    """The VLAN tags of the client that opens flow `number`: one client in eight sits in a VLAN, one in 64 in two."""
    index = client_index(number)
    if index % 8 == 1:
        return (100 + index // 256,)
    if index % 64 == 2:
        return (200, 300 + index // 256)
    return ()


def server(index: int, version: int = 4) -> Host:
    """A server inside."""
    return inside(SERVER_NET, index, version)
