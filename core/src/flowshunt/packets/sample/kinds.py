"""The kinds of background flows: how each is opened between which hosts."""

from collections.abc import Callable, Iterator

import attrs

from flowshunt.packets.sample import addresses, backup, dns, ftp, http, quic, smtp, ssh, telnet, tls
from flowshunt.packets.sample.addresses import Ends, Host
from flowshunt.packets.sample.dice import Dice
from flowshunt.packets.sample.flow import MICROSECOND, Dialogue, Flow, Turn
from flowshunt.packets.sample.icmp import EchoFlow
from flowshunt.packets.sample.pools import Pools
from flowshunt.packets.sample.probe import RETRIES, ProbeFlow
from flowshunt.packets.sample.tcp import END_FIN, END_OPEN, END_RST, Behaviour, TcpFlow
from flowshunt.packets.sample.udp import UdpFlow

Script = Callable[[Flow, Pools], Iterator[Turn]]

IPV6_SHARE = 0.15
SWAP = 0.058
LOSS = 0.017
"""Per data segment; chosen so that about one frame in a hundred arrives late, and one in a hundred again."""


@attrs.frozen
class Opening:
    """What a kind needs to open its flow: its number, start and lifetime (ns), frames to spend, and draws."""

    number: int
    start: int
    lifetime: int
    budget: int
    dice: Dice
    pools: Pools


@attrs.frozen
class Kind:
    """One kind of background traffic.

    Attributes:
        name: what reports call it.
        flows: its share of all flows.
        frames: its share of all frames.
        largest: the most frames that one flow of it takes.
        seconds: the range that its flows' lifetimes are drawn from.
        open: opens a flow, and those that come with it.
        count: how many flows one opening makes.
    """

    name: str
    flows: float
    frames: float
    largest: int
    seconds: tuple[float, float]
    open: Callable[[Opening], list[Flow]]
    count: int = 1


def _version(dice: Dice) -> int:
    return 6 if dice.chance(IPV6_SHARE) else 4


