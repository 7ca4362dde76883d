"""Telnet dialogues: option negotiation, a login, and commands typed character by character (RFC 854)."""

from collections.abc import Iterator

from flowshunt.packets.sample.flow import Flow, Turn
from flowshunt.packets.sample.pools import WORDS, Pools


def typed(text: bytes, echoed: bool = True) -> Iterator[Turn]:
    """A line, one character a turn, echoed by the server."""
    for number in range(len(text)):
        character = text[number : number + 1]
        yield 0, character
        if echoed:
            yield 1, character
    yield 0, b"\r\n"


def login(user: bytes, password: bytes) -> Iterator[Turn]:
    """Negotiation, then a user's name and password."""
    yield 1, bytes.fromhex("fffd18fffd20fffd23fffd27")
    yield 0, bytes.fromhex("fffb18fffc20fffc23fffc27")
    yield 1, bytes.fromhex("fffb03fffd01") + b"login: "
    yield from typed(user)
    yield 1, b"\r\nPassword: "
    yield from typed(password, echoed=False)


def session(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """A login, then commands and their output."""
    dice = flow.dice
    yield from login(dice.pick(WORDS), dice.pick(WORDS))
    yield 1, b"\r\nWelcome.\r\n$ "
    while flow.left() > 30:
        yield from typed(b"show " + dice.pick(WORDS))
        yield 1, b"\r\n" + pools.text_slice(dice, dice.between(40, 700)) + b"\r\n$ "
