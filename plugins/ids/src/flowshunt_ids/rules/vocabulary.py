"""The language of rules as it is here: the engine's own keywords and buffers, and what plugins add."""

import functools

from flowshunt_ids.rules.absent import why_absent
from flowshunt_ids.rules.keywords import KEYWORDS
from flowshunt_ids.rules.language import BufferKeyword, Language, make_language

PACKET_BUFFERS = tuple(
    BufferKeyword(name, packet=True)
    for name in ("ipv4.hdr", "ipv6.hdr", "tcp.hdr", "udp.hdr", "icmpv4.hdr", "icmpv6.hdr", "ip.src", "ip.dst")
)
"""Buffers of a packet's headers, see `flowshunt_ids.conditions`."""


@functools.cache
def default_language() -> Language:
    """What rules may say with the plugins that are installed."""
    from flowshunt_ids.app.registry import registry

    plugins = registry()

    def absent(name: str) -> str | None:
        missing = plugins.missing(name)
        return f"needs {missing}, which is not installed" if missing is not None else why_absent(name)

    return make_language(
        {**KEYWORDS, **plugins.keywords},
        (*PACKET_BUFFERS, *plugins.buffer_keywords()),
        plugins.transforms.values(),
        plugins.rule_protocols(),
        absent,
    )
