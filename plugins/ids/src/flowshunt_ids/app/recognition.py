"""Which protocol a flow speaks: by the first bytes of either direction, at any port, then by probes for its ports."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from flowshunt_ids.app.contract import BOTH, AppProtocol, DetectionPattern, Probe

MOST = 4096
"""Bytes of a direction that are looked at before it is given up."""


def _expression(pattern: DetectionPattern) -> bytes:
    literal = re.escape(pattern.pattern)
    if pattern.nocase:
        literal = b"(?i:" + literal + b")"
    slack = pattern.end - pattern.offset - len(pattern.pattern)
    before = b""
    if pattern.offset or slack:
        before = b".{%d,%d}?" % (pattern.offset, pattern.offset + slack)
    return before + literal


@attrs.frozen(eq=False)
class _Direction:
    expression: "re.Pattern[bytes] | None"
    names: tuple[str, ...]
    longest: int


class Recognizer:
    """The patterns and probes of some protocols, for one transport (6 or 17)."""

    def __init__(
        self, protocols: Iterable[AppProtocol], transport: int, ports: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        """ports: for protocols by name, the ports that win over those of their probes."""
        chosen = [protocol for protocol in protocols if transport in protocol.transports]
        self._directions = tuple(self._of(chosen, direction) for direction in BOTH)
        self._probes: tuple[list[tuple[str, Probe, frozenset[int] | None]], ...] = ([], [])
        for protocol in chosen:
            own = (ports or {}).get(protocol.name)
            for probe in protocol.probes:
                if transport in probe.transports:
                    at = own if own is not None and probe.ports is not None else probe.ports
                    self._probes[probe.direction].append((protocol.name, probe, None if at is None else frozenset(at)))

    @staticmethod
    def _of(protocols: Iterable[AppProtocol], direction: int) -> _Direction:
        found = [
            (protocol.name, pattern)
            for protocol in protocols
            for pattern in protocol.patterns
            if pattern.direction == direction
        ]
        if not found:
            return _Direction(None, (), 0)
        # The longest first: of two that match the more telling one counts.
        found.sort(key=lambda item: -len(item[1].pattern))
        expression = b"|".join(b"(" + _expression(pattern) + b")" for _name, pattern in found)
        return _Direction(
            re.compile(expression, re.DOTALL),
            tuple(name for name, _pattern in found),
            min(MOST, max(pattern.end for _name, pattern in found)),
        )

    def look(self, data: bytes, direction: int, ports: tuple[int, int]) -> str | None:
        """The protocol of a direction's first bytes; "" where it is none; None where more bytes may tell.

        ports: (of the client, of the server).
        """
        mine: Any = self._directions[direction]
        if mine.expression is not None:
            found = mine.expression.match(data)
            if found is not None:
                return str(mine.names[found.lastindex - 1])
        waiting = len(data) < mine.longest
        for name, probe, at in self._probes[direction]:
            if at is not None and ports[1] not in at and ports[0] not in at:
                continue
            answer = probe.look(data)
            if answer:
                return name
            waiting = waiting or answer is None
        return None if waiting and len(data) < MOST else ""
