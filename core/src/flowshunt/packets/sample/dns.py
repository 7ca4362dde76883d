"""DNS dialogues: A and AAAA queries and their answers, some too large for one frame, over UDP and TCP."""

import struct
from collections.abc import Iterator
from functools import cache

from flowshunt.packets.sample.dice import Dice
from flowshunt.packets.sample.flow import Flow, Turn
from flowshunt.packets.sample.pools import WORDS, Pools
from flowshunt.packets.sample.templates import dns_answer, dns_question

A, TXT, AAAA = 1, 16, 28
NAMES = 300


@cache
def name(number: int) -> bytes:
    """One of NAMES host names that clients ask for."""
    dice = Dice(number, 3)
    return b"%s.%s.example" % (dice.pick((b"www", b"api", b"cdn", b"mail", b"img")), dice.pick(WORDS))


def asked(question: bytes, identifier: int) -> bytes:
    """A question or an answer with its id filled in."""
    return struct.pack(">H", identifier) + question[2:]


def _answer(flow: Flow, question: bytes, kind: int) -> bytes:
    dice = flow.dice
    if kind == A:
        records = [(A, bytes((203, 0, 113, dice.below(256)))) for _ in range(dice.between(1, 4))]
    else:
        address = bytes.fromhex("20010db8f000") + bytes(9)
        records = [(AAAA, address + bytes((dice.below(256),))) for _ in range(dice.below(3))]
    return dns_answer(question, records, dice.between(20, 3600))


def lookup(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """A stub resolver's queries for one name, A and often AAAA, each answered."""
    dice = flow.dice
    asks = name(dice.below(NAMES))
    for kind in (A, AAAA)[: max(flow.budget // 2, 1)]:
        question = asked(dns_question(asks, kind), dice.below(0x10000))
        yield 0, question
        yield 1, _answer(flow, question, kind)


def texts(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """A query for text records whose answer is so long that it travels in IP fragments."""
    dice = flow.dice
    question = asked(dns_question(name(dice.below(NAMES)), TXT), dice.below(0x10000))
    yield 0, question
    records = [(TXT, b"\xff" + pools.text_slice(dice, 255)) for _ in range(dice.between(6, 13))]
    yield 1, dns_answer(question, records, 300)


def over_tcp(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """Queries over a connection, each message behind its length (RFC 7766)."""
    dice = flow.dice
    while flow.left() > 4:
        kind = dice.pick((A, AAAA))
        question = asked(dns_question(name(dice.below(NAMES)), kind), dice.below(0x10000))
        answer = _answer(flow, question, kind)
        yield 0, struct.pack(">H", len(question)) + question
        yield 1, struct.pack(">H", len(answer)) + answer