def _delays(opening: Opening, far: bool) -> tuple[int, int]:
    """Way to the server and back, way to the client and back, ns, for a server far away or in the house.

    Flows with much to send in their lifetime get a server that is near enough for it.
    """
    dice = opening.dice
    to_server = (dice.between(6000, 80_000) if far else dice.between(150, 900)) * MICROSECOND
    return min(to_server, opening.lifetime * 2 // opening.budget), dice.between(80, 600) * MICROSECOND


def _outbound(opening: Opening, port: int) -> Ends:
    """From a client inside to a server outside."""
    version = _version(opening.dice)
    number = opening.number
    return Ends(
        addresses.client(number, version),
        addresses.outside(opening.dice, version),
        addresses.client_port(number),
        port,
        addresses.vlans(number),
    )


def _internal(opening: Opening, port: int, server: int) -> Ends:
    """From a client inside to a server inside."""
    version = _version(opening.dice)
    number = opening.number
    ends = (addresses.client(number, version), addresses.server(server, version))
    return Ends(*ends, addresses.client_port(number), port, addresses.vlans(number))


def _inbound(opening: Opening, port: int, server: int) -> Ends:
    """From outside to a server inside."""
    version = _version(opening.dice)
    ends = (addresses.outside(opening.dice, version), addresses.server(server, version))
    return Ends(*ends, addresses.client_port(opening.number), port)


def _to_backup(opening: Opening, port: int) -> Ends:
    """From a server or client inside to the trusted backup server, which has an IPv4 address only."""
    client: Host = addresses.client(opening.number)
    port_from = addresses.client_port(opening.number)
    return Ends(client, addresses.BACKUP_SERVER, port_from, port, addresses.vlans(opening.number))


def _dialogue(script: Script, pools: Pools) -> Dialogue:
    return lambda flow: script(flow, pools)


def _tcp(name: str, script: Script, opening: Opening, ends: Ends, far: bool) -> list[Flow]:
    dice = opening.dice
    end = dice.random()
    behaviour = Behaviour(
        delay=_delays(opening, far),
        gap=dice.between(1, 14) * MICROSECOND,
        burst=dice.between(8, 32),
        stretch=2 if dice.chance(0.7) else 4,
        timestamps=dice.chance(0.7),
        swap=SWAP,
        loss=LOSS,
        end=END_FIN if end < 0.82 else END_RST if end < 0.94 else END_OPEN,
        mtu=dice.pick((1280, 1400, 1492)) if dice.chance(0.01) else 0,
    )
    start, lifetime, budget = opening.start, opening.lifetime, opening.budget
    return [TcpFlow(name, ends, start, lifetime, budget, dice, _dialogue(script, opening.pools), behaviour)]


def _udp(name: str, script: Script, opening: Opening, ends: Ends, far: bool) -> list[Flow]:
    delays = _delays(opening, far)
    start, lifetime, budget = opening.start, opening.lifetime, opening.budget
    return [UdpFlow(name, ends, start, lifetime, budget, opening.dice, _dialogue(script, opening.pools), delays)]


def _dns(opening: Opening) -> list[Flow]:
    script = dns.texts if opening.dice.chance(0.02) else dns.lookup
    return _udp("dns", script, opening, _internal(opening, 53, addresses.RESOLVER), far=False)


def _dns_tcp(opening: Opening) -> list[Flow]:
    return _tcp("dns-tcp", dns.over_tcp, opening, _internal(opening, 53, addresses.RESOLVER), far=False)


def _http(opening: Opening) -> list[Flow]:
    inbound = opening.dice.chance(0.2)
    ends = _inbound(opening, 80, 79 + opening.dice.below(8)) if inbound else _outbound(opening, 80)
    return _tcp("http", http.browse, opening, ends, far=True)


def _smtp(opening: Opening) -> list[Flow]:
    return _tcp("smtp", smtp.deliver, opening, _inbound(opening, 25, addresses.MAIL_SERVER), far=True)


def _telnet(opening: Opening) -> list[Flow]:
    ends = _internal(opening, 23, 200 + opening.dice.below(30))
    return _tcp("telnet", telnet.session, opening, ends, far=False)


def _ftp(opening: Opening) -> list[Flow]:
    """A control connection, and the transfer that the server opens back to the client."""
    ends = _internal(opening, 21, addresses.FTP_SERVER)
    back = Ends(ends.server, ends.client, 20, addresses.client_port(opening.number + 1), ends.vlans)
    half = opening.lifetime // 2
    number = opening.number + 1
    spare = max(opening.budget - 28, 12)
    dice = Dice(opening.dice.below(1 << 32))
    moved = attrs.evolve(opening, number=number, start=opening.start + half, lifetime=half, budget=spare, dice=dice)
    (transfer,) = _tcp("ftp", ftp.transfer, moved, back, far=False)
    (control,) = _tcp("ftp", ftp.control(transfer), attrs.evolve(opening, budget=28), ends, far=False)
    return [control, transfer]


def _web(opening: Opening) -> list[Flow]:
    return _tcp("tls-web", tls.web, opening, _outbound(opening, 443), far=True)


def _interface(opening: Opening) -> list[Flow]:
    dice = opening.dice
    far = dice.chance(0.5)
    port = dice.pick((443, 443, 8443, 6443, 9243))
    ends = _outbound(opening, port) if far else _internal(opening, port, 300 + dice.below(60))
    return _tcp("tls-api", tls.interface, opening, ends, far)


def _video(opening: Opening) -> list[Flow]:
    return _tcp("tls-video", tls.video, opening, _outbound(opening, 443), far=True)


def _ssh(opening: Opening) -> list[Flow]:
    far = opening.dice.chance(0.3)
    ends = _outbound(opening, 22) if far else _internal(opening, 22, 400 + opening.dice.below(60))
    return _tcp("ssh", ssh.session, opening, ends, far)


def _backup(opening: Opening) -> list[Flow]:
    # One session in ten goes to port 80, which only the rule for this server's address takes off inspection.
    port = opening.dice.pick((9103, 9103, 9103, 873, 873, 873, 22, 443, 8200, 80))
    return _tcp("backup", backup.upload, opening, _to_backup(opening, port), far=False)


def _tunnel(opening: Opening) -> list[Flow]:
    return _udp("backup-udp", quic.tunnel, opening, _to_backup(opening, 51820), far=False)


def _quic(opening: Opening) -> list[Flow]:
    return _udp("quic", quic.stream, opening, _outbound(opening, 443), far=True)


def _ping(opening: Opening) -> list[Flow]:
    ends = attrs.evolve(_outbound(opening, 0), client_port=0)
    return [EchoFlow("icmp", ends, opening.start, opening.budget, opening.dice)]


def _unanswered(opening: Opening) -> list[Flow]:
    ends = _outbound(opening, opening.dice.pick((443, 443, 8443, 5222)))
    times = RETRIES[: opening.budget]
    return [ProbeFlow("unanswered", ends, opening.start, opening.dice, times=times)]


KINDS = (
    Kind("dns", 0.270, 0.0085, 6, (0.01, 0.05), _dns),
    Kind("dns-tcp", 0.006, 0.0009, 60, (0.02, 2.0), _dns_tcp),
    Kind("http", 0.120, 0.0330, 6000, (0.5, 12.0), _http),
    Kind("smtp", 0.020, 0.0050, 400, (0.5, 6.0), _smtp),
    Kind("ftp", 0.010, 0.0040, 3000, (2.0, 20.0), _ftp, count=2),
    Kind("telnet", 0.005, 0.0030, 600, (4.0, 40.0), _telnet),
    Kind("tls-web", 0.205, 0.1480, 4000, (3.0, 20.0), _web),
    Kind("tls-api", 0.215, 0.3400, 4000, (5.0, 40.0), _interface),
    Kind("tls-video", 0.014, 0.0650, 10_000, (15.0, 45.0), _video),
    Kind("ssh", 0.036, 0.2150, 4000, (10.0, 45.0), _ssh),
    Kind("backup", 0.012, 0.0620, 12_000, (15.0, 45.0), _backup),
    Kind("backup-udp", 0.003, 0.0210, 6000, (15.0, 45.0), _tunnel),
    Kind("quic", 0.060, 0.0915, 6000, (1.0, 20.0), _quic),
    Kind("icmp", 0.006, 0.0011, 30, (1.0, 1.0), _ping),
    Kind("unanswered", 0.010, 0.0004, 3, (1.0, 1.0), _unanswered),
)
"""Shares of flows and of frames. The frames' shares make 12 % UDP; about 84 % of the frames may be bypassed."""
