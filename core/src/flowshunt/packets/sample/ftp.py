"""FTP dialogues: the commands of an active-mode session, and the transfer that it causes (RFC 959)."""

from collections.abc import Callable, Iterator

from flowshunt.packets.sample.addresses import Ends
from flowshunt.packets.sample.flow import MILLISECOND, Flow, Turn
from flowshunt.packets.sample.pools import WORDS, Pools


def login(user: bytes, password: bytes, accepted: bool = True) -> Iterator[Turn]:
    """The server's greeting, then a user's name and password."""
    yield 1, b"220 FTP server ready.\r\n"
    yield 0, b"USER %s\r\n" % user
    yield 1, b"331 Password required for %s.\r\n" % user
    yield 0, b"PASS %s\r\n" % password
    yield 1, b"230 User %s logged in.\r\n" % user if accepted else b"530 Not accepted.\r\n"


def control(transfer: Flow) -> Callable[[Flow, Pools], Iterator[Turn]]:
    """The dialogue of a control connection that asks for `transfer`, a flow from the server's port 20."""

    def dialogue(flow: Flow, pools: Pools) -> Iterator[Turn]:
        dice = flow.dice
        name = b"%s-%d.tar" % (dice.pick(WORDS), dice.below(1000))
        yield from login(dice.pick(WORDS), b"%s%d" % (dice.pick(WORDS), dice.below(100)))
        yield 0, b"TYPE I\r\n"
        yield 1, b"200 Type set to I.\r\n"
        yield 0, _port_command(transfer.ends)
        yield 1, b"200 PORT command successful.\r\n"
        yield 0, b"RETR %s\r\n" % name
        flow.hold(transfer.start - MILLISECOND)
        yield 1, b"150 Opening BINARY mode data connection for %s.\r\n" % name
        flow.hold(transfer.start + transfer.lifetime * 5 // 4)
        yield 1, b"226 Transfer complete.\r\n"
        yield 0, b"QUIT\r\n"
        yield 1, b"221 Goodbye.\r\n"

    return dialogue


def _port_command(ends: Ends) -> bytes:
    if ends.version == 6:
        groups = b":".join(ends.server.address[at : at + 2].hex().encode() for at in range(0, 16, 2))
        return b"EPRT |2|%s|%d|\r\n" % (groups, ends.server_port)
    numbers = (*ends.server.address, *divmod(ends.server_port, 256))
    return b"PORT %s\r\n" % b",".join(b"%d" % number for number in numbers)


def transfer(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """A file, from the end that opened the connection."""
    size = max(flow.left(), 4) * 900
    for start in range(0, size, 1 << 16):
        yield 0, pools.noise_slice(flow.dice, min(size - start, 1 << 16))
