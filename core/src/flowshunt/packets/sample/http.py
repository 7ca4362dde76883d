"""HTTP/1.1 dialogues: pages, forms and downloads over one connection."""

from collections.abc import Iterator

from flowshunt.packets.sample.flow import Flow, Turn
from flowshunt.packets.sample.pools import WORDS, Pools

AGENTS = (
    b"Mozilla/5.0 (X11; Linux x86_64; rv:124.0) Gecko/20100101 Firefox/124.0",
    b"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/122.0.0.0 Safari/537.36",
    b"Debian APT-HTTP/1.3 (2.6.1)",
    b"curl/8.5.0",
)
PAGE = b"text/html; charset=utf-8"
DATA = b"application/json"
FILE = b"application/octet-stream"

CHUNK = 1 << 16


def request(
    path: bytes, host: bytes, agent: bytes = AGENTS[0], method: bytes = b"GET", body: bytes | memoryview = b""
) -> bytes:
    """A request message (RFC 9112)."""
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: " + host, b"User-Agent: " + agent, b"Accept: */*"]
    if body:
        lines += [b"Content-Type: application/x-www-form-urlencoded", b"Content-Length: %d" % len(body)]
    return b"\r\n".join((*lines, b"Connection: keep-alive", b"", b"")) + body


def response(size: int, kind: bytes = PAGE, status: bytes = b"200 OK") -> bytes:
    """The head of a response whose body has `size` bytes."""
    lines = (
        b"HTTP/1.1 " + status,
        b"Server: nginx/1.24.0",
        b"Date: Tue, 05 Mar 2024 08:00:00 GMT",
        b"Content-Type: " + kind,
        b"Content-Length: %d" % size,
        b"Cache-Control: max-age=600",
        b"Connection: keep-alive",
        b"",
        b"",
    )
    return b"\r\n".join(lines)


def browse(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """Requests for pages, some forms posted, and downloads where the flow has room for them."""
    dice = flow.dice
    host = b"%s.%s.example" % (dice.pick(WORDS), dice.pick(WORDS))
    agent = dice.pick(AGENTS)
    while (left := flow.left()) > 6:
        path = b"/%s/%s" % (dice.pick(WORDS), dice.pick(WORDS))
        if dice.chance(0.12):
            fields = b"&".join(b"%s=%s" % (dice.pick(WORDS), dice.pick(WORDS)) for _ in range(dice.between(2, 9)))
            yield 0, request(path, host, agent, b"POST", fields)
            yield 1, response(0, status=b"204 No Content")
            continue
        yield 0, request(path + b"?%s=%d" % (dice.pick(WORDS), dice.below(10000)), host, agent)
        if left > 14 and dice.chance(0.7):
            yield from _download(flow, pools, left * dice.between(400, 980))
        else:
            body = pools.text_slice(dice, dice.between(200, 6000))
            yield 1, response(len(body), dice.pick((PAGE, DATA))) + body


def _download(flow: Flow, pools: Pools, size: int) -> Iterator[Turn]:
    cut = pools.noise_slice if flow.dice.chance(0.8) else pools.text_slice
    yield 1, response(size, FILE) + cut(flow.dice, min(size, CHUNK))
    for start in range(CHUNK, size, CHUNK):
        yield 1, cut(flow.dice, min(size - start, CHUNK))
