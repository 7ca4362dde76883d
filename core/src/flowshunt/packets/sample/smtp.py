"""SMTP dialogues: a client hands messages to a mail server (RFC 5321)."""

import base64
from collections.abc import Iterator

from flowshunt.packets.sample.flow import Flow, Turn
from flowshunt.packets.sample.pools import WORDS, Pools


def greeting(flow: Flow) -> Iterator[Turn]:
    """The server's greeting and the client's."""
    yield 1, b"220 mail.home.example ESMTP ready\r\n"
    yield 0, b"EHLO %s.%s.example\r\n" % (flow.dice.pick(WORDS), flow.dice.pick(WORDS))
    yield 1, b"250-mail.home.example\r\n250-SIZE 52428800\r\n250-8BITMIME\r\n250 PIPELINING\r\n"


def deliver(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """Messages of some lines of text, some with an encoded attachment."""
    dice = flow.dice
    yield from greeting(flow)
    while (left := flow.left()) > 14:
        sender = b"%s@%s.example" % (dice.pick(WORDS), dice.pick(WORDS))
        receiver = b"%s@home.example" % dice.pick(WORDS)
        yield 0, b"MAIL FROM:<%s>\r\n" % sender
        yield 1, b"250 2.1.0 Ok\r\n"
        yield 0, b"RCPT TO:<%s>\r\n" % receiver
        yield 1, b"250 2.1.5 Ok\r\n"
        yield 0, b"DATA\r\n"
        yield 1, b"354 End data with <CR><LF>.<CR><LF>\r\n"
        head = b"From: <%s>\r\nTo: <%s>\r\nSubject: %s %s\r\n\r\n" % (
            sender,
            receiver,
            dice.pick(WORDS).capitalize(),
            dice.pick(WORDS),
        )
        body = bytes(pools.text_slice(dice, dice.between(300, 4000)))
        if left > 30:
            size = min(left * 300, 40_000)
            body += b"\r\n" + base64.encodebytes(pools.noise_slice(dice, size)).replace(b"\n", b"\r\n")
        yield 0, head + body + b"\r\n.\r\n"
        yield 1, b"250 2.0.0 Ok: queued as %08X\r\n" % dice.below(1 << 32)
    yield 0, b"QUIT\r\n"
    yield 1, b"221 2.0.0 Bye\r\n"
