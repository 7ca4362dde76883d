"""SSH dialogues: banners, key exchange, then keystrokes and their echoes, with some larger output."""

import struct
from collections.abc import Iterator

from flowshunt.packets.sample.flow import Flow, Turn
from flowshunt.packets.sample.pools import Pools

CLIENT_BANNER = b"SSH-2.0-OpenSSH_9.6\r\n"
SERVER_BANNER = b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"

_KEXINIT = 20
_ALGORITHMS = (
    b"curve25519-sha256,ecdh-sha2-nistp256",
    b"ssh-ed25519,rsa-sha2-512",
    b"aes128-gcm@openssh.com,aes256-ctr",
    b"aes128-gcm@openssh.com,aes256-ctr",
    b"hmac-sha2-256-etm@openssh.com",
    b"hmac-sha2-256-etm@openssh.com",
    b"none,zlib@openssh.com",
    b"none,zlib@openssh.com",
    b"",
    b"",
)


def packet(kind: int, body: bytes) -> bytes:
    """A binary packet in the clear (RFC 4253, 6), padded to a multiple of 8 bytes."""
    content = bytes((kind,)) + body
    padding = 8 - (len(content) + 5) % 8
    padding += 8 if padding < 4 else 0
    return struct.pack(">IB", len(content) + 1 + padding, padding) + content + bytes(padding)


def opening(flow: Flow, pools: Pools, banner: bytes = CLIENT_BANNER) -> Iterator[Turn]:
    """Banners and key exchange, up to where all is encrypted."""
    dice = flow.dice
    yield 0, banner
    yield 1, SERVER_BANNER
    lists = b"".join(struct.pack(">I", len(names)) + names for names in _ALGORITHMS) + bytes(5)
    yield 0, packet(_KEXINIT, bytes(pools.noise_slice(dice, 16)) + lists)
    yield 1, packet(_KEXINIT, bytes(pools.noise_slice(dice, 16)) + lists)
    yield 0, packet(30, struct.pack(">I", 32) + pools.noise_slice(dice, 32))
    yield 1, packet(31, struct.pack(">I", 51) + pools.noise_slice(dice, 51 + 36 + 87)) + packet(21, b"")
    yield 0, packet(21, b"")
    for size in (44, 68, 148, 60):
        yield 0, pools.noise_slice(dice, size)
        yield 1, pools.noise_slice(dice, size)


def session(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """A login in which someone types commands and reads their output."""
    dice = flow.dice
    yield from opening(flow, pools)
    while flow.left() > 8:
        for _ in range(dice.between(4, 24)):
            yield 0, pools.noise_slice(dice, 36)
            yield 1, pools.noise_slice(dice, 36 if dice.chance(0.8) else 52)
            if flow.left() <= 8:
                return
        for _ in range(dice.between(1, 5)):
            yield 1, pools.noise_slice(dice, dice.between(4, 100) * 8 + 4)
